"""Coordinate descent on every row's least squares: one number after the other, O(dim^2) per row.

The slope by one number needs s G x and the scores `y_j . x` of the row's neighbours, and both
follow each step at the cost of one row of G and one number of each neighbour. `learn_online` does
the same as interactions arrive: it changes the vectors of one user and one item.
"""

from typing import NamedTuple

import numpy as np

from . import Array
from .als import Side, pair_weights
from .decorators import compiled, inlined, shared
from .lanes import LANES, load, sum_lanes, zeros
from .rows import add_scaled, dot


class Room(NamedTuple):
    """Memory for the neighbours of one row, padded to whole lanes."""

    columns: Array  # their vectors, number by number, flat (dim, length)
    targets: Array  # w_j, how much the pair counts, (length,); zero in the padding
    weights: Array  # v_j, w_j minus the weight of the pair in G, (length,); zero in the padding
    scores: Array  # y_j . x, (length,)
    product: Array  # s G x, (width,)


@compiled
def make_room(longest: int, width: int, like: Array) -> Room:
    """Return memory for rows of at most `longest` neighbours."""
    length = (longest + LANES - 1) // LANES * LANES
    return Room(
        np.zeros(length * width, like.dtype),
        np.zeros(length, like.dtype),
        np.zeros(length, like.dtype),
        np.zeros(length, like.dtype),
        np.zeros(width, like.dtype),
    )


@shared(lambda side, *_: len(side.cuts) - 1)
def descend_rows(
    side: Side, others: Array, width: int, dim: int, gram: Array, vectors: Array, losses: Array,
    first: int, end: int,
) -> None:  # fmt: skip
    """Set each number of every row to its minimum, in turn; arguments as `conjugate_gradient`."""
    _, _, indptr, indices, shares, weights, other_weights, ridges, targets = side
    one = others.dtype.type(1)
    rows = side.rows[side.cuts[first] : side.cuts[end]]
    longest = 0
    for row in rows:
        longest = max(longest, indptr[row + 1] - indptr[row])
    room = make_room(longest, width, others)
    for row in rows:
        neighbors = indices[indptr[row] : indptr[row + 1]]
        for j in range(len(neighbors)):
            room.targets[j], room.weights[j] = pair_weights(
                targets, indptr[row] + j, weights[row], other_weights[neighbors[j]], one
            )
        length = gather(neighbors, others, width, dim, room)
        x = vectors[row * width : (row + 1) * width]
        losses[row] = descend(x, dim, length, gram, shares[row], ridges[row], room)


@inlined
def gather(neighbors: Array, others: Array, width: int, dim: int, room: Room) -> int:
    """Copy the neighbours' vectors and clear the padding; returns the padded length."""
    columns, targets, weights, _, _ = room
    length = (len(neighbors) + LANES - 1) // LANES * LANES
    for n in range(len(neighbors)):
        at = neighbors[n] * width
        for k in range(dim):
            columns[k * length + n] = others[at + k]
    for n in range(len(neighbors), length):
        targets[n] = weights[n] = 0
        for k in range(dim):
            columns[k * length + n] = 0
    return length


@inlined
def descend(
    x: Array, dim: int, length: int, gram: Array, share: float, ridge: float, room: Room
) -> float:
    """Set every number of x to its minimum, one after the other.

    Returns the row's part of the loss,
    `x' (share G + ridge I) x + sum_j w_j - 2 w_j score_j + v_j score_j^2`.
    """
    columns, targets, weights, scores, product = room
    width = len(x)
    product[:] = 0
    scores[:length] = 0
    for k in range(dim):
        add_scaled(product, 0, gram, k * width, width, share * x[k])
        add_scaled(scores, 0, columns, k * length, length, x[k])
    for k in range(dim):
        pull, curve = _slope(room, k * length, length)
        curve += share * gram[k * width + k] + ridge
        if curve > 0:
            step = (pull - product[k] - ridge * x[k]) / curve
            x[k] += step
            add_scaled(product, 0, gram, k * width, width, share * step)
            add_scaled(scores, 0, columns, k * length, length, step)
    loss = np.float64(dot(x, 0, product, 0, width) + ridge * dot(x, 0, x, 0, width))
    for j in range(length):
        loss += targets[j] - (targets[j] + targets[j] - weights[j] * scores[j]) * scores[j]
    return loss


@inlined
def _slope(room: Room, at: int, length: int) -> tuple[float, float]:
    """Sums of (w_j - v_j score_j) y_jk and of v_j y_jk^2."""
    columns, targets, weights, scores, product = room
    pull = zeros(load(product, 0))
    curve = pull
    for j in range(0, length, LANES):
        column, weight = load(columns, at + j), load(weights, j)
        pull = pull + (load(targets, j) - weight * load(scores, j)) * column
        curve = curve + weight * column * column
    return sum_lanes(pull), sum_lanes(curve)


class Arrivals(NamedTuple):
    """Interactions by row, known and new ones."""

    indptr: Array  # CSR, (n_rows + 1,) int64
    indices: Array  # (nnz,) int32
    turns: Array  # when each arrives: the number of its event, -1 for those known before, (nnz,)
    targets: Array  # how much each counts, (nnz,)
    #: The weighted sum of y y' over the rows that are known, (width * width,), in and out.
    gram: Array
    known: Array  # which rows are part of `gram`, (n_rows,) bool, in and out


@compiled
def learn_online(
    event_users: Array, event_items: Array, of_users: Arrivals, of_items: Arrivals,
    missing: Array, ridge: float, steps: int, width: int, dim: int, users: Array, items: Array,
) -> None:  # fmt: skip
    """Learn from new interactions, one after the other; changes the vectors of users and items.

    `event_users` and `event_items` are their rows, `of_users` and `of_items` all interactions.
    `missing` is the weight of an item for users without it, (n_items,), and `ridge` that of |x|^2.
    The user and then the item of an event is updated `steps` times.
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
