"""The exact solution of every row's least squares, by Cholesky factors: O(dim^3) per row."""

from functools import partial

import numpy as np

from transcf.parallel import parallel_for

from . import Array
from .als import Side, pair_weights
from .decorators import compiled, inlined
from .lanes import LANES, fill, load, store
from .rows import add_scaled, dot


def solve_rows(
    side: Side, others: Array, width: int, gram: Array, vectors: Array, losses: Array
) -> None:
    """Solve `(s G + sum_j v_j y_j y_j' + ridge I) x = sum_j w_j y_j` for every row.

    Args: as `conjugate_gradient`, but vectors are out only: NaN where a matrix is not positive
        definite.
    """
    work = partial(_solve_blocks, side, others, width, gram, vectors, losses)
    parallel_for(len(side.cuts) - 1, work)


@compiled
def _solve_blocks(
    side: Side, others: Array, width: int, gram: Array, vectors: Array, losses: Array,
    first: int, end: int,
) -> None:  # fmt: skip
    """The blocks first..end-1 of `solve_rows`."""
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
