from __future__ import annotations

import numpy as np
import pytest

from transcf.kernels import lapack


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("large", [2**31, 4000, 500])
def test_the_lower_triangle_is_that_of_the_inverse(
    dtype: type, large: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also by halves, once and several times."""
    monkeypatch.setattr(lapack, "LARGE_BYTES", large)
    rng = np.random.default_rng(0)
    for size in (1, 2, 7, 30):
        some = rng.standard_normal((size, 2 * size))
        whole = some @ some.T + np.eye(size)
        matrix = np.asfortranarray(np.tril(whole).astype(dtype))  # the upper triangle is not read
        assert lapack.invert_lower(matrix)
        tolerance = 1e-3 if dtype is np.float32 else 1e-10
        expected = np.tril(np.linalg.inv(whole))
        np.testing.assert_allclose(np.tril(matrix), expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("large", [2**31, 1])
def test_what_has_no_inverse_is_named(large: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lapack, "LARGE_BYTES", max(large, 9))
    for place in (0, 3):
        matrix = np.asfortranarray(np.eye(4))
        matrix[place, place] = -1.0
        assert not lapack.invert_lower(matrix)
