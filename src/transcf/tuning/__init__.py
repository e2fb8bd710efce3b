"""Which settings are worth trying, as data (TOML); budgets, searches, and tuning."""

from transcf.tuning.budgets import BUDGETS, SAMPLERS, Budget, settings_to_try
from transcf.tuning.search import Search, Tried

__all__ = ["BUDGETS", "SAMPLERS", "Budget", "Search", "Tried", "settings_to_try"]
