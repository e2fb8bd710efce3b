"""AoBPR's draws against the formula of its paper."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import chisquare

from transcf.kernels import Array, compiled
from transcf.kernels.pairwise import Ranked, draw_ranked, rank_by_factors
from transcf.kernels.sampling import Visit


@compiled
def draw_many(
    rates: Ranked,
    weights: Array,
    users: Array,
    rankings: Array,
    dim: int,
    marks: Array,
    visit: Visit,
    state: np.uint64,
    counts: Array,
) -> None:
    for _ in range(200_000):
        state, slot = draw_ranked(rates, weights, users, rankings, dim, marks, visit, state)
        counts[slot] += 1


def expected_shares(
    x: Array, items: Array, weights: Array, rank_share: float, seen: set[int]
) -> Array:
    """The probability of every item of a block, straight from the definition."""
    n, shares = len(items), np.zeros(len(items))
    ranks = np.exp(-np.arange(n) / (rank_share * n))
    factors = np.abs(x) * weights
    for f, p_factor in enumerate(factors / factors.sum()):
        order = np.argsort(-items[:, f] if x[f] > 0 else items[:, f])
        for rank, p_rank in enumerate(ranks / ranks.sum()):
            place = rank
            while order[place] in seen:
                place = (place + 1) % n
            shares[order[place]] += p_factor * p_rank
    return shares


@pytest.mark.parametrize("rank_share", [0.02, 0.3, 5.0])
def test_ranks_are_geometric_on_factors_drawn_by_importance(rank_share: float) -> None:
    generator = np.random.default_rng(4)
    n, n_factors, dim, start = 50, 3, 16, 30
    items = np.zeros((start + n, dim), np.float32)
    items[:, :n_factors] = generator.standard_normal((start + n, n_factors))
    x = np.array([0.9, -0.4, 0.1], np.float32)
    users = np.zeros((2, dim), np.float32)
    users[1, :n_factors] = x
    weights = np.array([0.5, 1.5, 1.0], np.float32)
    rankings = np.zeros((n_factors, start + n), np.int32)
    rank_by_factors(items.ravel(), dim, np.array([0, start, start + n]), rankings)
    block = items[start:, :n_factors]
    seen = {int(np.argmax(block[:, 0])), 7, 8}
    marks = np.full(n, -1)
    marks[list(seen)] = 6
    counts = np.zeros(n, np.int64)
    one = np.float32(1)
    visit = Visit(group=0, user=1, start=start, size=n, begin=0, own=3, stamp=6, samples=1)
    draw_many(
        Ranked(one, one, one, one, rank_share, -np.expm1(-1 / rank_share)), weights,
        users.ravel(), rankings, dim, marks, visit, np.uint64(12345), counts,
    )  # fmt: skip
    shares = expected_shares(x, block, weights, rank_share, seen)
    assert counts[list(seen)].sum() == 0
    likely = shares * counts.sum() > 5
    seen_often, expected = counts[likely], shares[likely] * counts.sum()
    rest = counts.sum() - seen_often.sum(), max(counts.sum() - expected.sum(), 1e-9)
    if rest[1] > 5:
        seen_often, expected = np.append(seen_often, rest[0]), np.append(expected, rest[1])
    else:
        assert rest[0] < 30
        expected = expected * seen_often.sum() / expected.sum()
    assert chisquare(seen_often, expected).pvalue > 1e-3


def test_rankings_order_every_block_by_every_factor() -> None:
    values = np.random.default_rng(0).standard_normal((40, 16)).astype(np.float32)
    values[3, 2], values[4, 2], values[5, 2] = 0.0, -0.0, -1e-40
    rankings, starts = np.zeros((5, 40), np.int32), np.array([0, 13, 40])
    rank_by_factors(values.ravel(), 16, starts, rankings)
    for begin, end in ((0, 13), (13, 40)):
        for f in range(5):
            slots = rankings[f, begin:end]
            assert sorted(slots) == list(range(end - begin))
            assert (np.diff(values[begin + slots, f]) >= 0).all()
