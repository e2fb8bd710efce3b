"""Sums over histories from a table of what each past item gives each item.

Where somebody stands is a factor that all terms of a score share, so that terms depend on two items
alone: exp(-tau |p_k - b_i|^2). For many people it is less work to make each of them once.
"""

from functools import partial
from typing import NamedTuple

import numpy as np

from transcf.threads import one_blas_thread, share

from . import Array, compiled
from .exponentials import exp_lanes, log_lanes
from .lanes import LANES, fill, load, store

#: Rows of the table that are made together; people and columns that are summed together.
_ROWS, _PEOPLE, _COLUMNS = 256, 128, 512


def make_table(history: Array, items: Array, tau: float) -> Array:
    """Return exp(-tau |p_k - b_i|^2) for all rows and columns.

    Args:
        history: p, (n_rows, width) float32.
        items: b, (n_columns, width) float32; n_columns is a multiple of 16.
        tau: Such that no exponent is below -80, where terms would vanish.

    Returns:
        (n_rows, n_columns) float32.
    """
    table = np.empty((len(history), len(items)), np.float32)
    own, other = (
        (-tau * np.square(rows, dtype=np.float64).sum(axis=1)).astype(np.float32)
        for rows in (history, items)
    )
    scaled = np.float32(2 * tau) * history
    with one_blas_thread():
        blocks = -(-len(history) // _ROWS)
        share(blocks, partial(_fill_table, scaled, items, own, other, table))
    return table


@compiled
def _fill_table(
    scaled: Array, items: Array, own: Array, other: Array, table: Array, first: int, end: int
) -> None:
    """Make the blocks of rows first..end-1."""
    for start in range(first * _ROWS, min(end * _ROWS, len(table)), _ROWS):
        last = min(start + _ROWS, len(table))
        rows = table[start:last]
        np.dot(scaled[start:last], items.T, rows)
        flat, size = rows.reshape(-1), table.shape[1]
        for r in range(last - start):
            offset = fill(own[start + r])
            for i in range(0, size, LANES):
                at = r * size + i
                store(flat, at, exp_lanes(load(flat, at) + load(other, i) + offset))


class Homes(NamedTuple):
    """What people's own points say: a score is 2 beta a . b_i + offset + height_i and the sum.

    Attributes:
        points: 2 beta a, (n, width) float32.
        offsets: -beta |a|^2, (n,) float32.
        items: b, (n_columns, width) float32; n_columns is a multiple of 16.
        heights: c - beta |b|^2, (n_columns,) float32.
    """

    points: Array
    offsets: Array
    items: Array
    heights: Array


def sum_table(
    starts: Array, places: Array, weights: Array, table: Array, homes: Homes, n_items: int
) -> Array:
    """Score all items for people: logarithms of weighted sums of rows of a table, and their homes.

    Args:
        starts: Where each person's rows start, (n + 1,) int64.
        places: Rows of the table, (n_events,) int32.
        weights: How much they count, (n_events,) float32.
        table: (n_rows, n_columns) float32.
        homes: What their own points say.
        n_items: How many columns are items.

    Returns:
        (n, n_items) float32; NaN for somebody without rows.
    """
    scores = np.empty((len(starts) - 1, n_items), np.float32)
    with one_blas_thread():
        work = partial(_sum_table, starts, places, weights, table, homes, scores)
        share(-(-len(scores) // _PEOPLE), work)
    return scores


@compiled
def _sum_table(
    starts: Array, places: Array, weights: Array, table: Array, homes: Homes, scores: Array,
    first: int, end: int,
) -> None:  # fmt: skip
    """Do it for some groups of people: a stretch of columns after the other, which stay near."""
    n_items, size = scores.shape[1], table.shape[1]
    flat, total = table.reshape(-1), np.empty(_COLUMNS, np.float32)
    memory = np.empty(_PEOPLE * _COLUMNS, np.float32)
    for left in range(0, size, _COLUMNS):
        columns = min(_COLUMNS, size - left)
        for begin in range(first * _PEOPLE, min(end * _PEOPLE, len(scores)), _PEOPLE):
            stop = min(begin + _PEOPLE, len(scores))
            tile = memory[: (stop - begin) * columns]
            items = homes.items[left : left + columns]
            np.dot(homes.points[begin:stop], items.T, tile.reshape(stop - begin, columns))
            for n in range(begin, stop):
                total[:columns] = 0
                for k in range(starts[n], starts[n + 1]):
                    by, at = fill(weights[k]), places[k] * size + left
                    for i in range(0, columns, LANES):
                        store(total, i, load(total, i) + by * load(flat, at + i))
                own, offset = (n - begin) * columns, fill(homes.offsets[n])
                if starts[n] == starts[n + 1]:
                    offset = fill(np.float32(np.nan))
                for i in range(0, columns, LANES):
                    home = load(tile, own + i) + load(homes.heights, left + i) + offset
                    store(tile, own + i, home + log_lanes(load(total, i)))
                for i in range(min(columns, n_items - left)):
                    scores[n, left + i] = tile[own + i]
