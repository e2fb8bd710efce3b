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
    context: int | None = None  # places around a target whose mean is its home

    def score(
        self, user: int, history: list[int], weights: Array, item: int, home: Array | None = None
    ) -> float:
        """c_i + log sum_k w_k exp(-tau |p_k - b_i|^2 - beta |a_u - b_i|^2)."""
        p = (self.items if self.tied else self.history)[history]
        b, a = self.items[item], self.users[user] if home is None else home
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
                if self.context is not None:
                    places = places[np.abs(places - place) <= self.context]
                distance = np.abs(places - place).astype(float)
                side, home = np.where(places > place, self.future, 1.0), None
                by_place = distance**-self.rho * side
                others = [history[k] for k in places]
                if self.context is not None:
                    home = np.average(self.items[others], axis=0, weights=side / distance)
                own = self.score(user, others, by_place, item, home)
                rest = sum(
                    np.exp(self.score(user, others, by_place, j, home))
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
