"""Comparisons of models, studies as data (TOML), a runner, and a report."""

from transcf.experiments.comparison import Comparison, compare
from transcf.experiments.runner import run_study
from transcf.experiments.study import Study, available_studies, load_study

__all__ = ["Comparison", "Study", "available_studies", "compare", "load_study", "run_study"]
