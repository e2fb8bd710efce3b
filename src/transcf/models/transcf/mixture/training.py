"""Epochs of the mixture: softmax over a target and shared negatives, by lazy Adam.

Every event of a history is a target of the others once an epoch. What is dealt and drawn depends on
seed and epoch alone, and sums are made in a fixed order, so that the same seed gives the same bits
for any number of threads.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from transcf.data.interactions import Interactions
from transcf.kernels.adam import Moving, step_sizes
from transcf.kernels.beneath import NO_LAYER
from transcf.kernels.mixture import Kernel, Points
from transcf.kernels.mixture_batches import SHARDS
from transcf.kernels.mixture_epochs import Rules, run_batches
from transcf.kernels.rows import padded, padded_width, unpadded
from transcf.learning import Arrays
from transcf.learning.beneath import Beneath
from transcf.learning.first_vectors import first_vectors
from transcf.learning.forms.base import TINY
from transcf.learning.weights import EventWeights
from transcf.models.transcf.mixture.batches import Dealer
from transcf.models.transcf.mixture.memory import Memory
from transcf.models.transcf.parameters import BOUND_POWERS
from transcf.models.transcf.settings import TransCFSettings
from transcf.threads import one_blas_thread
from transcf.training.trainable import EpochStats

#: Batches that an epoch should have, and the fewest and most events of a batch all the same.
_BATCHES, _BATCH_EVENTS = 150, (64, 1024)
#: Batches before Python is asked whether somebody wants to stop.
_AT_ONCE = 100
#: What Adam keeps of each array beside it, as parts of names.
_PARTS = ("", ".means", ".squares")


class MixtureTraining:
    """The points, and what an epoch does to them.

    Args:
        train: What to learn from.
        settings: The model's.
        beneath: Scores that those of the mixture are added to, or None.

    Attributes:
        popularity: What `debias` adds to the biases while the model learns, and its scores leave
            out, (n_items,) float32.
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
        wanted, power = settings.shared_negatives, settings.negative_power
        self._dealer = Dealer(histories, weights, size, wanted, power)
        taught = np.repeat(histories.counts > 1, histories.counts)
        self._samples, self._weight = int(taught.sum()), float(weights[taught].sum())
        n_drawn, bound = self._dealer.n_drawn, BOUND_POWERS[settings.bound]
        self._rules = Rules(
            n_drawn, settings.tied, settings.item_bias, bound, float(settings.user_rate)
        )
        longest = int(histories.counts.max(initial=0))
        self._kernel = kernel_of(settings, train.timestamps is not None, longest)
        self._memory = Memory.of(size, n_drawn, train.n_items, self._width)
        sizes = {"user_vectors": train.n_users, "item_vectors": train.n_items}
        generator = np.random.default_rng(settings.random_state)
        drawn = first_vectors([*sizes.values()], settings.dim, settings.init_scale, generator)
        tensors = dict(zip(sizes, drawn, strict=True))
        if not settings.tied:  # where the items are: what is taken together draws both near
            tensors["history_vectors"] = tensors["item_vectors"]
        logs = np.log(np.maximum(1, train.by_item.counts))
        self.popularity = (settings.debias * logs).astype(np.float32)
        tensors["item_bias"] = self.popularity.copy()
        empty = {name + part: 0 * tensors[name] for name in tensors for part in _PARTS[1:]}
        self.load_tensors(tensors | empty | {"steps": np.zeros(1, np.int64)})

    def run_epoch(self, number: int) -> EpochStats:
        """Let every event be a target once."""
        dealt = self._dealer.deal(self._settings.random_state, number)
        batches, most = dealt.cuts.shape[1] - 1, self._dealer.most_events(dealt)
        if most > self._memory.most_events:
            self._memory = self._memory.for_events(most)
        rates = [self._settings.rate_at(number + place / batches) for place in range(batches)]
        sizes = step_sizes(np.array(rates), self._steps + np.arange(1, batches + 1))
        losses, points = np.zeros((batches, SHARDS)), self._points
        layer = NO_LAYER if self._beneath is None else self._beneath.layer
        run = partial(
            run_batches, self._kernel, self._rules, self._dealer.log, layer, dealt, sizes, points,
            *self._memory, losses,
        )  # fmt: skip
        with one_blas_thread():
            for first in range(0, batches, _AT_ONCE):
                run(first, min(first + _AT_ONCE, batches))
        self._steps += batches
        return self._stats(float(losses.sum()))

    def _stats(self, loss: float) -> EpochStats:
        return EpochStats(loss / max(self._weight, TINY), self._samples)

    def tensors(self) -> Arrays:
        """Return vectors, biases, Adam's running means and the number of steps."""
        found: Arrays = {"steps": self._steps.copy()}
        users, items, history, bias = self._points
        vectors = {"user_vectors": users, "item_vectors": items}
        if not self._settings.tied:
            vectors["history_vectors"] = history
        for part, values in zip(_PARTS, bias, strict=True):
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

        users, items = moving("user_vectors"), moving("item_vectors")
        history = items if self._settings.tied else moving("history_vectors")
        bias = Moving(*(tensors[f"item_bias{part}"].copy() for part in _PARTS))
        self._points = Points(users, items, history, bias)
        self._steps = tensors["steps"].copy()


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
    # Kernels are compiled for types: whole numbers would ask for other ones.
    return Kernel(float(settings.tau), float(settings.beta), past, future)
