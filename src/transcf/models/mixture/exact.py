"""The exact solver of the mixture: the formula to the letter, in plain numpy and float64.

Batches are those of the fast one, but targets are compared with all active items that the user
does not have, one user at a time. With A_kj = exp(c_j - tau |p_k - b_j|^2 - beta |a - b_j|^2) and
w_ik the weight of event k for target i, the loss of i is log(N_i + R_i) - log N_i, where
N_i = sum_k w_ik A_ki and R_i = sum_k w_ik sum_j A_kj over the items j that the user does not have.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.spatial.distance import cdist

from transcf.kernels import Array
from transcf.kernels.adam import EPSILON, FIRST, SECOND, AdamState, step_sizes
from transcf.kernels.mixture import ScoreConfig
from transcf.models.factors import constrain_norms
from transcf.models.mixture.batches import users_of
from transcf.models.mixture.training import MixtureTraining
from transcf.models.training import EpochStats


class MixtureVectors(NamedTuple):
    """Trained arrays, or gradients by them: a, b, p and c, one row each."""

    users: Array
    items: Array
    history: Array
    bias: Array


def place_weights(kernel: ScoreConfig, length: int) -> Array:
    """How much event k of a history counts for its target i, (length, length) by i and k."""
    targets, events = np.indices((length, length))
    weights: Array = np.where(
        events > targets,
        kernel.future[np.abs(events - targets)],
        kernel.past[np.abs(events - targets)],
    ).astype(np.float64)
    np.fill_diagonal(weights, 0)
    return weights


def add_gradient(
    kernel: ScoreConfig, points: MixtureVectors, user: int, own: Array, weights: Array,
    active: Array, into: MixtureVectors,
) -> float:  # fmt: skip
    """Add the gradient of a user's loss; returns the loss.

    Args:
        kernel: The numbers of the score.
        points: What is learned.
        user: Row of the user.
        own: Item rows of the history, oldest first, (length,).
        weights: How much events count as targets, (length,).
        active: Rows of all items to compare with; own ones are left out.
        into: As `points`, changed in place; p is added to b by the caller where they are tied.
    """
    tau, beta = kernel.tau, kernel.beta
    items = np.concatenate([own, np.setdiff1d(active, own)])
    a, b, p = points.users[user], points.items[items], points.history[own]
    near = cdist(p, b, "sqeuclidean")
    home = ((a - b) ** 2).sum(axis=1)
    parts = np.exp(points.bias[items] - tau * near - beta * home)
    by_place, n = place_weights(kernel, len(own)), len(own)
    known = (by_place * parts[:, :n].T).sum(axis=1)
    rest = by_place @ parts[:, n:].sum(axis=1)
    has_rest = rest > 0  # the history has another item
    weights, known, rest = (np.where(has_rest, of, 1.0) for of in (weights * has_rest, known, rest))
    whole = known + rest
    by_known, by_rest = weights / whole - weights / known, weights / whole
    by_part = np.empty_like(parts)
    by_part[:, :n] = (by_place * (by_known * has_rest)[:, None]).T
    by_part[:, n:] = (by_place.T @ (by_rest * has_rest))[:, None]
    slopes = by_part * parts
    by_event, by_item = slopes.sum(axis=1)[:, None], slopes.sum(axis=0)[:, None]
    into.users[user] -= 2 * beta * (by_item * (a - b)).sum(axis=0)
    into.history[own] -= 2 * tau * (by_event * p - slopes @ b)
    into.items[items] += 2 * tau * (slopes.T @ p - by_item * b) + 2 * beta * by_item * (a - b)
    into.bias[items] += by_item[:, 0]
    return float((weights * has_rest * (np.log(whole) - np.log(known))).sum())


class ExactMixtureTraining(MixtureTraining):
    """Trains the mixture with exact gradients; slow, simple, certain."""

    def run_epoch(self, number: int) -> EpochStats:
        """Let every event be a target once, against everything."""
        log, settings = self._sampler.log, self._settings
        plan = self._sampler.deal(settings.random_state, number)
        moving = [AdamState(*(part.astype(np.float64) for part in each)) for each in self._points]
        if settings.tie_item_vectors:
            moving[2] = moving[1]
        batches, loss = plan.cuts.shape[1] - 1, 0.0
        for place in range(batches):
            points = MixtureVectors(*(each.values for each in moving))
            slopes = MixtureVectors(*(np.zeros_like(values) for values in points))
            users = users_of(plan, place)
            events = [slice(*log.indptr[user : user + 2]) for user in users]
            for user, own in zip(users, events, strict=True):
                loss += add_gradient(
                    self._kernel, points, user, log.items[own], log.weights[own], log.active, slopes
                )
            seen = np.unique(np.concatenate([log.items[:0], *(log.items[own] for own in events)]))
            self._steps += 1
            rate = np.array([settings.rate_at(number + place / batches)])
            self._step(moving, slopes, users, seen, float(step_sizes(rate, self._steps)[0]))
        for into, each in zip(self._points, moving, strict=True):
            for part, exact in zip(into, each, strict=True):
                part[:] = exact
        return self._stats(loss)

    def _step(
        self,
        moving: list[AdamState],
        slopes: MixtureVectors,
        users: Array,
        seen: Array,
        size: float,
    ) -> None:
        """Move the users of a batch, all active items, and what histories hold."""
        active = self._sampler.log.active
        if self._settings.tie_item_vectors:
            slopes.items[:] += slopes.history
        else:
            _move(moving[2], seen, slopes.history, size)
        _move(moving[0], users, slopes.users, self._settings.user_lr_multiplier * size)
        _move(moving[1], active, slopes.items, size)
        if self._settings.item_bias:
            _move(moving[3], active, slopes.bias, size, bounded=False)


def _move(moving: AdamState, rows: Array, slopes: Array, size: float, bounded: bool = True) -> None:
    """Adam's step for some rows, which are then brought into the ball if they are `bounded`."""
    slope = slopes[rows]
    moving.means[rows] = FIRST * moving.means[rows] + (1 - FIRST) * slope
    moving.squares[rows] = SECOND * moving.squares[rows] + (1 - SECOND) * slope**2
    moved = moving.values[rows] - size * moving.means[rows] / (
        np.sqrt(moving.squares[rows]) + EPSILON
    )
    if bounded:
        constrain_norms(moved, "norm")
    moving.values[rows] = moved
