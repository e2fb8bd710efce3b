"""AoBPR's draws against the formula of its paper, in the kernel and in the epochs of its solver."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.stats import chisquare
from tests.models.transcf_exact import problem_of

from transcf.io.tensors import Arrays
from transcf.kernels import Array
from transcf.kernels.decorators import compiled
from transcf.kernels.lanes import LANES
from transcf.kernels.pairwise import Rankings, draw_ranked, rank_by_factors
from transcf.kernels.rounds import PackedRows
from transcf.kernels.sampling import Draws, Visit
from transcf.models.bpr import AdaptiveSolver, AoBPRSettings


@compiled
def draw_many(
    rows: PackedRows[Rankings],
    dim: int,
    draws: Draws,
    visit: Visit,
    state: np.uint64,
    counts: Array,
) -> None:
    for _ in range(200_000):
        state, slot = draw_ranked(rows, dim, draws, visit, state)
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


def assert_shares(counts: Array, shares: Array) -> None:
    """Counts are those of draws with these probabilities; rare items are looked at together."""
    likely = shares * counts.sum() > 5
    seen_often, expected = counts[likely], shares[likely] * counts.sum()
    rest = counts.sum() - seen_often.sum(), max(counts.sum() - expected.sum(), 1e-9)
    if rest[1] > 5:
        seen_often, expected = np.append(seen_often, rest[0]), np.append(expected, rest[1])
    else:
        assert rest[0] < 30
        expected = expected * seen_often.sum() / expected.sum()
    assert chisquare(seen_often, expected).pvalue > 1e-3


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
    visit = Visit(group=0, user=1, start=start, size=n, begin=0, own=3, stamp=6, samples=1)
    ranks = Rankings(rankings, weights, rank_share, -np.expm1(-1 / rank_share))
    rows = PackedRows(users.ravel(), np.empty(0), np.empty(0), ranks)
    draws = Draws(np.empty(0, np.int32), np.empty(0, np.float32), marks)
    draw_many(rows, dim, draws, visit, np.uint64(12345), counts)
    shares = expected_shares(x, block, weights, rank_share, seen)
    assert counts[list(seen)].sum() == 0
    assert_shares(counts, shares)


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


# -- the solver ------------------------------------------------------------------------------


def solver_of(
    histories: list[list[int]],
    n_items: int,
    blocks: int,
    *,
    samples: int,
    rate: float = 0.0,
    kind: type[AdaptiveSolver] = AdaptiveSolver,
) -> AdaptiveSolver:
    """A solver for users with these items, dealt into so many blocks."""
    dense = np.zeros((len(histories), n_items))
    for user, items in enumerate(histories):
        dense[user, items] = 1
    problem = problem_of(sp.csr_array(dense))
    settings = AoBPRSettings(
        decay="none",
        dim=3, samples_per_user=samples, init_scale=0.5, learning_rate=rate, regularization=0,
        bias_regularization=0, rank_share=0.3,
    )  # fmt: skip
    room = -(-len(problem.active_items) // blocks) * LANES * 4
    solver = kind(problem, settings, layout=kind.layout(problem, settings, room))
    assert len(solver._builder.strata.starts) == blocks + 1
    return solver


def stretched(solver: AdaptiveSolver) -> Arrays:
    """The solver's tensors, with factors that vary by 0.25, 1 and 1.5."""
    tensors = solver.tensors()
    by = np.array([0.5, 2.0, 3.0], np.float32)
    return tensors | {"item_vectors": tensors["item_vectors"] * by}


def assert_ranked(solver: AdaptiveSolver, rankings: Array, items: Array) -> None:
    """Within every block the rankings sort its items (n_dealt, dim) by each factor."""
    starts = solver._builder.strata.starts
    for begin, end in pairwise(starts):
        expected = np.argsort(items[begin:end], axis=0, kind="stable")
        np.testing.assert_array_equal(rankings[:, begin:end], expected.T)


def test_preparing_ranks_the_blocks_and_weighs_factors_by_their_standard_deviation() -> None:
    solver = solver_of([list(range(1, 50)), [50, 51, 53]], 60, blocks=4, samples=1)
    tensors = stretched(solver)
    tensors["item_vectors"][[0, 52]] = 100.0  # without interactions: neither dealt nor counted
    solver.load_tensors(tensors)
    order = solver._builder.deal(seed=0, epoch=1)
    solver._pack(order)
    rankings, weights, _, _ = solver._prepare()
    trained = np.array([*range(1, 52), 53])
    assert sorted(order) == trained.tolist()
    vectors = tensors["item_vectors"]
    np.testing.assert_allclose(weights, np.std(vectors[trained], axis=0), rtol=1e-6)
    assert_ranked(solver, rankings, vectors[order])


@pytest.mark.parametrize(
    ("users", "cuts"),
    [(1, [0, 4]), (7, [0, 4]), (8, [0, 2, 4]), (12, [0, 1, 2, 4]), (100, [0, 1, 2, 3, 4])],
)
def test_rankings_are_renewed_once_in_i_log_i_triples(users: int, cuts: list[int]) -> None:
    """64 items and 96 triples of every user: 64 * 6 are those of four users."""
    solver = solver_of([list(range(64))] * users, 64, blocks=4, samples=96)
    assert solver._cuts() == cuts


def test_every_renewal_ranks_the_items_as_they_are_by_then() -> None:
    renewed: list[Array] = []

    class Watched(AdaptiveSolver):
        def _prepare(self) -> Rankings:
            rankings = super()._prepare()
            items = self._rows.items.reshape(-1, LANES)[:, :3].copy()
            np.testing.assert_allclose(rankings.importance, np.std(items, axis=0), rtol=1e-6)
            assert_ranked(self, rankings.slots, items)
            renewed.append(rankings.slots.copy())
            return rankings

    halves = [list(range(0, 64, 2)), list(range(1, 64, 2))]
    solver = solver_of(halves * 6, 64, blocks=4, samples=96, rate=0.1, kind=Watched)
    solver.run_epoch(1)
    assert len(renewed) == 3
    for before, after in pairwise(renewed):
        assert (before != after).any()


def test_an_epoch_draws_negatives_by_rank_within_their_blocks() -> None:
    """One user can be trained, whose items are all alike: biases count the negatives.

    Steps are too small to change a score. Where j is drawn instead of an item i of the user, the
    bias of j falls by the step size times sigma(s(j) - s(i)).
    """
    rate, own = 1e-12, [0, 5, 11, 17, 23, 40]
    solver = solver_of([own, list(range(60))], 60, blocks=2, samples=200_000, rate=rate)
    at = stretched(solver)
    at["user_vectors"][0] = [0.9, -0.4, 0.2]
    at["item_vectors"][own] = [1.0, -2.0, 0.3]
    solver.load_tensors(at)
    samples = solver.run_epoch(1).samples
    x, y = at["user_vectors"][0], at["item_vectors"]
    doubt = 1 / (1 + np.exp((y[own[0]] - y) @ x))
    counts = np.rint(-solver.tensors()["item_bias"] / np.float32(rate) / doubt)
    counts[own] = 0
    assert counts.sum() == pytest.approx(samples, rel=1e-3)
    weights = np.std(y, axis=0)
    for block in np.split(solver._builder.deal(seed=0, epoch=1), 2):
        seen = {place for place, item in enumerate(block) if item in own}
        assert seen, "else nothing is drawn from it"
        shares = expected_shares(x, y[block], weights, 0.3, seen)
        assert_shares(counts[block], shares)
