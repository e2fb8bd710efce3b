"""Which settings are worth trying, as data (TOML), and which of them to try."""

from transcf.tuning.spaces import BUDGETS, settings_to_try

__all__ = ["BUDGETS", "settings_to_try"]
