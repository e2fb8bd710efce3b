"""Which settings are worth trying, as data (TOML), and which of them to try."""

from transcf.tuning.spaces import BUDGETS, check_budget, settings_to_try

__all__ = ["BUDGETS", "check_budget", "settings_to_try"]
