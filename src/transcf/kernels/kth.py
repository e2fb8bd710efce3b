"""The k-th largest of a few numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba.extending import intrinsic

from transcf.kernels.decorators import inlined
from transcf.kernels.lanes import LANES, fill, load

Floats = npt.NDArray[np.float32]

#: Numbers whose ranks are counted at the same time; arrays have room for a multiple of it.
TOGETHER = 2 * LANES
#: Above so many numbers, comparing all with all takes longer than dividing them.
_COUNTED = 256

_LOWEST = np.float32(-np.inf)
_ZERO = np.float32(0)
_ONE = np.float32(1)


@inlined
def _find(values: Floats, count: int, place: int) -> Any:
    """The value at a place in sorted order, by Hoare's FIND; reorders the values.

    NumPy's partition is the same, but takes ten seconds to compile before a first recommendation.
    """
    low, high = 0, count - 1
    while low < high:
        left, right, pivot = low, high, values[(low + high) // 2]
        while left <= right:
            while values[left] < pivot:
                left += 1
            while values[right] > pivot:
                right -= 1
            if left <= right:
                values[left], values[right] = values[right], values[left]
                left, right = left + 1, right - 1
        if right < place < left:
            break
        low, high = (low, right) if place <= right else (left, high)
    return values[place]


@intrinsic  # type: ignore[untyped-decorator, unused-ignore]
def larger(typing: Any, left: Any, right: Any) -> Any:
    """The larger number of each pair of lanes."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.select(builder.fcmp_ordered(">", *args), *args)

    return left(left, right), generate


@intrinsic  # type: ignore[untyped-decorator, unused-ignore]
def _where_at_least(typing: Any, left: Any, right: Any, then: Any, otherwise: Any) -> Any:
    """Lanes of `then` where `left >= right`, of `otherwise` elsewhere."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.select(builder.fcmp_ordered(">=", *args[:2]), *args[2:])

    return then(left, right, then, otherwise), generate


@intrinsic  # type: ignore[untyped-decorator, unused-ignore]
def largest_lane(typing: Any, lanes: Any) -> Any:
    """The largest of sixteen numbers."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        index, rest, width = ir.IntType(32), args[0], LANES
        while width > 1:
            width //= 2
            halves = []
            for first in (0, width):
                mask = ir.Constant(ir.VectorType(index, width), [first + n for n in range(width)])
                halves.append(builder.shuffle_vector(rest, rest, mask))
            rest = builder.select(builder.fcmp_ordered(">", *halves), *halves)
        return builder.extract_element(rest, ir.Constant(index, 0))

    return lanes.dtype(lanes), generate


@inlined
def kth_largest(values: Floats, count: int, k: int, scratch: Floats) -> Any:
    """The k-th largest of the first `count` values; what is behind them may be overwritten.

    It is the largest value that at least k values reach. Counting that for 32 values at a time
    takes no branch that could be guessed wrong, which halves the time that an insertion into
    the k largest so far takes for the usual short lists.
    """
    if count > _COUNTED:
        for n in range(count):
            scratch[n] = values[n]
        return _find(scratch, count, count - k)
    for n in range(count, count + -count % TOGETHER):
        values[n] = _LOWEST
    none, one, wanted = fill(_ZERO), fill(_ONE), fill(np.float32(k))
    lowest = fill(_LOWEST)
    best = lowest
    for start in range(0, count, TOGETHER):
        a, b = load(values, start), load(values, start + LANES)
        reached_a, reached_b = none, none
        for n in range(count):
            value = fill(values[n])
            reached_a = reached_a + _where_at_least(value, a, one, none)
            reached_b = reached_b + _where_at_least(value, b, one, none)
        best = larger(_where_at_least(reached_a, wanted, a, lowest), best)
        best = larger(_where_at_least(reached_b, wanted, b, lowest), best)
    return largest_lane(best)
