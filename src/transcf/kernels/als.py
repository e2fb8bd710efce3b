"""Least squares, one row at a time: conjugate gradient, and exact solutions by Cholesky factors.

Fix one side (the *others*, say the items) and every row of the other side (a user) has a quadratic
of its own,

    x' (s G + sum_j v_j y_j y_j' + ridge I) x - 2 x' sum_j w_j y_j

where G is a weighted sum of y y' over all others and j runs over those that the row interacted
with; w_j is the weight of the interaction, and v_j that weight minus the weight of the pair in G.
Rows are independent, and every sum runs in an order that the data fix, so results never depend on
threads. Vectors are stored in flat arrays of rows whose width is a multiple of `LANES`, padded with
zeros.
"""

from typing import Any, NamedTuple

import numpy as np

from . import Array
from .decorators import inlined, shared
from .lanes import LANES, fill, load, store, zeros
from .rows import add_scaled, copy, dot

#: Rows whose products with G are computed together: four rows of sums fit the registers.
BATCH = 4
#: Rows that stay in the L1 cache while all of a Gram matrix passes by.
_TILE = 32
#: A squared residual this small counts as solved.
_SOLVED = 1e-20


class Side(NamedTuple):
    """The quadratics of one side's rows."""

    cuts: Array  # where blocks of `rows` begin and end, (n_blocks + 1,) int64
    rows: Array  # the rows with interactions, (n_active,) int32
    indptr: Array  # interactions by row, CSR, (n_rows + 1,) int64
    indices: Array  # (nnz,) int32, which others
    shares: Array  # s, the factor of G, (n_rows,)
    weights: Array  # the row's factor of v where w is 1, (n_rows,)
    other_weights: Array  # the other's factor of it, (n_others,)
    ridges: Array  # (n_rows,)
    targets: Array  # w, (nnz,); empty where all interactions count 1


def _blocks(side: Side, *_: Any) -> int:
    return len(side.cuts) - 1


@inlined
def pair_weights(
    targets: Array, entry: int, weight: float, other_weight: float, one: Any
) -> tuple[Any, Any]:
    """Return w and v of an interaction, see `Side`; `one` is in the type of the vectors."""
    if len(targets) == 0:
        return one, weight * other_weight
    return targets[entry], weight * other_weight + (targets[entry] - one)


