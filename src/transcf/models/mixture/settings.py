"""Hyper-parameters of the mixture of translations."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar, Literal, Self

import numpy as np

from transcf.errors import UnsupportedError
from transcf.kernels import Array
from transcf.models.event_weights import WeightSettings
from transcf.models.families import FactorSettings, IterationSettings, MemoryEstimate, vectors
from transcf.models.params import Number, setting, settings

#: Events of the user of a mean event for which vectors of users are worse than means of contexts.
#: Beauty, where they are, has 16; MovieTweetings, where they are as good, 34; ml-latest-small 394.
_FEW = 25


@settings(epochs=20, learning_rate=0.01, init_scale=0.03)
class MixtureSettings(FactorSettings, IterationSettings, WeightSettings):
    """Hyper-parameters of `TransCFMixture`."""

    # The decay of the learning rate depends on the number of epochs.
    _resumable: ClassVar[tuple[str, ...]] = ("patience",)
    tau: float = setting(
        4.0, "Weight of the squared distance from the items of the history.", low=0, high=10
    )
    beta: float = setting(
        2.0, "Weight of the squared distance from the user's own vector.", low=0, high=10
    )
    user_vectors: Literal["auto", "learned", "context"] = setting(
        "auto",
        'Where users are: "learned" trains a vector for each user; "context" takes the mean of the '
        "vectors of the last items of the history, weighted by the inverse of their distance, and "
        'needs times; "auto" takes "context" where events have times and the user of a mean event '
        f"has at most {_FEW} events.",
    )
    history_decay: float = setting(
        1.5,
        "Exponent by which older items of a history lose weight, where events have times: the item "
        "d places before the target has the weight d^-history_decay.",
        low=0,
        high=50,
    )
    future_weight: float = setting(
        0.5,
        "Weight in training of events after the target, relative to events before it, where events "
        "have times.",
        low=0,
        high=1,
    )
    tie_item_vectors: bool = setting(
        False,
        "Whether items have one vector each; else items of a history and recommended items have "
        "vectors of their own.",
    )
    shared_negatives: int = setting(1000, "Negative items that all events of a batch share.", low=1)
    negative_power: float = setting(
        0.5,
        "Negatives are drawn in proportion to this power of their popularity, and weighted by the "
        "inverse of their probability; 0 draws uniformly.",
        low=0,
        high=1,
    )
    popularity_correction: float = setting(
        0.0,
        "Share of popularity that scores leave out: this number times the logarithm of an item's "
        "event count is added in training and left out of scores.",
        low=0,
        high=2,
    )
    user_lr_multiplier: float = setting(
        5.0,
        "Step size of user vectors, as a multiple of the learning rate. A user is updated once per "
        "epoch, an item in every batch that contains or draws it.",
        above=0,
    )
    batch_events: int | None = setting(
        None,
        "Events per batch, at least one whole history; None takes 1,024, and fewer where there are "
        "few events.",
        low=1,
    )
    transitions: float | Literal["auto"] = setting(
        "auto",
        "How much counts of items that follow others add to scores: 1 as much as the vectors. "
        '"auto" chooses 0, 0.5, 1, 2, 4 or 8 on validation data with the fitted vectors, 0 where '
        "the gain is not significant or there are none.",
        rule=Number(low=0, high=1000, words=("auto",)),
    )

    def choose_user_vectors(self, timed: bool, user_counts: Array) -> Self:
        """Return the settings with the choice between vectors of users and means of contexts."""
        if self.user_vectors == "context" and not timed:
            raise UnsupportedError(
                'user_vectors="context" needs the order of events, and this log has no times: add '
                'a column of times, or set user_vectors="learned".'
            )
        if self.user_vectors != "auto":
            return self
        counts = user_counts.astype(np.float64)
        is_context = timed and np.square(counts).sum() <= _FEW * counts.sum()
        return replace(self, user_vectors="context" if is_context else "learned")

    @property
    def has_users(self) -> bool:
        """Whether users have vectors of their own."""
        return self.user_vectors != "context"

    def memory_estimate(self, users: int, items: int) -> MemoryEstimate:
        """Return the least memory of the vectors and of Adam's two moments of each."""
        rows = (1 if self.tie_item_vectors else 2) * items
        rows += users if self.user_vectors == "learned" else 0
        return replace(super().memory_estimate(users, items), size=3 * vectors(rows, self.dim))

    def rate_at(self, epoch: float) -> float:
        """Return the learning rate of an epoch, counted from 1; it decays linearly to 0."""
        return self.learning_rate * max(0.0, 1 - (epoch - 1) / self.epochs)
