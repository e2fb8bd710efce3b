"""Elastic nets on binary columns: each item from the others, with weights that are not negative.

For the column y of one item and the columns X of the others, coordinate descent finds the w >= 0
that minimise `|y - X w|^2 / 2 + l1 sum(w) + l2 |w|^2 / 2`. Columns are lists of users, and only the
residual y - X w is kept: a coordinate costs as much as its item has users, and nothing of the size
items x items is ever held.

With w >= 0 and columns of ones every product X_k . (y - X w) is at most X_k . y, the number of
users that both items share (or the sum of what the target is for them). So an item that shares no
more than l1 with the target has no weight, and is left out from the start.
"""

import numpy as np

from . import Array
from .decorators import inlined, inner, shared

#: Shares of the work: neighbouring targets go to different ones, which makes them alike.
SLOTS = 64


@inner
def _candidates(
    target: int, by_item: tuple[Array, Array], by_user: tuple[Array, Array], values: Array,
    l1: float, shared: Array, found: Array,
) -> int:  # fmt: skip
    """List the items that may have a weight in `found`; returns how many.

    `shared`, (n_items,), is all zeros before and after.
    """
    item_indptr, item_users = by_item
    user_indptr, user_items = by_user
    seen = 0
    for entry in range(item_indptr[target], item_indptr[target + 1]):
        user, value = item_users[entry], values[entry] if len(values) > 0 else 1.0
        for place in range(user_indptr[user], user_indptr[user + 1]):
            other = user_items[place]
            if shared[other] == 0:
                found[seen] = other
                seen += 1
            shared[other] += value
    kept = 0
    for n in range(seen):
        other = found[n]
        if other != target and shared[other] > l1:
            found[kept] = other
            kept += 1
        shared[other] = 0
    return kept


@inlined
def _step(users: Array, residual: Array, weight: float, l1: float, l2: float) -> float:
    """Move one weight to its best value, and the residual with it; returns the new weight."""
    product = 0.0
    for user in users:
        product += residual[user]
    best = max(0.0, (product + len(users) * weight - l1) / (len(users) + l2))
    if best != weight:
        for user in users:
            residual[user] += weight - best
    return best


@inner
def _sweep(
    items: Array, by_item: tuple[Array, Array], l1: float, l2: float,
    residual: Array, weights: Array, only_positive: bool,
) -> float:  # fmt: skip
    """Take a step on every listed item (or those with a weight); returns the largest change."""
    indptr, users = by_item
    largest = 0.0
    for item in items:
        before = weights[item]
        if only_positive and before == 0.0:
            continue
        own = users[indptr[item] : indptr[item + 1]]
        weights[item] = _step(own, residual, before, l1, l2)
        largest = max(largest, abs(weights[item] - before))
    return largest


@shared(lambda *_: SLOTS)
def elastic_weights(
    first: int, last: int, by_item: tuple[Array, Array], by_user: tuple[Array, Array],
    values: Array, l1: float, l2: float, tolerance: float, most_sweeps: int, out: Array,
    done: Array, first_slot: int, end_slot: int,
) -> None:  # fmt: skip
    """Find the weights of all items for the targets first..last-1.

    `by_item` has the users of items, CSR: (n_items + 1,) int64, (nnz,) int32; `by_user` the items
    of users. `values` say what a target is for each of its users, in the order of `by_item`, all
    above 0; they are empty for ones. A target is `done`, (last - first,), when a sweep changes no
    weight by more than `tolerance`, and left as it is after `most_sweeps`. Weights are written to
    `out`, (last - first, n_items).
    """
    n_items, n_users = len(by_item[0]) - 1, len(by_user[0]) - 1
    residual, weights = np.zeros(n_users), np.zeros(n_items)
    shared, found = np.zeros(n_items), np.empty(n_items, np.int32)
    for slot in range(first_slot, end_slot):
        for target in range(first + slot, last, SLOTS):
            items = found[: _candidates(target, by_item, by_user, values, l1, shared, found)]
            residual[:] = 0.0
            for entry in range(by_item[0][target], by_item[0][target + 1]):
                residual[by_item[1][entry]] = values[entry] if len(values) > 0 else 1.0
            weights[items] = 0.0
            sweeps = 0
            while sweeps < most_sweeps and not done[target - first]:
                done[target - first] = (
                    _sweep(items, by_item, l1, l2, residual, weights, False) <= tolerance
                )
                sweeps += 1
                while (
                    sweeps < most_sweeps
                    and _sweep(items, by_item, l1, l2, residual, weights, True) > tolerance
                ):
                    sweeps += 1
            out[target - first] = 0.0
            for item in items:
                out[target - first, item] = weights[item]
