"""The objectives of iALS and eALS written out over all pairs, in float64."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Dense:
    """`sum W * (T - X Y')^2 + ridges`, with a weight and a target for every pair."""

    weights: np.ndarray
    targets: np.ndarray
    constant: float
    user_ridges: np.ndarray
    item_ridges: np.ndarray

    def loss(self, users: np.ndarray, items: np.ndarray) -> float:
        x, y = users.astype(np.float64), items.astype(np.float64)
        error = (self.weights * (self.targets - x @ y.T) ** 2).sum() + self.constant
        lengths = self.user_ridges @ (x**2).sum(axis=1) + self.item_ridges @ (y**2).sum(axis=1)
        return float(error + lengths)

    def best_users(self, items: np.ndarray) -> np.ndarray:
        """The normal equations of every user, solved."""
        return _solve(self.weights, self.targets, self.user_ridges, items)

    def best_items(self, users: np.ndarray) -> np.ndarray:
        return _solve(self.weights.T, self.targets.T, self.item_ridges, users)


def _solve(
    weights: np.ndarray, targets: np.ndarray, ridges: np.ndarray, others: np.ndarray
) -> np.ndarray:
    y = others.astype(np.float64)
    solutions = [
        np.linalg.solve((y.T * w) @ y + ridge * np.eye(y.shape[1]), y.T @ (w * t))
        for w, t, ridge in zip(weights, targets, ridges, strict=True)
    ]
    return np.array(solutions)


def dense_ials(R: np.ndarray, weight: float, regularization: float, nu: float) -> Dense:
    """iALS: `r (s - 1)^2 + w s^2 = (r + w) (s - r / (r + w))^2 + r w / (r + w)`.

    R holds how much pairs count, 0 where they were not observed.
    """
    users, items = np.count_nonzero(R.sum(1)), np.count_nonzero(R.sum(0))
    return Dense(
        weights=weight + R,
        targets=R / (R + weight),
        constant=float((R * weight / (R + weight)).sum()),
        user_ridges=regularization * (R.sum(axis=1) + weight * items) ** nu,
        item_ridges=regularization * (R.sum(axis=0) + weight * users) ** nu,
    )


def dense_eals(R: np.ndarray, weight: float, power: float, regularization: float) -> Dense:
    """eALS; R as above."""
    counts = (R > 0).sum(axis=0)
    c = np.array([f**power if f else 0.0 for f in counts])
    c *= weight / c.sum()
    return Dense(
        weights=np.where(R > 0, R, c),
        targets=(R > 0).astype(np.float64),
        constant=0.0,
        user_ridges=np.full(len(R), regularization),
        item_ridges=np.full(len(counts), regularization),
    )
