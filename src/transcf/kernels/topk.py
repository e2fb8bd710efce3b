"""Selecting the best of many scores: hide what is known, keep what may be among the best, order it.

Scores come in tiles: some users (rows) times a stretch of columns. Each user has a short list of
candidates that grows from tile to tile, in ascending order of columns:

    kept_scores, kept_columns   (n, capacity)
    counts                      (n,) candidates so far, CROWDED if too many were too close
    thresholds                  (n,) a score below it cannot be among the best k any more

`error` bounds how far a tile's score may be from the true one. With an error above 0 a tile only
proposes: everything within twice the error of the k-th best stays, and `settle` decides by
`pair_score`. With an error of 0 the tile's scores are the true ones.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from . import unlocked
from .decorators import compiled, compiled_strictly, inlined, inner
from .lanes import (
    LANES,
    Lanes,
    element_address,
    fill,
    largest_lane,
    load,
    max_lanes,
    prefetch_for_reading,
    store,
    sum_lanes,
)
from .rows import first_from

Floats = npt.NDArray[np.float32]
Rows = npt.NDArray[np.int32]
Counts = npt.NDArray[np.int64]

#: Numbers whose ranks are counted at the same time; arrays have room for a multiple of it.
TOGETHER = 2 * LANES
#: Scores that are tested at once: one bit each of a machine word.
CHUNK = 64
#: Groups whose maxima give a first threshold; it takes k groups out of them.
GROUPS = 4 * LANES
#: Scores that the first threshold is taken from: enough for a good one, and read only once more.
SAMPLE = 64 * GROUPS
#: Count of a row whose candidates do not fit; its scores have to be computed exactly.
CROWDED = -1
#: The threshold that every finite score reaches and a hidden one (-inf) does not.
LOWEST = np.float32(np.finfo(np.float32).min)

_HIDDEN = np.float32(-np.inf)
_TOP = np.float32(np.inf)
_ZERO, _ONE = np.float32(0), np.float32(1)
#: Above so many numbers, comparing all with all takes longer than dividing them.
_COUNTED = 256
_LAST_BIT = np.uint64(1)
#: Room that pruning has to free; with less a row is crowded.
_SPARE = 16


def capacity_for(k: int) -> int:
    """Candidates to make room for when the best k are wanted: as `kth_largest` wants it."""
    wanted = 2 * k + 4 * _SPARE
    return wanted + -wanted % TOGETHER


# -- inner products of single pairs, the same to the last bit wherever they are computed -----------

# The order of the sum is written out and nothing is relaxed, so that no compiler may change it from
# one place to the next. Products of two float32 are exact in float64, and the sum is rounded once.


@intrinsic  # type: ignore[untyped-decorator, unused-ignore]
def _add_products(typing: Any, total: Any, left: Any, right: Any) -> Any:
    """`total + left * right` for float64 lanes and two float32 lanes."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        wide = ir.VectorType(ir.DoubleType(), LANES)
        factors = [builder.fpext(lanes, wide) for lanes in args[1:]]
        # Fusing changes nothing: the product is exact.
        product = builder.fmul(*factors, flags=("contract",))
        return builder.fadd(args[0], product, flags=("contract",))

    wide = Lanes(types.float64)
    return wide(wide, left, right), generate


@compiled
def prefetch(vector: Floats) -> None:
    """Prefetch a vector that will be read soon."""
    for start in range(0, len(vector), LANES):
        prefetch_for_reading(vector, start)


@compiled_strictly
def _product(left: Floats, right: Floats) -> Any:
    """Inner product of two vectors in float64."""
    size = len(left)
    whole = size - size % LANES
    total = fill(0.0)
    for start in range(0, whole, LANES):
        total = _add_products(total, load(left, start), load(right, start))
    result = sum_lanes(total)
    for n in range(whole, size):
        result += np.float64(left[n]) * np.float64(right[n])
    return result


@compiled_strictly
def pair_score(user: Floats, item: Floats, constant: np.float32) -> Any:
    """Inner product of two vectors plus a constant, in float64, rounded once to float32."""
    return np.float32(_product(user, item) + constant)


def pair_scores(
    user_vectors: Floats, item_vectors: Floats, constants: Floats, users: Rows, items: Rows
) -> Floats:
    """`pair_score` of many pairs of rows: (n,)."""
    return _pair_scores(*map(unlocked, (user_vectors, item_vectors, constants, users, items)))


@compiled
def _pair_scores(
    user_vectors: Floats, item_vectors: Floats, constants: Floats, users: Rows, items: Rows
) -> Floats:
    scores = np.empty(len(users), np.float32)
    for n in range(len(users)):
        user = users[n]
        scores[n] = pair_score(user_vectors[user], item_vectors[items[n]], constants[user])
    return scores


