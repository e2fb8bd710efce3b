"""Neighbourhoods: the mean item of a user, the mean user of an item, and the way back.

While training, vectors live in flat arrays of packed rows: a user's row is [a | q], an item's row
is [b | n | m], where m collects the steps that the item's neighbourhood asks of the item's users.
Every sum is owned by one row and runs in the order of the data, so results never depend on threads.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np

from transcf.parallel import parallel_for

from . import Array
from .decorators import compiled, inlined, shared
from .rows import add_scaled, bring_into_ball, clear, prefetch_row
from .sampling import Strata

AHEAD = 8
#: Rows or entries that are not worth a thread of their own.
FEW = 256


def row_means(indptr: Array, indices: Array, matrix: Array) -> Array:
    """The mean of the listed rows of `matrix` for every row of a CSR pattern: (n_rows, dim).

    It is zero where a row lists nothing.
    """
    means = np.zeros((len(indptr) - 1, matrix.shape[1]), matrix.dtype)
    _share_rows(indptr, partial(_row_means, indptr, indices, matrix, means))
    return means


@compiled
def _row_means(
    indptr: Array, indices: Array, matrix: Array, means: Array, first: int, end: int
) -> None:
    for row in range(first, end):
        for position in range(indptr[row], indptr[row + 1]):
            for k in range(matrix.shape[1]):
                means[row, k] += matrix[indices[position], k]
        for k in range(matrix.shape[1]):
            means[row, k] /= max(1, indptr[row + 1] - indptr[row])


def _share_rows(indptr: Array, work: Callable[[int, int], None]) -> None:
    """Share the rows of a CSR pattern, cut where all threads have about as many entries."""
    n_rows, n_entries = len(indptr) - 1, int(indptr[-1])

    def between(first: int, end: int) -> None:
        begin, stop = np.searchsorted(indptr[:-1], (first, end))
        work(int(begin), n_rows if end == n_entries else int(stop))

    parallel_for(n_entries, between, least=FEW)


class ItemPlacement(NamedTuple):
    """Items by user, and their places in block order."""

    indptr: Array  # where the items of users start, (n_users + 1,) int64
    indices: Array  # their rows, (nnz,) int32
    places: Array  # of all items in block order, (n_items,) int32


@inlined
def _place(placement: ItemPlacement, position: int) -> int:
    """The place of an interaction's item; behind the last there is the last."""
    return placement.places[placement.indices[min(position, len(placement.indices) - 1)]]


@shared(lambda users, items, dim, placement, *_: placement.indptr, share=_share_rows)
def average_items(
    users: Array, items: Array, dim: int, placement: ItemPlacement, user_share: Array, first: int,
    end: int,
) -> None:  # fmt: skip
    """q_u = mean of b_i over the items i of u; `user_share` is 1 / |N_u|, (n_users,)."""
    indptr = placement.indptr
    for user in range(first, end):
        q = 2 * dim * user + dim
        clear(users, q, dim)
        for position in range(indptr[user], indptr[user + 1]):
            prefetch_row(items, 3 * dim * _place(placement, position + AHEAD), dim)
            add_scaled(
                users, q, items, 3 * dim * _place(placement, position), dim, user_share[user]
            )


@shared(lambda users, items, dim, placement, *_: placement.indptr, share=_share_rows)
def push_to_users(
    users: Array, items: Array, dim: int, placement: ItemPlacement, item_share: Array, power: int,
    first: int, end: int,
) -> None:  # fmt: skip
    """a_u -= sum of m_i / |N_i| over the items i of u: the way back through n_i; a_u is bounded.

    `item_share` is 1 / |N_i| in block order, (n_active,), and `power` that of `bring_into_ball`.
    """
    indptr = placement.indptr
    for user in range(first, end):
        a = 2 * dim * user
        for position in range(indptr[user], indptr[user + 1]):
            prefetch_row(items, (3 * _place(placement, position + AHEAD) + 2) * dim, dim)
            place = _place(placement, position)
            add_scaled(users, a, items, (3 * place + 2) * dim, dim, -item_share[place])
        bring_into_ball(users, a, dim, power)


def average_users(
    users: Array, items: Array, dim: int, strata: Strata, item_share: Array,
    blocks: range | None = None,
) -> None:  # fmt: skip
    """n_i += a_u / |N_i| over the users u of i, and m_i = 0: the mean, where n_i was 0.

    It goes block by block (those given, or all), because a block's rows fit the cache while the
    users stream by. `item_share` is 1 / |N_i| in block order, (n_active,).
    """
    blocks = range(len(strata.starts) - 1) if blocks is None else blocks

    def work(first: int, end: int) -> None:
        _average_users(
            users, items, dim, strata, item_share, blocks.start + first, blocks.start + end
        )

    parallel_for(len(blocks), work)


@compiled
def _average_users(
    users: Array, items: Array, dim: int, strata: Strata, item_share: Array,
    first_block: int, end_block: int,
) -> None:  # fmt: skip
    groups, starts, visits, visitor, first, slots, _ = strata
    n_blocks = len(starts) - 1
    for b in range(first_block, end_block):
        for place in range(starts[b], starts[b + 1]):
            clear(items, (3 * place + 2) * dim, dim)
        for g in range(len(groups) - 1):
            stratum = g * n_blocks + b
            for visit in range(visits[stratum], visits[stratum + 1]):
                ahead = visitor[min(visit + AHEAD, visits[stratum + 1] - 1)]
                prefetch_row(users, 2 * dim * ahead, dim)
                for entry in range(first[visit], first[visit + 1]):
                    place = starts[b] + slots[entry]
                    n, a = (3 * place + 1) * dim, 2 * dim * visitor[visit]
                    add_scaled(items, n, users, a, dim, item_share[place])


def bound_rows(matrix: Array, power: float) -> Array:
    """Divide rows longer than 1 by a power of their norm, in place.

    Power 1 brings a row onto the unit sphere, 2 is the paper's formula, and 0 leaves it. Returns
    the squared norms before, (n_rows,): not finite where a row diverged.
    """
    norms = np.empty(len(matrix), matrix.dtype)
    parallel_for(len(matrix), partial(_bound_rows, matrix, power, norms), least=FEW)
    return norms


@compiled
def _bound_rows(matrix: Array, power: float, norms: Array, first: int, end: int) -> None:
    for row in range(first, end):
        total = matrix[row, 0] * matrix[row, 0]
        for k in range(1, matrix.shape[1]):
            total += matrix[row, k] * matrix[row, k]
        norms[row] = total
        if total > 1:
            length = total ** (power / 2)
            for k in range(matrix.shape[1]):
                matrix[row, k] /= length
