"""Means of neighbours by weights that a softmax gives them."""

import numpy as np

from . import Array, compiled


@compiled
def softmax_means(indptr: Array, indices: Array, logits: Array, vectors: Array) -> Array:
    """The mean of the listed vectors for every row of a CSR pattern, by a softmax over the row.

    Args:
        indptr: (n_rows + 1,) int64; may start anywhere.
        indices: (nnz,) int32, rows of `vectors`.
        logits: (n_columns,) logarithms of the weights, but for a factor of each row.
        vectors: (n_columns, dim).

    Returns:
        (n_rows, dim), zeros where a row lists nothing.
    """
    means = np.zeros((len(indptr) - 1, vectors.shape[1]), vectors.dtype)
    for row in range(len(means)):
        begin, end = indptr[row], indptr[row + 1]
        if begin == end:
            continue
        highest = logits[indices[begin]]
        for place in range(begin + 1, end):
            highest = max(highest, logits[indices[place]])
        mean, total = means[row], vectors.dtype.type(0)
        for place in range(begin, end):
            column = indices[place]
            weight = np.exp(logits[column] - highest)
            total += weight
            vector = vectors[column]
            for k in range(len(mean)):
                mean[k] += weight * vector[k]
        for k in range(len(mean)):
            mean[k] /= total
    return means