# -- candidates ----------------------------------------------------------------------------------


@compiled
def hide(
    scores: Floats, first: int, columns: Rows, column_of: Rows, users: Rows, indptr: Counts, items:
    Rows,
) -> None:  # fmt: skip
    """Set the scores of each user's listed items (ascending) in this tile to -inf."""
    width = scores.shape[1]
    lowest, highest = columns[first], columns[first + width - 1]
    for row in range(len(users)):
        start, stop = indptr[users[row]], indptr[users[row] + 1]
        place = first_from(items, start, stop, lowest)
        while place < stop and items[place] <= highest:
            column = column_of[items[place]]
            if column >= 0:
                scores[row, column - first] = _HIDDEN
            place += 1


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
def _where_at_least(typing: Any, left: Any, right: Any, then: Any, otherwise: Any) -> Any:
    """Lanes of `then` where `left >= right`, of `otherwise` elsewhere."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.select(builder.fcmp_ordered(">=", *args[:2]), *args[2:])

    return then(left, right, then, otherwise), generate


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
        values[n] = _HIDDEN
    none, one, wanted = fill(_ZERO), fill(_ONE), fill(np.float32(k))
    lowest = fill(_HIDDEN)
    best = lowest
    for start in range(0, count, TOGETHER):
        a, b = load(values, start), load(values, start + LANES)
        reached_a, reached_b = none, none
        for n in range(count):
            value = fill(values[n])
            reached_a = reached_a + _where_at_least(value, a, one, none)
            reached_b = reached_b + _where_at_least(value, b, one, none)
        best = max_lanes(_where_at_least(reached_a, wanted, a, lowest), best)
        best = max_lanes(_where_at_least(reached_b, wanted, b, lowest), best)
    return largest_lane(best)


@inlined
def _group_threshold(line: Floats, k: int, best: Floats) -> Any:
    """A score that at least k entries reach: the k-th largest of the maxima of GROUPS groups."""
    a = b = c = d = fill(_HIDDEN)
    for n in range(0, min(SAMPLE, len(line) - len(line) % GROUPS), GROUPS):
        a = max_lanes(load(line, n), a)
        b = max_lanes(load(line, n + LANES), b)
        c = max_lanes(load(line, n + 2 * LANES), c)
        d = max_lanes(load(line, n + 3 * LANES), d)
    store(best, 0, a)
    store(best, LANES, b)
    store(best, 2 * LANES, c)
    store(best, 3 * LANES, d)
    return kth_largest(best, GROUPS, k, best)


@intrinsic  # type: ignore[untyped-decorator, unused-ignore]
def reaching(typing: Any, line: Any, start: Any, threshold: Any) -> Any:
    """Which of the CHUNK scores from `start` on reach the threshold, one bit for each."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        vector = ir.VectorType(ir.FloatType(), CHUNK)
        address = element_address(context, builder, signature.args[0], *args[:2])
        scores = builder.load(address, align=4, typ=vector)
        blank = ir.Constant(vector, ir.Undefined)
        first = builder.insert_element(blank, args[2], ir.Constant(ir.IntType(32), 0))
        same = ir.Constant(ir.VectorType(ir.IntType(32), CHUNK), [0] * CHUNK)
        limit = builder.shuffle_vector(first, blank, same)
        return builder.bitcast(builder.fcmp_ordered(">=", scores, limit), ir.IntType(CHUNK))

    return types.uint64(line, types.intp, types.float32), generate


