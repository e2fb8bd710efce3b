"""Studies: what is compared with what, as data (TOML), a runner, and a report."""

from transcf.experiments.runner import run_study
from transcf.experiments.study import Study, available_studies, load_study

__all__ = ["Study", "available_studies", "load_study", "run_study"]
