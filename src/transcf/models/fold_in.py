"""Where newcomers stand, for models without a better answer of their own."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import numpy.typing as npt

from transcf.data.csr import Csr
from transcf.data.histories import Histories
from transcf.data.ids import Rows
from transcf.kernels.neighborhood import bound_rows
from transcf.models.contributions import REPLACED
from transcf.models.training_data import TrainingData
from transcf.retrieval.scorer import Scores

#: Ridge of the map from histories to user vectors, as a share of the mean square of its inputs.
_RIDGE = 1e-2


class HistoryMap:
    """The vector that users with such a history tend to have.

    `x = [m, 1] W`, with m the mean of the items' vectors (or their sum over the root of its length)
    and W fitted to the trained users by least squares with a small ridge, when it is first needed.

    Args:
        known: Who the trained users are.
        users: Their vectors, (n_users, dim).
        items: What an item says about its users, (n_items, d).
        power: 1 for the mean of the items' vectors, 0.5 for the sum over the root of their number.
        in_ball: Whether vectors are brought into the unit ball.
    """

    meaning = REPLACED

    def __init__(
        self,
        known: TrainingData,
        users: Scores,
        items: Scores,
        power: float = 1.0,
        in_ball: bool = False,
    ) -> None:
        """Keep them."""
        self._known, self._users, self._items = known, users, items
        self._power, self._in_ball = power, in_ball

    def __call__(self, histories: Histories) -> Scores:
        """Return the vectors of some people, (n, dim)."""
        vectors: Scores = self._inputs(histories.matrix) @ self._map
        if self._in_ball:
            bound_rows(vectors, 1.0)
        return vectors

    def changed(self, history: Rows) -> npt.NDArray[np.float64]:
        """Return the vector of somebody, and those with an average item in each one's place.

        Shape (n + 1, dim) for a history of n items.
        """
        said = self._items[history].astype(np.float64)
        sums = said.sum(axis=0) + np.vstack([np.zeros_like(said[:1]), self._average - said])
        inputs = np.hstack([sums / len(said) ** self._power, np.ones((len(sums), 1))])
        vectors: npt.NDArray[np.float64] = inputs @ self._map.astype(np.float64)
        if self._in_ball:
            vectors /= np.maximum(1.0, np.linalg.norm(vectors, axis=1, keepdims=True))
        return vectors

    @cached_property
    def _average(self) -> npt.NDArray[np.float64]:
        """What the item of an interaction says on average, (d,)."""
        return self._known.average_item(self._items)

    @cached_property
    def _map(self) -> Scores:
        active = np.flatnonzero(self._known.active)
        inputs = self._inputs(self._known.seen.take(active))
        return _least_squares(inputs, self._users[active])

    def _inputs(self, owned: Csr) -> Scores:
        """What the items say and a constant 1, (n, d + 1)."""
        lengths = np.maximum(1, owned.counts)[:, None]
        scale = lengths if self._power == 1 else np.sqrt(lengths)
        sums = (owned.to_scipy() @ self._items) / scale
        return np.hstack([sums, np.ones_like(sums[:, :1])]).astype(np.float32)


def _least_squares(inputs: Scores, outputs: Scores) -> Scores:
    """Return W that minimises |inputs W - outputs|^2, (d_in, d_out) float32.

    The last input is the constant 1; the others have a ridge that grows and shrinks with them.
    """
    x = inputs.astype(np.float64)
    gram = x.T @ x
    squares = np.diag(gram)[:-1]
    ridge = max(_RIDGE * float(squares.mean()), float(np.finfo(np.float32).tiny))
    gram[:-1, :-1] += ridge * np.eye(len(squares))
    return np.linalg.solve(gram, x.T @ outputs).astype(np.float32)
