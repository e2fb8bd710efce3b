"""Sparse means and the ball, against scipy and the formula."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from transcf.kernels.neighborhood import bound_rows, row_means


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_row_means_agree_with_a_sparse_product(dtype: type) -> None:
    generator = np.random.default_rng(0)
    pattern = sp.random_array((40, 30), density=0.2, format="csr", rng=generator)
    pattern.data[:] = 1
    pattern = sp.csr_array(sp.vstack([pattern, sp.csr_array((1, 30))]))
    matrix = generator.standard_normal((30, 5)).astype(dtype)
    sizes = np.maximum(1, np.diff(pattern.indptr))[:, None]
    means = row_means(pattern.indptr.astype(np.int64), pattern.indices.astype(np.int32), matrix)
    assert means.dtype == dtype
    np.testing.assert_allclose(means, (pattern @ matrix) / sizes, rtol=1e-5, atol=1e-6)
    assert not means[-1].any()


@pytest.mark.parametrize(("power", "divisor"), [(0.0, 1.0), (1.0, 5.0), (2.0, 25.0)])
def test_only_rows_outside_of_the_ball_are_divided(power: float, divisor: float) -> None:
    matrix = np.array([[3.0, 4.0], [0.3, 0.4]])
    norms = bound_rows(matrix, power)
    np.testing.assert_allclose(norms, [25, 0.25])
    np.testing.assert_allclose(matrix, [[3 / divisor, 4 / divisor], [0.3, 0.4]])


def test_a_diverged_row_shows_in_the_norms() -> None:
    norms = bound_rows(np.array([[np.nan, 1.0], [np.inf, 0.0], [0.1, 0.1]]), 1.0)
    assert np.isfinite(norms).tolist() == [False, False, True]
