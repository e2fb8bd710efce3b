"""Studies: what is compared with what, as data (TOML), a runner, and a report."""

from transcf.experiments.runner import Row, run_study
from transcf.experiments.study import Study, available_studies, load_study

__all__ = ["Row", "Study", "available_studies", "load_study", "run_study"]
