"""Sparse terms between past items and scored items, added inside the sums of the mixture.

The score of an item is c_i - beta |a - b_i|^2 + log sum_k w_k (exp(-tau |p_k - b_i|^2) + m_ki) with
a sparse matrix m. Most items of a user have none of its entries: their scores are computed without
it, and those of the others are corrected by log(exp(score) + exp(own_i) sum_k w_k m_ki).
"""

import math
from typing import NamedTuple

import numpy as np

from . import Array
from .decorators import inlined


class SparseTerms(NamedTuple):
    """The matrix m by past items; arrays are read-only.

    Attributes:
        starts: Where the entries of each past item start, (n_items + 1,) int64.
        items: Scored items, ascending for each past item, (n_entries,) int32.
        values: m_ki, above 0, (n_entries,) float32.
    """

    starts: Array
    items: Array
    values: Array


@inlined
def place_of(terms: SparseTerms, past: int, item: int) -> int:
    """Return the place of the first entry of a past item that is not before an item."""
    low, high = terms.starts[past], terms.starts[past + 1]
    while low < high:
        middle = (low + high) // 2
        if terms.items[middle] < item:
            low = middle + 1
        else:
            high = middle
    return low


@inlined
def log_with_term(near: float, terms: SparseTerms, past: int, item: int) -> float:
    """Return log(exp(near) + m_ki)."""
    place = place_of(terms, past, item)
    if place == terms.starts[past + 1] or terms.items[place] != item:
        return near
    return log_sum_of_two(near, math.log(np.float64(terms.values[place])))


@inlined
def log_sum_of_two(one: float, two: float) -> float:
    """Return log(exp(one) + exp(two)); `two` is finite or -inf, `one` is finite."""
    high = max(one, two)
    return high + math.log(math.exp(one - high) + math.exp(two - high))
