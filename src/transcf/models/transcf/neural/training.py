"""How TransCF is trained where it learns about neighbourhoods or translations.

Of each triple's drawn items the hardest is found first, without gradients; they then flow through
the pairs with it and with the user's own item, into both neighbourhoods of each.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from transcf.data.csr import Csr
from transcf.kernels import Array
from transcf.learning import Arrays
from transcf.learning.neural.draws import INIT, NEGATIVES, NOISE, ORDER, UnseenItems, generator
from transcf.learning.neural.library import one_thread
from transcf.learning.neural.rows import DenseParameters, RowTable, put
from transcf.learning.triples import Problem
from transcf.models.transcf.exact import sample_positives
from transcf.models.transcf.neural.formula import Pairs, Points, gaps, pair_costs, triple_losses
from transcf.models.transcf.neural.neighbors import Neighborhoods
from transcf.models.transcf.parameters import BOUND_POWERS, first_parameters, stats_of
from transcf.models.transcf.settings import TransCFSettings
from transcf.training.trainable import EpochStats

#: Batches that an epoch should have, and the fewest and most triples of a batch all the same.
_BATCHES, _BATCH_TRIPLES = 150, (64, 1000)
#: Step size of weights, as a share of the learning rate, where there is a map: it overfits soon.
_MAP_RATE = 0.1


def first_weights(settings: TransCFSettings) -> Arrays:
    """Return weights with which the model is the one without them.

    Attention starts even and the map's last layer at zero. Its first is drawn: vectors are no
    longer than one, so that numbers around one make sums of that size.
    """
    rng, weights = generator(settings.random_state, 0, INIT), {}
    for name, shape in settings.weight_shapes(settings.dim).items():
        is_drawn = name in ("map_q", "map_n")
        drawn = rng.standard_normal(shape) if is_drawn else np.zeros(shape)
        weights[name] = drawn.astype(np.float32)
    return weights


class NeuralTraining:
    """Vectors, biases and weights, as the loop wants them.

    Args:
        problem: What to learn from.
        settings: The model's.
        device: Where to train.
    """

    def __init__(self, problem: Problem, settings: TransCFSettings, device: torch.device) -> None:
        """Draw the first values."""
        self._problem, self._settings, self._device = problem, settings, device
        limit = settings.neighbors_at_most
        self._items_of = Neighborhoods(problem.user_indptr, problem.user_indices, limit)
        self._users_of = Neighborhoods(problem.item_indptr, problem.item_indices, limit)
        self._unseen = UnseenItems(Csr(problem.user_indptr, problem.user_indices, problem.n_items))
        first, rate = first_parameters(problem, settings), settings.learning_rate
        self._users, self._items = (
            RowTable(values, rate, device) for values in (first.users, first.items)
        )
        self._bias = RowTable(first.item_bias[:, None], settings.bias_rate * rate, device)
        self._weights = DenseParameters(first_weights(settings), rate, device)
        rank_weights = settings.rank_weights(len(problem.active_items)).astype(np.float32)
        self._rank_weights = put(rank_weights, device)

    def run_epoch(self, number: int) -> EpochStats:
        """Draw the triples of an epoch, and learn from them batch by batch."""
        settings, seed = self._settings, self._settings.random_state
        noise, negatives = generator(seed, number, NOISE), generator(seed, number, NEGATIVES)
        self._items_of.shuffle(noise)
        self._users_of.shuffle(noise)
        drawn = sample_positives(self._problem, settings, generator(seed, number, ORDER))
        users, positives = (rows.astype(np.int64) for rows in drawn)
        size = int(np.clip(len(users) // _BATCHES, *_BATCH_TRIPLES))
        loss, finite = 0.0, True
        with one_thread():
            for start in range(0, len(users), size):
                self._set_rate(settings.rate_at(number + start / len(users)))
                some = slice(start, start + size)
                others = self._unseen.draw(drawn[0][some], settings.negatives, negatives)
                candidates = np.hstack([positives[some, None], others.astype(np.int64)])
                pairs = self.pairs(users[some], candidates, noise)
                loss += self._step(pairs)
                finite &= bool(np.isfinite(loss))
        return stats_of(loss, len(users), finite)

    def _set_rate(self, rate: float) -> None:
        self._users.rate = self._items.rate = rate
        self._bias.rate = self._settings.bias_rate * rate
        self._weights.set_rate(rate * (_MAP_RATE if self._settings.mapping == "network" else 1))

    def pairs(self, users: Array, items: Array, noise: np.random.Generator) -> Pairs:
        """Look up the neighbours of users (T,) and of their items (T, C)."""
        history = self._items_of.of(users, noise)
        distinct, places = np.unique(items, return_inverse=True)
        owners = self._users_of.of(distinct, noise)
        places = places.reshape(items.shape)
        arrays = (users, items, *history, owners.rows[places], owners.absent[places])
        return Pairs(*(torch.from_numpy(array).to(self._device) for array in arrays))

    def hardest(self, pairs: Pairs) -> tuple[Pairs, torch.Tensor]:
        """Keep each user's own item and the hardest other; and weigh the hinge of each, (T,)."""
        points = Points(self._users.tensor, self._items.tensor, self._bias.tensor)
        with torch.no_grad():
            costs = pair_costs(self._settings, points, pairs, self._weights.values).cost
            bias = points.bias[:, 0].index_select(0, pairs.items.flatten()).view(costs.shape)
            found = gaps(self._settings, costs, bias)
            worst = 1 + found.argmax(dim=1)
            chosen = torch.stack([torch.zeros_like(worst), worst], dim=1)
            weights = self._rank_weights[(found > 0).sum(dim=1)]
        return pairs.where(chosen), weights

    def _step(self, pairs: Pairs) -> float:
        """Learn from users and their candidates; returns the sum of the losses."""
        few, violations = self.hardest(pairs)
        user_rows, users, owners = _distinct(len(self._users.tensor), few.users, few.owners)
        item_rows, items, history = _distinct(len(self._items.tensor), few.items, few.history)
        few = few._replace(users=users, owners=owners, items=items, history=history)
        taken = [self._users.take(user_rows), self._items.take(item_rows)]
        taken.append(self._bias.take(item_rows))
        points = Points(*(some.values for some in taken))
        weights = self._weights.values
        loss = triple_losses(self._settings, points, few, weights, violations).sum()
        slopes = torch.autograd.grad(loss, [*points, *weights.values()], materialize_grads=True)
        power = BOUND_POWERS[self._settings.bound]
        for table, some, slope in zip((self._users, self._items), taken[:2], slopes, strict=False):
            table.step(some, slope)
            table.bound(some.rows, power)
        if self._settings.item_bias:
            self._bias.step(taken[2], slopes[2])
        self._weights.step(dict(zip(weights, slopes[3:], strict=True)))
        return float(loss.detach())

    def tensors(self) -> Arrays:
        """Return all that the next epoch depends on."""
        return {
            **self._users.tensors("users"),
            **self._items.tensors("items"),
            **self._bias.tensors("bias"),
            **self._weights.tensors(),
        }

    def load_tensors(self, tensors: Arrays) -> None:
        """Put back what `tensors` returned."""
        for name, table in (("users", self._users), ("items", self._items), ("bias", self._bias)):
            table.load(name, tensors)
        self._weights.load(tensors)


def _distinct(n: int, *rows: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Return the different rows among several arrays of them, and the place of each in these.

    Args:
        n: How many rows there are: marking them is quicker than sorting those that are named.
        rows: Of any shapes.
    """
    marked = torch.zeros(n, dtype=torch.bool, device=rows[0].device)
    for some in rows:
        marked[some] = True
    places: Any = torch.cumsum(marked, 0) - 1
    return torch.nonzero(marked)[:, 0], *(places[some] for some in rows)
