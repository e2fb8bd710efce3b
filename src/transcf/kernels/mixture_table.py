"""Sums over the histories of many users, from a table of terms by past item and scored item.

The position of a user is a common factor of all terms of a score, so the terms depend on two items
only: exp(-tau |p_k - b_i|^2). For many users it is cheaper to compute each term once. The table is
computed in strips of columns: each strip is computed, summed for all users, and overwritten by the
next one. Within a strip, sixteen columns of all past items are contiguous (one cache line each), so
that the columns stay in a cache while all users read them.
"""

from functools import partial
from typing import NamedTuple

import numpy as np

from transcf.parallel import one_blas_thread, parallel_for

from . import Array
from .decorators import compiled, inner
from .lanes import LANES, exp_lanes, fill, load, log_lanes, store, zeros

#: Columns of a strip, a multiple of the two groups of lanes that are summed together.
STRIP = 64
#: Past items whose terms are made together.
_ROWS = 256


class PastItems(NamedTuple):
    """Past items as terms need them.

    Attributes:
        points: 2 tau p, (n_past, width) float32.
        offsets: -tau |p|^2, (n_past,) float32; no exponent may be below -80, where terms vanish.
    """

    points: Array
    offsets: Array


class UserHistories(NamedTuple):
    """Histories of users, and the common offset of the scores of each user.

    Attributes:
        starts: First event of each user, (n + 1,) int64; every user has at least one.
        places: Past items, (n_events,) int32.
        weights: How much they count, (n_events,) float32.
        offsets: Added to all scores of the user, (n,) float32.
    """

    starts: Array
    places: Array
    weights: Array
    offsets: Array


class ScoredItems(NamedTuple):
    """Items to score, a multiple of `STRIP`; the last may be none.

    Attributes:
        points: b, (n, width) float32.
        offsets: -tau |b|^2, (n,) float32.
        item_offsets: Added to all scores of the item, (n,) float32.
    """

    points: Array
    offsets: Array
    item_offsets: Array


def add_log_sums(
    histories: UserHistories, past: PastItems, items: ScoredItems, tile: Array
) -> None:
    """Add log-sums of weighted terms, and the offsets of users and items, to a tile in place."""
    with one_blas_thread():
        work = partial(_add_strips, histories, past, items, tile)
        parallel_for(-(-tile.shape[1] // STRIP), work)


@compiled
def _add_strips(
    histories: UserHistories, past: PastItems, items: ScoredItems, tile: Array, first: int, end: int
) -> None:
    """Do it for the strips first..end-1."""
    table = np.empty(len(past.points) * STRIP, np.float32)
    product = np.empty(_ROWS * STRIP, np.float32)
    for strip in range(first, end):
        _make_strip(past, items, strip * STRIP, product, table)
        _sum_strip(histories, len(past.points), table, items.item_offsets, strip * STRIP, tile)


@inner
def _make_strip(
    past: PastItems, items: ScoredItems, left: int, product: Array, table: Array
) -> None:
    """Compute the terms of a strip of columns, sixteen of which are contiguous."""
    n_past = len(past.points)
    columns = items.points[left : left + STRIP].T
    for start in range(0, n_past, _ROWS):
        rows = min(_ROWS, n_past - start)
        flat = product[: rows * STRIP]
        np.dot(past.points[start : start + rows], columns, flat.reshape(rows, STRIP))
        for i in range(0, STRIP, LANES):
            other, at = load(items.offsets, left + i), (i // LANES * n_past + start) * LANES
            for r in range(rows):
                exponents = load(flat, r * STRIP + i) + other + fill(past.offsets[start + r])
                store(table, at + r * LANES, exp_lanes(exponents))


@inner
def _sum_strip(
    histories: UserHistories, n_past: int, table: Array, item_offsets: Array, left: int, tile: Array
) -> None:
    """Sum the terms of all users, twice sixteen columns at a time."""
    flat, width, both = tile.reshape(-1), tile.shape[1], 2 * LANES
    edge = np.zeros(both, np.float32)
    for i in range(left, min(left + STRIP, width), both):
        first = (i - left) * n_past
        second, missing = first + n_past * LANES, max(0, i + both - width)
        high, higher = load(item_offsets, i), load(item_offsets, i + LANES)
        for n in range(len(histories.starts) - 1):
            one, two = zeros(high), zeros(high)
            for k in range(histories.starts[n], histories.starts[n + 1]):
                by, at = fill(histories.weights[k]), histories.places[k] * LANES
                one = one + by * load(table, first + at)
                two = two + by * load(table, second + at)
            own, at = fill(histories.offsets[n]), n * width + i
            one, two = log_lanes(one) + high + own, log_lanes(two) + higher + own
            if missing == 0:
                store(flat, at, load(flat, at) + one)
                store(flat, at + LANES, load(flat, at + LANES) + two)
                continue
            store(edge, 0, one)
            store(edge, LANES, two)
            for c in range(both - missing):
                flat[at + c] += edge[c]
