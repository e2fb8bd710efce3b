"""Hyper-parameters of FISM."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, Self

from transcf.models.event_weights import WeightSettings
from transcf.models.families import (
    MOST_SAMPLES,
    EpochRule,
    FactorSettings,
    IterationSettings,
    LogSizes,
)
from transcf.models.params import setting, settings


@settings(learning_rate=0.02, init_scale=0.03)
class FISMSettings(FactorSettings, IterationSettings, WeightSettings):
    """Hyper-parameters of FISM."""

    _epoch_rule = EpochRule(30, 500, 100)
    epochs: int | None = setting(None, _epoch_rule.meaning, low=1)  # type: ignore[assignment]
    loss: Literal["auc", "rmse"] = setting(
        "rmse", '"auc" ranks pairs, "rmse" rebuilds ones and zeros.'
    )
    alpha: float = setting(
        0.5, "How far long histories are scaled down: 0 is a sum, 1 a mean.", low=0, high=1
    )
    regularization: float = setting(0.03, "L2 weight of the vectors.", low=0)
    bias_regularization: float = setting(0.01, "L2 weight of the biases.", low=0)
    samples_per_user: int | None = setting(
        None,
        "How many of the user's items are taken as i in an epoch; None takes each once, or, where "
        "events weigh more or less, as many as there are.",
        low=1,
        high=MOST_SAMPLES,
    )
    negatives: int = setting(20, "Items j for every i.", low=1, high=1000)

    def for_log(self, sizes: LogSizes) -> Self:
        """Return the settings with the defaults that depend on the data."""
        return replace(self, epochs=self.epochs or self._epoch_rule(sizes))
