"""Element-wise least squares as interactions arrive: only the two vectors at hand change."""

from typing import NamedTuple

import numpy as np

from . import Array, compiled, inlined
from .als_elements import Room, descend, gather, make_room
from .rows import add_scaled


class Arrivals(NamedTuple):
    """Interactions by row, known and new ones.

    Attributes:
        indptr: CSR, (n_rows + 1,) int64.
        indices: (nnz,) int32.
        turns: when each arrives: the number of its event, -1 for those known before, (nnz,).
        targets: how much each counts, (nnz,).
        gram: the weighted sum of y y' over the rows that are known, (width * width,), in and out.
        known: which rows are part of `gram`, (n_rows,) bool, in and out.
    """

    indptr: Array
    indices: Array
    turns: Array
    targets: Array
    gram: Array
    known: Array


@compiled
def learn_online(
    event_users: Array, event_items: Array, of_users: Arrivals, of_items: Arrivals,
    missing: Array, ridge: float, steps: int, width: int, dim: int, users: Array, items: Array,
) -> None:  # fmt: skip
    """Take in new interactions, one after the other.

    Args:
        event_users: user row of each new interaction, (n_events,).
        event_items: item row of each, (n_events,).
        of_users: interactions by user.
        of_items: interactions by item.
        missing: weight of an item for those who do not have it, (n_items,).
        ridge: weight of |x|^2.
        steps: how often the user and then the item is updated.
        width: length of one row.
        dim: numbers of a row that are not padding.
        users: user vectors, flat, in and out.
        items: item vectors, flat, in and out.
    """
    one = users.dtype.type(1)
    longest = max(np.diff(of_users.indptr).max(), np.diff(of_items.indptr).max())
    room = make_room(longest, width, users)
    active = np.empty(longest, np.int32)
    for turn in range(len(event_users)):
        user, item = event_users[turn], event_items[turn]
        x, y = users[user * width : (user + 1) * width], items[item * width : (item + 1) * width]
        _add_unknown(of_users, user, x, one)
        _add_unknown(of_items, item, y, missing[item])
        for _ in range(steps):
            n = _arrived(of_users, user, turn, active, room)
            for j in range(n):
                room.weights[j] = room.targets[j] - missing[active[j]]
            length = gather(active[:n], items, width, dim, room)
            _add_outer(of_users.gram, x, -one)
            descend(x, dim, length, of_items.gram, one, ridge, room)
            _add_outer(of_users.gram, x, one)
            n = _arrived(of_items, item, turn, active, room)
            for j in range(n):
                room.weights[j] = room.targets[j] - missing[item]
            length = gather(active[:n], users, width, dim, room)
            _add_outer(of_items.gram, y, -missing[item])
            descend(y, dim, length, of_users.gram, missing[item], ridge, room)
            _add_outer(of_items.gram, y, missing[item])


@inlined
def _arrived(side: Arrivals, row: int, turn: int, active: Array, room: Room) -> int:
    """List the row's interactions that have arrived, with their targets; returns their number."""
    n = 0
    for entry in range(side.indptr[row], side.indptr[row + 1]):
        if side.turns[entry] <= turn:
            active[n] = side.indices[entry]
            room.targets[n] = side.targets[entry]
            n += 1
    return n


@inlined
def _add_unknown(side: Arrivals, row: int, vector: Array, weight: float) -> None:
    """Let a new row take part in the Gram matrix from now on."""
    if not side.known[row]:
        side.known[row] = True
        _add_outer(side.gram, vector, weight)


@inlined
def _add_outer(gram: Array, vector: Array, weight: float) -> None:
    """Do gram += weight * vector vector'."""
    width = len(vector)
    for k in range(width):
        add_scaled(gram, k * width, vector, 0, width, weight * vector[k])
