"""AoBPR's draws: negatives from the top of rankings by single factors."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numba.extending import overload

from transcf.parallel import parallel_for

from . import Array
from .decorators import INLINED, Function, compiled, inlined
from .rng import advance, mix, uniform
from .rounds import Kinds, PackedRows
from .sampling import Draws, Visit, draw_own

_MAGNITUDE, _SLOT = 0x7FFFFFFF, 0xFFFFFFFF


class RankedRates(NamedTuple):
    """AoBPR: the rates of BPR, and how ranks fall off: by e with every `rank_share` of the items.

    `rank_reach` is 1 - exp(-1 / rank_share): the probability that a draw of an unbounded geometric
    distribution is within the ranking.
    """

    learning_rate: np.floating[Any]
    keep: np.floating[Any]
    bias_rate: np.floating[Any]
    bias_keep: np.floating[Any]
    rank_share: float
    rank_reach: float


class Rankings(NamedTuple):
    """The slots of every block by each factor, smallest first, and how much the factors matter.

    Attributes:
        slots: (n_factors, n_items) int32, blocks one after the other.
        importance: spread of each factor over the items, (n_factors,).
    """

    slots: Array
    importance: Array


_draws = Kinds()


def draws_of(*kinds: type) -> Callable[[Function], Function]:
    """Let a function draw for rates of these classes; its arguments are those of `draw`.

    It returns the state, one of the visit's items and a negative (two slots).
    """
    return _draws.register(*kinds)


def draw(
    rates: Any, rows: PackedRows[Any], dim: int, draws: Draws, visit: Visit, state: np.uint64
) -> Any:
    """What `draws_of` has found for the rates; only for kernels."""


@overload(draw, jit_options=INLINED, strict=False)
def _choose_draw(rates: Any, rows: Any, dim: Any, draws: Any, visit: Any, state: Any) -> Any:
    return _draws.find(rates)


@draws_of(RankedRates)
def _draw_by_rank(
    rates: RankedRates, rows: PackedRows[Rankings], dim: int, draws: Draws, visit: Visit,
    state: np.uint64,
) -> tuple[np.uint64, int, int]:  # fmt: skip
    state = advance(state)
    positive = draw_own(mix(state), draws, visit)
    state, negative = draw_ranked(rates, rows, dim, draws, visit, state)
    return state, positive, negative


@inlined
def draw_ranked(
    rates: RankedRates, rows: PackedRows[Rankings], dim: int, draws: Draws, visit: Visit,
    state: np.uint64,
) -> tuple[np.uint64, int]:  # fmt: skip
    """A negative that the user's vector ranks high: by one factor, drawn by its importance.

    The rank r within the block has p(r) ~ exp(-r / (rank_share * size)); where the user has that
    item, the next one in the ranking is taken.
    """
    users, marks, size = rows.users, draws.marks, visit.size
    rankings, weights = rows.extra
    u, total = dim * visit.user, weights.dtype.type(0)
    for f in range(len(weights)):
        total += abs(users[u + f]) * weights[f]
    state = advance(state)
    rest = weights.dtype.type(uniform(mix(state))) * total
    factor = 0
    while factor < len(weights) - 1:
        rest -= abs(users[u + factor]) * weights[factor]
        if rest < 0:
            break
        factor += 1
    state = advance(state)
    drawn = -rates.rank_share * size * math.log1p(-uniform(mix(state)) * rates.rank_reach)
    rank = min(int(drawn), size - 1)
    is_liked = users[u + factor] > 0
    slot = rankings[factor, visit.start + (size - 1 - rank if is_liked else rank)]
    while marks[slot] == visit.stamp:
        rank = rank + 1 if rank < size - 1 else 0
        slot = rankings[factor, visit.start + (size - 1 - rank if is_liked else rank)]
    return state, slot


def rank_by_factors(items: Array, dim: int, starts: Array, rankings: Array) -> None:
    """Order the slots of every block by each factor, smallest first.

    Args:
        items: item rows in block order, flat.
        dim: length of a row.
        starts: where the blocks begin, (n_blocks + 1,) int64.
        rankings: out, (n_factors, n_items) int32.
    """
    parallel_for(len(rankings), partial(_rank_by_factors, items, dim, starts, rankings))


@compiled
def _rank_by_factors(
    items: Array, dim: int, starts: Array, rankings: Array, first: int, end: int
) -> None:
    """The factors first..end-1 of `rank_by_factors`."""
    for f in range(first, end):
        for b in range(len(starts) - 1):
            begin, size = starts[b], starts[b + 1] - starts[b]
            keys = np.empty(size, np.int64)
            for slot in range(size):
                # The bits of a float, as an integer of the same order, before the slot: sorting
                # whole numbers is several times faster than sorting by reference.
                bits = np.int64(np.float32(items[dim * (begin + slot) + f]).view(np.int32))
                keys[slot] = ((bits ^ ((bits >> 31) & _MAGNITUDE)) << 32) | slot
            keys.sort()
            for rank in range(size):
                rankings[f, begin + rank] = keys[rank] & _SLOT
