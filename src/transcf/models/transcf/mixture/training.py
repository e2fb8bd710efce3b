"""Epochs of the mixture: softmax over a target and shared negatives, by lazy Adam.

Every event of a history is a target of the others once an epoch. What is dealt and drawn depends on
seed and epoch alone, and sums are made in a fixed order, so that the same seed gives the same bits
for any number of threads.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from transcf.data.interactions import Interactions
from transcf.kernels import Array
from transcf.kernels.adam import Moving, Step, move_numbers, move_rows, step_of
from transcf.kernels.mixture import Batch, Kernel
from transcf.kernels.rows import padded, padded_width, unpadded
from transcf.learning import Arrays
from transcf.learning.beneath import Beneath
from transcf.learning.first_vectors import first_vectors
from transcf.learning.forms.base import TINY
from transcf.learning.weights import EventWeights
from transcf.models.transcf.mixture.batches import Dealer
from transcf.models.transcf.mixture.gradients import ROWS_OF_A_THREAD, Gradients, Points
from transcf.models.transcf.parameters import BOUND_POWERS
from transcf.models.transcf.settings import TransCFSettings
from transcf.threads import one_blas_thread, share
from transcf.training.trainable import EpochStats

#: Batches that an epoch should have, and the fewest and most events of a batch all the same.
_BATCHES, _BATCH_EVENTS = 150, (64, 1024)
#: What Adam keeps of each array beside it, as parts of names.
_PARTS = ("", ".means", ".squares")


class MixtureTraining:
    """The points, and what an epoch does to them.

    Args:
        train: What to learn from.
        settings: The model's.
        beneath: Scores that those of the mixture are added to, or None.
    """

    def __init__(
        self, train: Interactions, settings: TransCFSettings, beneath: Beneath | None = None
    ) -> None:
        """Draw the first vectors."""
        self._beneath = beneath
        self._settings, self._width = settings, padded_width(settings.dim)
        histories, events = train.histories, EventWeights.of(train, settings)
        weights = np.ones(len(train), np.float32)
        if not events.is_even:
            weights = events.overall[train.in_order]
        size = settings.batch_events or int(np.clip(len(train) // _BATCHES, *_BATCH_EVENTS))
        self._dealer = Dealer(histories, weights, size)
        self._active = np.flatnonzero(train.by_item.counts).astype(np.int32)
        self._n_negatives = min(settings.shared_negatives, len(self._active))
        longest = int(histories.counts.max(initial=0))
        kernel = kernel_of(settings, train.timestamps is not None, longest)
        self._gradients = Gradients(
            kernel, self._width, train.n_items, self._dealer.most_events, self._n_negatives
        )
        sizes = {"user_vectors": train.n_users, "item_vectors": train.n_items}
        if not settings.tied:
            sizes["history_vectors"] = train.n_items
        generator = np.random.default_rng(settings.random_state)
        drawn = first_vectors([*sizes.values()], settings.dim, settings.init_scale, generator)
        tensors = dict(zip(sizes, drawn, strict=True))
        tensors["item_bias"] = np.zeros(train.n_items, np.float32)
        empty = {name + part: 0 * tensors[name] for name in tensors for part in _PARTS[1:]}
        self.load_tensors(tensors | empty | {"steps": np.zeros(1, np.int64)})

    def run_epoch(self, number: int) -> EpochStats:
        """Let every event be a target once."""
        generator = np.random.default_rng((self._settings.random_state, number))
        dealt, bound = self._dealer.deal(generator), BOUND_POWERS[self._settings.bound]
        loss, weight, samples = 0.0, 0.0, 0
        with one_blas_thread():
            for place, users in enumerate(dealt):
                batch = self._dealer.batch(users)
                self._steps += 1
                rate = self._settings.rate_at(number + place / len(dealt))
                step = step_of(rate, int(self._steps[0]), bound)
                loss += self._step(batch, self._draw(generator), step)
                weight += float(batch.weights.sum())
                samples += len(batch.items)
        return EpochStats(loss / max(weight, TINY), samples)

    def _draw(self, generator: np.random.Generator) -> Array:
        """Draw the items that a batch is compared with, all of them if there are few."""
        if self._n_negatives == len(self._active):
            return self._active
        drawn: Array = generator.choice(
            self._active, self._n_negatives, replace=False, shuffle=False
        )
        return drawn

    def _step(self, batch: Batch, negatives: Array, step: Step) -> float:
        """Move everything that a batch touches; returns its loss."""
        points = Points(
            self._users.values, self._items.values, self._history.values, self._bias.values
        )
        stand_for = len(self._active) / len(negatives)
        if self._beneath is not None:
            batch = self._beneath.lift(batch, negatives, padded_width(self._n_negatives))
        slopes = self._gradients.of(batch, points, negatives, stand_for)
        _move(self._users, batch.users, slopes.users, step)
        _move(self._items, slopes.rows, slopes.items, step)
        if not points.are_tied:
            rows = np.where(slopes.has_events, slopes.rows, -1)
            _move(self._history, rows, slopes.history, step)
        if self._settings.item_bias:
            move_numbers(self._bias, slopes.rows, slopes.bias, step, 0, len(slopes.rows))
        return slopes.loss

    def tensors(self) -> Arrays:
        """Return vectors, biases, Adam's running means and the number of steps."""
        found: Arrays = {"steps": self._steps.copy()}
        vectors = {"user_vectors": self._users, "item_vectors": self._items}
        if not self._settings.tied:
            vectors["history_vectors"] = self._history
        for part, values in zip(_PARTS, self._bias, strict=True):
            found[f"item_bias{part}"] = values.copy()
        for name, moving in vectors.items():
            for part, values in zip(_PARTS, moving, strict=True):
                found[name + part] = unpadded(values.reshape(-1), self._width, self._settings.dim)
        return found

    def load_tensors(self, tensors: Arrays) -> None:
        """Put back what `tensors` returned."""

        def moving(name: str) -> Moving:
            parts = [tensors[name + part] for part in _PARTS]
            return Moving(*(padded(part).reshape(len(part), -1) for part in parts))

        self._users, self._items = moving("user_vectors"), moving("item_vectors")
        self._history = self._items if self._settings.tied else moving("history_vectors")
        self._bias = Moving(*(tensors[f"item_bias{part}"].copy() for part in _PARTS))
        self._steps = tensors["steps"].copy()


def _move(moving: Moving, rows: Array, slopes: Array, step: Step) -> None:
    share(len(rows), partial(move_rows, moving, rows, slopes, step), least=ROWS_OF_A_THREAD)


def kernel_of(settings: TransCFSettings, timed: bool, longest: int) -> Kernel:
    """Return the numbers of the score; without times all places count the same.

    Args:
        settings: The model's.
        timed: Whether events have times.
        longest: Events of the longest history.
    """
    distances = np.maximum(1, np.arange(longest + 1, dtype=np.float64))
    past = (distances ** -(settings.rho if timed else 0.0)).astype(np.float32)
    future = past * np.float32(settings.future if timed else 1.0)
    return Kernel(settings.tau, settings.beta, past, future)
