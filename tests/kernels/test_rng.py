"""Random numbers: named streams, even draws, uniform orders."""

from __future__ import annotations

import numpy as np
from scipy import stats

from transcf.kernels.decorators import compiled
from transcf.kernels.sampling import advance, below, below_low, deal_items, mix, stream, uniform


@compiled
def words(seed: int, epoch: int, purpose: int, index: int, count: int) -> np.ndarray:
    state, drawn = stream(seed, epoch, purpose, index), np.empty(count, np.uint64)
    for n in range(count):
        state = advance(state)
        drawn[n] = mix(state)
    return drawn


@compiled
def uniforms(words: np.ndarray) -> np.ndarray:
    drawn = np.empty(len(words))
    for n in range(len(words)):
        drawn[n] = uniform(words[n])
    return drawn


@compiled
def integers(words: np.ndarray, bound: int, is_low: bool) -> np.ndarray:
    drawn = np.empty(len(words), np.int64)
    for n in range(len(words)):
        drawn[n] = below_low(words[n], bound) if is_low else below(words[n], bound)
    return drawn


def test_a_stream_is_a_function_of_its_name() -> None:
    assert (words(1, 2, 3, 4, 50) == words(1, 2, 3, 4, 50)).all()


def test_every_part_of_the_name_matters() -> None:
    names = [(0, 0, 0, 0), (1, 0, 0, 0), (0, 1, 0, 0), (0, 0, 1, 0), (0, 0, 0, 1)]
    firsts = {int(words(*name, 1)[0]) for name in names}
    assert len(firsts) == len(names)


def test_neighbouring_streams_are_uncorrelated() -> None:
    x, y = (uniforms(words(0, 0, 2, index, 4000)) for index in (0, 1))
    assert abs(np.corrcoef(x, y)[0, 1]) < 5 / np.sqrt(4000)
    assert abs(np.corrcoef(x[1:], x[:-1])[0, 1]) < 5 / np.sqrt(4000)


def test_draws_are_even() -> None:
    drawn = words(3, 1, 2, 0, 20_000)
    for is_low in (False, True):
        counts = np.bincount(integers(drawn, 7, is_low), minlength=7)
        assert len(counts) == 7
        assert stats.chisquare(counts).pvalue > 1e-4
    floats = uniforms(drawn)
    assert stats.kstest(floats, "uniform").pvalue > 1e-4


def test_every_order_is_as_likely() -> None:
    orders = [tuple(deal_items(np.arange(4, dtype=np.int32), 0, epoch)) for epoch in range(6000)]
    _, counts = np.unique(orders, axis=0, return_counts=True)
    assert len(counts) == 24
    assert stats.chisquare(counts).pvalue > 1e-4
