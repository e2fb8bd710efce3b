"""Online updates of a model of element-wise least squares with new interactions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from transcf.data.csr import Csr
from transcf.data.interactions import Interactions
from transcf.kernels import Array
from transcf.kernels.als_elements import Arrivals, learn_online
from transcf.kernels.rows import padded, padded_width, unpadded
from transcf.models.training_data import Growth
from transcf.models.vectors import weighted_gram


@dataclass(frozen=True)
class OnlineState:
    """Arrays that new interactions change.

    Attributes:
        users: (n_users, dim).
        items: (n_items, dim).
        missing: Weight of each item for users without it, (n_items,).
        targets: Weight of each interaction, in the order of the seen items, (nnz,).
    """

    users: Array
    items: Array
    missing: Array
    targets: Array


@dataclass(frozen=True)
class OnlineRule:
    """Parameters of the updates.

    Attributes:
        weight: Weight of a new interaction.
        steps: Updates of its user and its item.
        ridge: L2 weight.
        missing: Weight of a new item for users without it.
        start_scale: Standard deviation of the first vectors of new users and items.
        seed: Seed of these vectors.
    """

    weight: float
    steps: int
    ridge: float
    missing: float
    start_scale: float
    seed: list[int]


def learn_log(
    learned: OnlineState, seen: Csr, growth: Growth, log: Interactions, rule: OnlineRule
) -> OnlineState:
    """Learn from the events of a log, oldest first (in the order of the log without times).

    Args:
        learned: The arrays before.
        seen: The interactions before.
        growth: Ids and interactions with those of the log.
        log: The events; known interactions change nothing.
        rule: Parameters of the updates.

    Returns:
        The larger arrays; only vectors of users and items with new events have changed.
    """
    dtype, generator = learned.users.dtype, np.random.default_rng(rule.seed)
    old = growth.places(growth.old_users[seen.entry_rows], growth.old_items[seen.indices])
    targets = np.full(len(growth.known.seen.indices), rule.weight, dtype)
    targets[old] = learned.targets
    order, turns = _turns(growth, log, old)
    by_user, by_item = _both_ways(growth.known.seen, turns, targets)
    known_users = growth.of_users(seen.counts > 0)
    known_items = growth.of_items(np.bincount(seen.indices, minlength=seen.n_columns) > 0)
    new_users = (np.diff(by_user[0]) > 0) & ~known_users
    new_items = (np.diff(by_item[0]) > 0) & ~known_items
    missing = growth.of_items(learned.missing)
    missing[new_items] = rule.missing
    users = _started(growth.of_users(learned.users), new_users, rule.start_scale, generator)
    items = _started(growth.of_items(learned.items), new_items, rule.start_scale, generator)
    width, dim = padded_width(users.shape[1]), users.shape[1]
    flat_users, flat_items = padded(users), padded(items)
    user_gram = weighted_gram(flat_users, width, known_users.astype(dtype))
    item_gram = weighted_gram(flat_items, width, missing * known_items)
    learn_online(
        growth.event_users[order], growth.event_items[order],
        Arrivals(*by_user, user_gram, known_users), Arrivals(*by_item, item_gram, known_items),
        missing, dtype.type(rule.ridge), rule.steps, width, dim, flat_users, flat_items,
    )  # fmt: skip
    users, items = (unpadded(flat, width, dim) for flat in (flat_users, flat_items))
    return OnlineState(users, items, missing, targets)


def _turns(growth: Growth, log: Interactions, old: Array) -> tuple[Array, Array]:
    """Return the new events, oldest first, and the turn of each interaction, -1 for old ones."""
    turns = np.zeros(len(growth.known.seen.indices), np.int64)
    turns[old] = -1
    when = log.positions if log.timestamps is None else log.timestamps
    order = np.argsort(when, kind="stable")
    places = growth.places(growth.event_users[order], growth.event_items[order])
    is_new = turns[places] == 0
    turns[places[is_new]] = np.arange(np.count_nonzero(is_new))
    return order[is_new], turns


def _started(vectors: Array, new: Array, scale: float, generator: np.random.Generator) -> Array:
    """Draw vectors of new users or items."""
    vectors[new] = scale * generator.standard_normal((np.count_nonzero(new), vectors.shape[1]))
    return vectors


_Ways: TypeAlias = tuple[Array, Array, Array, Array]


def _both_ways(seen: Csr, turns: Array, targets: Array) -> tuple[_Ways, _Ways]:
    """Return interactions with their turns and targets, by user and by item."""
    order = np.argsort(seen.indices, kind="stable")
    indptr = np.zeros(seen.n_columns + 1, np.int64)
    np.cumsum(np.bincount(seen.indices, minlength=seen.n_columns), out=indptr[1:])
    by_item = (indptr, seen.entry_rows[order], turns[order], targets[order])
    return (seen.indptr, seen.indices, turns, targets), by_item
