"""Exponentials and logarithms of lanes against NumPy's in float64."""

import numpy as np

from transcf.kernels.decorators import compiled
from transcf.kernels.lanes import LANES, exp_lanes, load, log_lanes, max_lanes, store


@compiled
def exponentials(x, y):
    for at in range(0, len(x), LANES):
        store(y, at, exp_lanes(load(x, at)))


@compiled
def logarithms(x, y):
    for at in range(0, len(x), LANES):
        store(y, at, log_lanes(load(x, at)))


@compiled
def larger(x, y, z):
    for at in range(0, len(x), LANES):
        store(z, at, max_lanes(load(x, at), load(y, at)))


def test_exponentials():
    x = np.linspace(-86, 87, 2**16, dtype=np.float32)
    y = np.empty_like(x)
    exponentials(x, y)
    np.testing.assert_allclose(y, np.exp(x.astype(np.float64)), rtol=2e-7)


def test_exponentials_of_what_is_no_usual_number():
    x = np.array([np.nan, np.inf, -np.inf, 0, -1e30, 1e30] + [0] * 10, np.float32)
    y = np.empty_like(x)
    exponentials(x, y)
    assert np.isnan(y[0])
    assert y[1] == y[5] > 1e38
    assert 0 <= y[2] == y[4] < 1e-37
    assert y[3] == 1


def test_logarithms():
    x = np.concatenate([np.exp(np.linspace(-80, 80, 2**12)), np.linspace(0.5, 2, 2**12)])
    x = x.astype(np.float32)
    y = np.empty_like(x)
    logarithms(x, y)
    np.testing.assert_allclose(y, np.log(x.astype(np.float64)), rtol=2e-7, atol=1e-8)


def test_larger():
    x, y = np.random.default_rng(0).standard_normal((2, 64)).astype(np.float32)
    z = np.empty_like(x)
    larger(x, y, z)
    np.testing.assert_array_equal(z, np.maximum(x, y))
