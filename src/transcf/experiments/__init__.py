"""Comparisons of models, studies (TOML), the run cache, tuning and reports."""
