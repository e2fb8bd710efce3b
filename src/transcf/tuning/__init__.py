"""Search spaces (TOML), budgets, and the search for settings of a model."""

from transcf.tuning.budgets import BUDGETS, SAMPLERS, Budget, settings_to_try
from transcf.tuning.search import Search, Trial

__all__ = ["BUDGETS", "SAMPLERS", "Budget", "Search", "Trial", "settings_to_try"]
