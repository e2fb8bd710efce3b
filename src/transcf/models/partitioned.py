"""Training from a `PartitionedLog`: what models and solvers learn from, a partition at a time."""

from __future__ import annotations

import numpy as np

from transcf.data.partitioned import PartitionedLog
from transcf.errors import UnsupportedError
from transcf.kernels import Array
from transcf.models.event_weights import EVEN, InteractionWeights, WeightSettings, by_place
from transcf.models.fitted import TrainingData
from transcf.models.mixture.training import Events, MixtureSettings
from transcf.models.triples import Problem


def read_training_data(log: PartitionedLog, settings: object) -> TrainingData:
    """Return what a fitted model keeps of a log, 8 bytes per event.

    Weights that compare events of different users, which are never all in memory, are refused.
    """
    if isinstance(settings, WeightSettings):
        given = settings.event_weights
        asked = {
            "half_life": given.half_life is not None and log.timed,
            "confidence": given.confidence != "none",
            "trend": given.trend_by_hand > 0,
        }
        if wrong := [name for name, is_asked in asked.items() if is_asked]:
            raise UnsupportedError(
                f"{wrong[0]} compares events of different users, and no process holds all events "
                f"of a log in parts: leave {wrong[0]} out, or fit without a cluster."
            )
    return TrainingData(log.users, log.items, log.by_user, log.histories, log.timed)


def problem_of(log: PartitionedLog, settings: WeightSettings) -> Problem:
    """Return the interactions that triples are drawn from, and their weights if they differ."""
    recency, longest = settings.event_weights.recency, int(log.user_counts.max())
    weights = EVEN
    if log.timed and np.exp(recency * (1 / longest - 1)) < 1:
        parts = (
            InteractionWeights(part, by_place(part, recency), between_users=False)
            for part in log.partitions()
        )
        weights = np.concatenate([part.within_users for part in parts])
    return Problem(log.by_user, log.item_counts, weights)


def mixture_events_of(log: PartitionedLog, settings: MixtureSettings) -> Events:
    """Return the histories that the mixture learns from; all events weigh the same."""
    if settings.event_weights.recency and log.timed:
        raise UnsupportedError(
            "recency weighs events by the mean of all in the mixture, and no process holds all "
            "events of a log in parts: leave recency out, or fit without a cluster."
        )
    weights: Array = np.ones(len(log), np.float32)
    return Events(log.histories, weights, log.item_counts, log.timed)
