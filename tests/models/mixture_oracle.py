"""The mixture of translations by its formula, in float64 and without any trick."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from transcf.kernels import Array


@dataclass(frozen=True)
class Oracle:
    """A small world: points, histories, and how the loss looks at them."""

    users: Array
    items: Array
    history: Array
    bias: Array
    histories: list[list[int]]
    negatives: Array
    tau: float = 3.0
    beta: float = 2.0
    rho: float = 0.0
    future: float = 1.0
    log_counts: float = 1.0
    weights: Array | None = None
    tied: bool = False

    def score(self, user: int, history: list[int], weights: Array, item: int) -> float:
        """c_i + log sum_k w_k exp(-tau |p_k - b_i|^2 - beta |a_u - b_i|^2)."""
        p = (self.items if self.tied else self.history)[history]
        b, a = self.items[item], self.users[user]
        near = -self.tau * ((p - b) ** 2).sum(axis=1) - self.beta * ((a - b) ** 2).sum()
        return float(self.bias[item] + np.log((weights * np.exp(near)).sum()))

    def loss(self) -> float:
        """Softmax of every event of everybody over it and the negatives that are not theirs."""
        total, event = 0.0, 0
        for user, history in enumerate(self.histories):
            for place, item in enumerate(history):
                weight = 1.0 if self.weights is None else self.weights[event]
                event += 1
                if len(history) == 1:
                    continue
                places = np.delete(np.arange(len(history)), place)
                distance = np.abs(places - place).astype(float)
                by_place = distance**-self.rho * np.where(places > place, self.future, 1.0)
                others = [history[k] for k in places]
                own = self.score(user, others, by_place, item)
                rest = sum(
                    np.exp(self.score(user, others, by_place, j))
                    for j in self.negatives
                    if j not in history
                )
                total += weight * (np.log(np.exp(own) + self.log_counts * rest) - own)
        return total

    def along(self, directions: dict[str, Array], step: float = 1e-5) -> float:
        """How the loss changes along a direction, by central differences."""
        ends = []
        for sign in (1, -1):
            moved = {name: getattr(self, name) + sign * step * d for name, d in directions.items()}
            ends.append(replace(self, **moved).loss())
        return (ends[0] - ends[1]) / (2 * step)
