"""Hyper-parameters of CDAE."""

from __future__ import annotations

from typing import Literal, TypeAlias

from transcf.models.families import NeuralSettings
from transcf.models.params import setting, settings

Loss: TypeAlias = Literal["logistic", "square"]


@settings(learning_rate=0.01)
class CDAESettings(NeuralSettings):
    """Hyper-parameters of CDAE."""

    regularization: float = setting(0.0, "L2 weight.", low=0)
    dropout: float = setting(
        0.5,
        "Share of a user's items that the input lacks, the corruption ratio.",
        low=0,
        high=0.99,
    )
    loss: Loss = setting("logistic", "Which of the two losses above.")
    negatives: int = setting(
        5, "Items drawn anew in every epoch for each interaction.", low=1, high=1000
    )
    batch_size: int = setting(64, "Users in a batch.", low=1)