@intrinsic  # type: ignore[untyped-decorator, unused-ignore]
def lowest_bit(typing: Any, bits: Any) -> Any:
    """The place of the lowest set bit; there has to be one."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.cttz(args[0], ir.Constant(ir.IntType(1), 1))

    return types.int64(types.uint64), generate


@inlined
def _prune(
    scores: Floats, columns: Rows, count: int, k: int, error: np.float32, scratch: Floats
) -> tuple[int, np.float32]:
    """Drop candidates that cannot be among the best k; the new count and threshold."""
    if count < k:
        return count, LOWEST
    kth = kth_largest(scores, count, k, scratch)
    if error > 0:
        threshold, ties = max(np.float32(kth - 2 * error), LOWEST), count
    else:
        # Later columns lose ties, so from here on only a higher score counts.
        threshold, ties = np.float32(np.nextafter(kth, _TOP)), k
        for n in range(count):
            ties -= scores[n] > kth
    kept = 0
    for n in range(count):
        score = scores[n]
        is_tie = (score == kth) & (ties > 0)
        scores[kept], columns[kept] = score, columns[n]
        kept += (score >= threshold) | is_tie
        ties -= is_tie
    return kept, threshold


@inlined
def _keep(
    score: np.float32, column: int, k: int, error: np.float32, scores: Floats, columns: Rows, count:
    int, threshold: np.float32, scratch: Floats,
) -> tuple[int, np.float32]:  # fmt: skip
    """Add a candidate that reaches the threshold; the new count and threshold."""
    if count == len(scores):
        count, lowered = _prune(scores, columns, count, k, error, scratch)
        threshold = max(threshold, lowered)
        if count > len(scores) - _SPARE:
            return CROWDED, _TOP
    if score >= threshold:
        scores[count], columns[count] = score, column
        count += 1
    return count, threshold


@inlined
def _collect_row(
    line: Floats, first: int, k: int, error: np.float32, scores: Floats, columns: Rows, count: int,
    threshold: np.float32, scratch: Floats,
) -> tuple[int, np.float32]:  # fmt: skip
    """Add what may be among the best k of one row of a tile."""
    chunked = len(line) - len(line) % CHUNK
    for start in range(0, chunked, CHUNK):
        bits = reaching(line, start, threshold)
        while bits:
            n = start + lowest_bit(bits)
            bits &= bits - _LAST_BIT
            count, threshold = _keep(
                line[n], first + n, k, error, scores, columns, count, threshold, scratch
            )
    for n in range(chunked, len(line)):
        if line[n] >= threshold:
            count, threshold = _keep(
                line[n], first + n, k, error, scores, columns, count, threshold, scratch
            )
    return count, threshold


@compiled
def collect(
    tile: Floats, first: int, k: int, error: Floats, kept_scores: Floats, kept_columns: Rows,
    counts: Counts, thresholds: Floats,
) -> None:  # fmt: skip
    """Add what may be among the best k (at least 1) of a tile to the candidates of its users."""
    scratch = np.empty(max(GROUPS, kept_scores.shape[1]), np.float32)
    for row in range(len(tile)):
        count, threshold = counts[row], thresholds[row]
        if count == CROWDED:
            continue
        line, scores, columns = tile[row], kept_scores[row], kept_columns[row]
        # A threshold that hardly rises is not worth its price.
        if count >= k + _SPARE // 2:
            count, lowered = _prune(scores, columns, count, k, error[row], scratch)
            threshold = max(threshold, lowered)
        elif count < k and 2 * k <= GROUPS:
            start = np.float32(_group_threshold(line, k, scratch) - 2 * error[row])
            threshold = max(threshold, start)
        counts[row], thresholds[row] = _collect_row(
            line, first, k, error[row], scores, columns, count, threshold, scratch
        )


@inner
def _order(scores: Floats, columns: Rows, count: int) -> None:
    """Sort candidates by descending score, equal scores by ascending column; Shell's sort.

    Most lists are short, and it is an insertion sort for them. NumPy's sorts take seconds to
    compile.
    """
    gap = 1
    while gap * GROUPS < count:
        gap = 3 * gap + 1
    while gap > 0:
        for n in range(gap, count):
            score, column, place = scores[n], columns[n], n
            while place >= gap and (
                scores[place - gap] < score
                or (scores[place - gap] == score and columns[place - gap] > column)
            ):
                scores[place], columns[place] = scores[place - gap], columns[place - gap]
                place -= gap
            scores[place], columns[place] = score, column
        gap //= 3


@compiled
def prune(k: int, error: Floats, kept_scores: Floats, kept_columns: Rows, counts: Counts) -> None:
    """Drop candidates of each user that cannot be among the best k, crowded rows aside."""
    scratch = np.empty(kept_scores.shape[1], np.float32)
    for row in range(len(counts)):
        if counts[row] != CROWDED:
            scores, columns = kept_scores[row], kept_columns[row]
            counts[row], _ = _prune(scores, columns, counts[row], k, error[row], scratch)


@compiled
def settle(
    k: int, error: Floats, user_vectors: Floats, item_vectors: Floats, constants: Floats, columns:
    Rows, kept_scores: Floats, kept_columns: Rows, counts: Counts, out_items: Rows, out_scores:
    Floats,
) -> None:  # fmt: skip
    """Order the candidates of each user by score, then by item row, and write the best k.

    Crowded rows are left as they are; places without an item as well.
    """
    prune(k, error, kept_scores, kept_columns, counts)
    for row in range(len(counts)):
        count = counts[row]
        if count == CROWDED:
            continue
        scores, places = kept_scores[row], kept_columns[row]
        if error[row] > 0:
            after = min(row + 1, len(counts) - 1)
            for n in range(count):
                # The way to memory is long: what the next row needs sets out now.
                if n < counts[after]:
                    prefetch(item_vectors[columns[kept_columns[after, n]]])
                vector = item_vectors[columns[places[n]]]
                scores[n] = pair_score(user_vectors[row], vector, constants[row])
        _order(scores, places, count)
        for place in range(min(k, count)):
            out_items[row, place] = columns[places[place]]
            out_scores[row, place] = scores[place]