@shared(lambda vectors, width, weights, cuts, grams: len(cuts) - 1)
def add_grams(
    vectors: Array, width: int, weights: Array, cuts: Array, grams: Array, first: int, end: int
) -> None:
    """Add the weighted outer products of the rows of each part to a matrix per part.

    `cuts`, (n_parts + 1,), are the bounds of the parts; `grams`, (n_parts, width * width), are
    changed, and undefined below the diagonal.
    """
    for part in range(first, end):
        for tile in range(cuts[part], cuts[part + 1], _TILE):
            last = min(tile + _TILE, cuts[part + 1])
            for k in range(0, width, 4):
                for start in range(k // LANES * LANES, width, LANES):
                    _add_tile(vectors, width, weights, tile, last, k, start, grams[part])


@inlined
def _add_tile(
    vectors: Array, width: int, weights: Array, first: int, last: int, k: int, start: int,
    gram: Array,
) -> None:  # fmt: skip
    """Four rows and `LANES` columns of a Gram matrix."""
    at = k * width + start
    a, b = load(gram, at), load(gram, at + width)
    c, d = load(gram, at + 2 * width), load(gram, at + 3 * width)
    for row in range(first, last):
        here = row * width
        weighted = fill(weights[row]) * load(vectors, here + start)
        a = a + fill(vectors[here + k]) * weighted
        b = b + fill(vectors[here + k + 1]) * weighted
        c = c + fill(vectors[here + k + 2]) * weighted
        d = d + fill(vectors[here + k + 3]) * weighted
    store(gram, at, a)
    store(gram, at + width, b)
    store(gram, at + 2 * width, c)
    store(gram, at + 3 * width, d)


@shared(_blocks)
def conjugate_gradient(
    side: Side, others: Array, width: int, gram: Array, steps: int, vectors: Array, losses: Array,
    first: int, end: int,
) -> None:  # fmt: skip
    """Improve `vectors` by some steps of conjugate gradient, from where they are.

    `others` are rows of the fixed side, `gram` is G, (width * width,). What remains of each row's
    part of the loss is written to `losses`, (n_rows,) float64.
    """
    cuts, rows, indptr, indices, shares, weights, other_weights, ridges, targets = side
    one = others.dtype.type(1)
    x, r = np.zeros(BATCH * width, others.dtype), np.zeros(BATCH * width, others.dtype)
    p, q = np.zeros(BATCH * width, others.dtype), np.zeros(BATCH * width, others.dtype)
    squares = np.zeros(BATCH, np.float64)
    for block in range(first, end):
        for start in range(cuts[block], cuts[block + 1], BATCH):
            batch = rows[start : min(start + BATCH, cuts[block + 1])]
            for n in range(len(batch)):
                row = batch[n] * width
                copy(x, n * width, vectors, row, width)
            _multiply_batch(gram, width, x, q)
            for n in range(len(batch)):
                row, at = batch[n], n * width
                _finish_base(width, shares[row], ridges[row], x, q, at)
                losses[row] = _residual(side, row, others, width, x, q, r, at)
                copy(p, at, r, at, width)
                squares[n] = dot(r, at, r, at, width)
            for _ in range(steps):
                _multiply_batch(gram, width, p, q)
                for n in range(len(batch)):
                    row, at = batch[n], n * width
                    if squares[n] > _SOLVED:
                        _finish_base(width, shares[row], ridges[row], p, q, at)
                        for entry in range(indptr[row], indptr[row + 1]):
                            j = indices[entry]
                            _, weight = pair_weights(
                                targets, entry, weights[row], other_weights[j], one
                            )
                            near = weight * dot(others, j * width, p, at, width)
                            add_scaled(q, at, others, j * width, width, near)
                        gain, squares[n] = _step(x, r, p, q, at, width, squares[n])
                        losses[row] -= gain
            for n in range(len(batch)):
                row = batch[n] * width
                copy(vectors, row, x, n * width, width)


@inlined
def _multiply_batch(gram: Array, width: int, vectors: Array, products: Array) -> None:
    """Set products = vectors G for `BATCH` rows."""
    for start in range(0, width, LANES):
        a = zeros(load(gram, start))
        b, c, d = a, a, a
        for k in range(width):
            column = load(gram, k * width + start)
            a = a + fill(vectors[k]) * column
            b = b + fill(vectors[width + k]) * column
            c = c + fill(vectors[2 * width + k]) * column
            d = d + fill(vectors[3 * width + k]) * column
        store(products, start, a)
        store(products, width + start, b)
        store(products, 2 * width + start, c)
        store(products, 3 * width + start, d)


@inlined
def _finish_base(width: int, share: float, ridge: float, x: Array, q: Array, at: int) -> None:
    """Turn q = G x into (s G + ridge I) x."""
    by, add = fill(share), fill(ridge)
    for k in range(at, at + width, LANES):
        store(q, k, by * load(q, k) + add * load(x, k))


@inlined
def _residual(
    side: Side, row: int, others: Array, width: int, x: Array, q: Array, r: Array, at: int
) -> float:
    """Set r = b - A x, given q = (s G + ridge I) x; returns the row's part of the loss at x."""
    loss = np.float64(dot(x, at, q, at, width))
    for k in range(at, at + width, LANES):
        store(r, k, zeros(load(q, k)) - load(q, k))
    _, _, indptr, indices, _, weights, other_weights, _, targets = side
    one = others.dtype.type(1)
    for entry in range(indptr[row], indptr[row + 1]):
        j = indices[entry]
        target, weight = pair_weights(targets, entry, weights[row], other_weights[j], one)
        score = dot(others, j * width, x, at, width)
        pull = target - weight * score
        add_scaled(r, at, others, j * width, width, pull)
        if len(targets) == 0:  # where multiplying by 1 would change how sums are put together
            loss += one - score - score * pull
        else:
            loss += target - target * score - score * pull
    return loss


@inlined
def _step(
    x: Array, r: Array, p: Array, q: Array, at: int, width: int, square: float
) -> tuple[float, float]:
    """One step along p, given q = A p; returns what the loss lost and the new |r|^2."""
    length = square / np.float64(dot(p, at, q, at, width))
    number = x.dtype.type
    add_scaled(x, at, p, at, width, number(length))
    add_scaled(r, at, q, at, width, number(-length))
    after = np.float64(dot(r, at, r, at, width))
    turn = fill(number(after / square))
    for k in range(at, at + width, LANES):
        store(p, k, load(r, k) + turn * load(p, k))
    return length * square, after


# -- exact solutions: O(dim^3) per row ---------------------------------------------------------


@shared(_blocks)
def solve_rows(
    side: Side, others: Array, width: int, gram: Array, vectors: Array, losses: Array,
    first: int, end: int,
) -> None:  # fmt: skip
    """Solve `(s G + sum_j v_j y_j y_j' + ridge I) x = sum_j w_j y_j` for every row.

    Vectors are NaN where a matrix is not positive definite.
    """
    cuts, rows, indptr, _, shares, _, _, ridges, targets = side
    # The right-hand side is one more column of the matrix: factorizing it solves half the system.
    stride = width + LANES
    matrix = np.zeros(width * stride, others.dtype)
    for n in range(cuts[first], cuts[end]):
        row = rows[n]
        _set_base(matrix, width, gram, shares[row], ridges[row])
        _add_outer(side, row, others, width, matrix)
        _factorize(matrix, width)
        gain = _substitute(matrix, width, vectors[row * width : (row + 1) * width])
        counted = np.float64(indptr[row + 1] - indptr[row])
        if len(targets) > 0:
            counted = np.float64(0)
            for entry in range(indptr[row], indptr[row + 1]):
                counted += targets[entry]
        losses[row] = counted - gain


@inlined
def _set_base(matrix: Array, width: int, gram: Array, share: float, ridge: float) -> None:
    """[A | b] = [s G + ridge I | 0]."""
    by, stride = fill(share), width + LANES
    for k in range(width):
        at = k * stride
        for start in range(k // LANES * LANES, width, LANES):
            store(matrix, at + start, by * load(gram, k * width + start))
        matrix[at + k] += ridge
        matrix[at + width] = 0


@inlined
def _add_outer(side: Side, row: int, others: Array, width: int, matrix: Array) -> None:
    """Add v y y' and w y of every neighbour, four at a time: the matrix passes by once for four."""
    _, _, indptr, indices, _, weights, other_weights, _, targets = side
    zero, one = others.dtype.type(0), others.dtype.type(1)
    stride, weight, end = width + LANES, weights[row], indptr[row + 1]
    for first in range(indptr[row], end, 4):
        left = end - first
        # Where fewer than four are left, the first replaces the others, with weight zero.
        second = first + 1 if left > 1 else first
        third = first + 2 if left > 2 else first
        fourth = first + 3 if left > 3 else first
        h, i, j, m = indices[first], indices[second], indices[third], indices[fourth]
        e, u = pair_weights(targets, first, weight, other_weights[h], one)
        f, v = pair_weights(targets, second, weight, other_weights[i], one)
        g, w = pair_weights(targets, third, weight, other_weights[j], one)
        o, x = pair_weights(targets, fourth, weight, other_weights[m], one)
        for k in range(width):
            a, b = others[h * width + k], others[i * width + k] if left > 1 else zero
            c = others[j * width + k] if left > 2 else zero
            d = others[m * width + k] if left > 3 else zero
            at = k * stride
            if len(targets) == 0:  # where multiplying by 1 would change how sums are put together
                matrix[at + width] += (a + b) + (c + d)
            else:
                matrix[at + width] += (e * a + f * b) + (g * c + o * d)
            a, b, c, d = fill(u * a), fill(v * b), fill(w * c), fill(x * d)
            for start in range(k // LANES * LANES, width, LANES):
                ab = a * load(others, h * width + start) + b * load(others, i * width + start)
                cd = c * load(others, j * width + start) + d * load(others, m * width + start)
                store(matrix, at + start, load(matrix, at + start) + (ab + cd))


@inlined
def _factorize(matrix: Array, width: int) -> None:
    """Turn [A | b] into [U | z] with U'U = A and U'z = b; what is below the diagonal is debris.

    Four pivots at a time, so that the rest of the matrix passes by once for four.
    """
    stride, one = width + LANES, matrix.dtype.type(1)
    for k in range(0, width, 4):
        for pivot in range(k, k + 4):
            at, off = pivot * stride, pivot // LANES * LANES
            for above in range(k, pivot):
                by = -matrix[above * stride + pivot]
                add_scaled(matrix, at + off, matrix, above * stride + off, stride - off, by)
            scale = fill(one / np.sqrt(matrix[at + pivot]))
            for start in range(at + off, at + stride, LANES):
                store(matrix, start, scale * load(matrix, start))
        _subtract_four(matrix, width, k)


@inlined
def _subtract_four(matrix: Array, width: int, k: int) -> None:
    """Subtract the outer products of the four pivot rows from k on from all rows below them."""
    stride = width + LANES
    p, q, r, s = k * stride, (k + 1) * stride, (k + 2) * stride, (k + 3) * stride
    for row in range(k + 4, width):
        a, b = fill(matrix[p + row]), fill(matrix[q + row])
        c, d = fill(matrix[r + row]), fill(matrix[s + row])
        at = row * stride
        for start in range(row // LANES * LANES, stride, LANES):
            ab = a * load(matrix, p + start) + b * load(matrix, q + start)
            cd = c * load(matrix, r + start) + d * load(matrix, s + start)
            store(matrix, at + start, load(matrix, at + start) - (ab + cd))


@inlined
def _substitute(matrix: Array, width: int, x: Array) -> float:
    """Solve U x = z; returns b . x = |z|^2, what the solution takes off the loss."""
    stride, gain = width + LANES, 0.0
    x[:] = 0
    for back in range(width):
        k = width - 1 - back
        at, off = k * stride, k // LANES * LANES
        # Numbers of x that are not known yet are zero, which hides the debris.
        known = dot(matrix, at + off, x, off, width - off)
        z = matrix[at + width]
        x[k] = (z - known) / matrix[at + k]
        gain += np.float64(z) * np.float64(z)
    return gain
