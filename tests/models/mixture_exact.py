"""The exact solver of the mixture: the formula to the letter, in plain numpy and float64.

Batches are those of the fast one, but targets are compared with all active items that the user
does not have, one user at a time. With the position a_i of target i, which is the user's vector or
the mean of the context, and A_ikj = exp(c_j - tau |p_k - b_j|^2 - beta |a_i - b_j|^2) and w_ik the
weight of event k for target i, the loss of i is log(N_i + R_i) - log N_i, where
N_i = sum_k w_ik A_iki and R_i = sum_k w_ik sum_j A_ikj over the items j that are not the
user's.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.spatial.distance import cdist

from transcf.kernels import Array
from transcf.kernels.mixture import ScoreConfig
from transcf.kernels.mixture_batches import EpochPlan
from transcf.kernels.mixture_context import REACH
from transcf.kernels.rows import EPSILON, FIRST, SECOND, AdamState, step_sizes
from transcf.models.factors import constrain_norms
from transcf.models.mixture.training import TINY, MixtureTraining
from transcf.models.training import EpochStats


def users_of(plan: EpochPlan, number: int) -> Array:
    """Return the rows of the users of a batch, (n,) int32."""
    shards = [slice(*cuts[number : number + 2]) for cuts in plan.cuts]
    return np.concatenate([plan.users[shard] for shard in shards])


class MixtureVectors(NamedTuple):
    """Trained arrays, or gradients by them: a, b, p and c, one row each."""

    users: Array
    items: Array
    history: Array
    bias: Array


def place_weights(config: ScoreConfig, length: int, *, is_context: bool = False) -> Array:
    """Return the weights w_ik of events k for targets i, (length, length) by i and k."""
    targets, events = np.indices((length, length))
    away = np.abs(events - targets)
    by_side = np.where(events > targets, config.future[away], config.past[away])
    weights: Array = by_side.astype(np.float64)
    np.fill_diagonal(weights, 0)
    return np.where(away <= REACH, weights, 0.0) if is_context else weights


def context_weights(config: ScoreConfig, length: int) -> Array:
    """Return the weights of events k in the position of targets i, by i and k; rows sum to 1."""
    targets, events = np.indices((length, length))
    away = np.abs(events - targets)
    weights = np.where(events > targets, config.future[1], 1.0) / np.maximum(away, 1)
    weights = np.where((away > 0) & (away <= REACH), weights, 0.0)
    shares: Array = weights / np.maximum(weights.sum(axis=1, keepdims=True), 1e-30)
    return shares


def add_gradient(
    config: ScoreConfig, params: MixtureVectors, user: int, own: Array, weights: Array,
    active: Array, into: MixtureVectors,
) -> float:  # fmt: skip
    """Add the gradient of a user's loss; returns the loss.

    `own` are the items of the history, oldest first, with their weights as targets, `active` the
    items to compare with. Without users in `params`, positions are means of contexts. The caller
    adds the gradients of p and b where they are tied.
    """
    tau, beta, n, is_context = config.tau, config.beta, len(own), not len(params.users)
    items = np.concatenate([own, np.setdiff1d(active, own)])
    b, p = params.items[items], params.history[own]
    by_place = place_weights(config, n, is_context=is_context)
    means = context_weights(config, n)
    a = means @ b[:n] if is_context else np.repeat(params.users[[user]], n, axis=0)
    near = np.exp(-tau * cdist(p, b, "sqeuclidean"))
    user_term = np.exp(params.bias[items] - beta * cdist(a, b, "sqeuclidean"))
    parts = user_term * (by_place @ near)
    known, rest = np.diagonal(parts), parts[:, n:].sum(axis=1)
    has_rest = rest > 0  # the history has another item
    weights, known, rest = (np.where(has_rest, of, 1.0) for of in (weights * has_rest, known, rest))
    whole = known + rest
    by_part = np.zeros_like(parts)
    by_part[:, n:] = (weights / whole * has_rest)[:, None]
    np.fill_diagonal(by_part, (weights / whole - weights / known) * has_rest)
    by_user_term, by_near = by_part * parts, near * (by_place.T @ (by_part * user_term))
    by_item = by_user_term.sum(axis=0)[:, None]
    by_position = -2 * beta * (by_user_term.sum(axis=1)[:, None] * a - by_user_term @ b)
    into.history[own] -= 2 * tau * (by_near.sum(axis=1)[:, None] * p - by_near @ b)
    into.items[items] += 2 * tau * (by_near.T @ p - by_item * b)
    into.items[items] += 2 * beta * (by_user_term.T @ a - by_item * b)
    into.bias[items] += by_item[:, 0]
    if is_context:
        into.items[own] += means.T @ by_position
    else:
        into.users[user] += by_position.sum(axis=0)
    return float((weights * has_rest * (np.log(whole) - np.log(known))).sum())


class ExactMixtureTraining(MixtureTraining):
    """Trains the mixture with exact gradients; the slow reference of `MixtureTraining`."""

    def run_epoch(self, number: int) -> EpochStats:
        """Let every event be a target once, compared with all active items."""
        log, settings = self._sampler.log, self._settings
        plan = self._sampler.deal(settings.random_state, number)
        moving = [AdamState(*(part.astype(np.float64) for part in each)) for each in self._params]
        if settings.tie_item_vectors:
            moving[2] = moving[1]
        batches, loss = plan.cuts.shape[1] - 1, 0.0
        for place in range(batches):
            params = MixtureVectors(*(each.values for each in moving))
            slopes = MixtureVectors(*(np.zeros_like(values) for values in params))
            users = users_of(plan, place)
            events = [slice(*log.indptr[user : user + 2]) for user in users]
            for user, own in zip(users, events, strict=True):
                loss += add_gradient(
                    self._config, params, user, log.items[own], log.weights[own], log.active, slopes
                )
            seen = np.unique(np.concatenate([log.items[:0], *(log.items[own] for own in events)]))
            self._steps += 1
            rate = np.array([settings.rate_at(number + place / batches)])
            self._step(moving, slopes, users, seen, float(step_sizes(rate, self._steps)[0]))
        for into, each in zip(self._params, moving, strict=True):
            for part, exact in zip(into, each, strict=True):
                part[:] = exact
        return EpochStats(loss / max(self._shards.weight, TINY), self._shards.samples)

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
        if self._settings.has_users:
            _move(moving[0], users, slopes.users, self._settings.user_lr_multiplier * size)
        _move(moving[1], active, slopes.items, size)
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
