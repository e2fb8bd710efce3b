"""iALS and eALS with events that count more or less, against the objective over all pairs."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import polars as pl
import pytest
from tests.models.als_dense import Dense, dense_eals, dense_ials
from tests.models.test_ials import csr, random_start, vectors

from transcf.data.interactions import Interactions
from transcf.data.readers import read_interactions
from transcf.kernels.als import conjugate_gradient, solve_rows
from transcf.kernels.als_elements import descend_rows
from transcf.models import eals, ials
from transcf.models.alternation import ALSProblem, Alternation
from transcf.models.eals import EALS, weights_of_items
from transcf.models.event_weights import EVEN, EventWeights
from transcf.models.ials import IALS

DIM = 9
IALS_SETTINGS = {"unobserved_weight": 0.3, "regularization": 0.05, "nu": 0.7}
EALS_SETTINGS = {"unobserved_weight": 6.0, "regularization": 0.1, "popularity_power": 0.4}
SOLVERS = {
    "cholesky": solve_rows,
    "cg": partial(conjugate_gradient, steps=3),
    "elements": partial(descend_rows, dim=DIM),
}


def weighted(shape: tuple[int, int], seed: int = 0) -> np.ndarray:
    """How much pairs count, 0 for most of them; some rows and columns have nothing."""
    rng = np.random.default_rng(seed)
    R = np.where(rng.random(shape) < 0.3, rng.gamma(0.7, 1.5, shape) + 1e-3, 0.0)
    R[2], R[:, 3] = 0, 0
    R[R > 0] /= R[R > 0].mean()
    return R


def of_ials(R: np.ndarray) -> tuple[Dense, ials.ALSObjective]:
    model = IALS(**IALS_SETTINGS)
    goal = ials.objective(model.settings, R.sum(axis=0), R.sum(axis=1))
    return dense_ials(R, model.unobserved_weight, model.regularization, model.nu), goal


def of_eals(R: np.ndarray) -> tuple[Dense, ials.ALSObjective]:
    model = EALS(**EALS_SETTINGS)
    c = weights_of_items(model.settings, (R > 0).sum(axis=0)).astype(np.float64)
    dense = dense_eals(R, 6.0, 0.4, model.regularization)
    dense = Dense(np.where(R > 0, R, c), dense.targets, 0.0, dense.user_ridges, dense.item_ridges)
    return dense, eals.objective(model.settings, c, (R > 0).sum(axis=1))


MODELS = pytest.mark.parametrize("model", [of_ials, of_eals])


def alternation(R: np.ndarray, goal: ials.ALSObjective, solver: str, weights: tuple) -> Alternation:
    start = random_start(R, DIM)
    return Alternation(ALSProblem(csr(R), csr(R.T), goal, weights), SOLVERS[solver], *start)


def both_ways(R: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return R[R > 0], R.T[R.T > 0]


@MODELS
def test_exact_rows_solve_the_weighted_normal_equations(model: Callable) -> None:
    R = weighted((40, 23))
    dense, goal = model(R)
    state = alternation(R, goal, "cholesky", both_ways(R))
    _, items = vectors(state)
    told = state.solve_users()
    users, _ = vectors(state)
    np.testing.assert_allclose(users, dense.best_users(items), atol=1e-9)
    assert told == pytest.approx(dense.loss(users, items))
    told = state.solve_items()
    _, items = vectors(state)
    np.testing.assert_allclose(items, dense.best_items(users), atol=1e-9)
    assert told == pytest.approx(dense.loss(users, items))


@MODELS
@pytest.mark.parametrize("solver", SOLVERS)
def test_every_solver_lowers_the_weighted_loss_and_tells_it(model: Callable, solver: str) -> None:
    R = weighted((40, 23), seed=1)
    dense, goal = model(R)
    state = alternation(R, goal, solver, both_ways(R))
    before = dense.loss(*vectors(state))
    for _ in range(5):
        for half_step in (state.solve_users, state.solve_items):
            told, after = half_step(), dense.loss(*vectors(state))
            assert told == pytest.approx(after, rel=1e-9)
            assert after <= before * (1 + 1e-12)
            before = after
    # With the items fixed there is one best place for a user, and each gets there.
    for _ in range(300):
        state.solve_users()
    users, items = vectors(state)
    np.testing.assert_allclose(users, dense.best_users(items), atol=1e-6)


@MODELS
@pytest.mark.parametrize("solver", SOLVERS)
def test_weights_of_one_are_no_weights(model: Callable, solver: str) -> None:
    """Up to rounding: sums are put together otherwise. Settings that weigh alike give none."""
    R = (weighted((40, 23), seed=2) > 0).astype(np.float64)
    _, goal = model(R)
    one = alternation(R, goal, solver, both_ways(R))
    none = alternation(R, goal, solver, (EVEN, EVEN))
    assert one.run_epoch(1).loss == pytest.approx(none.run_epoch(1).loss, rel=1e-12)
    for found, expected in zip(vectors(one), vectors(none), strict=True):
        np.testing.assert_allclose(found, expected, atol=1e-10)


@pytest.fixture(scope="module")
def timed_log() -> Interactions:
    """Two months of events with stars."""
    rng = np.random.default_rng(5)
    pairs = np.unique(np.stack([rng.integers(0, 40, 500), rng.integers(0, 30, 500)]), axis=1)
    when = pl.from_epoch(pl.Series(1_600_000_000 + rng.permutation(pairs.shape[1]) * 9_000))
    stars = rng.integers(1, 6, pairs.shape[1]).astype(float)
    columns = {"user": pairs[0], "item": pairs[1], "rating": stars, "timestamp": when}
    return read_interactions(pl.DataFrame(columns))


def weigh(log: Interactions, recency: float, half_life: float) -> np.ndarray:
    """The weights of pairs, event by event: (n_users, n_items), 1 on average."""
    assert log.timestamps is not None
    assert log.ratings is not None
    R, newest = np.zeros((log.n_users, log.n_items)), log.timestamps.max()
    for user in range(log.n_users):
        events = np.flatnonzero(log.user_rows == user)
        for place, event in enumerate(events[np.argsort(log.timestamps[events])], start=1):
            days = (newest - log.timestamps[event]) / 86_400e6
            by_place = np.exp(recency * (place / len(events) - 1))
            weight = by_place * 0.5 ** (days / half_life) * log.ratings[event]
            R[user, log.item_rows[event]] = weight
    R[R > 0] /= R[R > 0].mean()
    return R


SETTINGS = {"event_weights": EventWeights(recency=1.5, half_life=20.0, confidence="ratings")}


@pytest.mark.parametrize("solver", ["cg", "cholesky"])
def test_ials_weighs_events(timed_log: Interactions, solver: str) -> None:
    own = IALS_SETTINGS | SETTINGS | {"solver": solver, "cg_steps": 8}
    model = IALS(dim=6, epochs=5, **own).fit(timed_log)
    dense, _ = of_ials(weigh(timed_log, 1.5, 20.0))
    found = dense.best_items(model.user_vectors_)
    np.testing.assert_allclose(model.item_vectors_, found, atol=1e-4 * np.abs(found).max())
    mean = dense.loss(model.user_vectors_, model.item_vectors_) / len(timed_log)
    assert model.history_["loss"][-1] == pytest.approx(mean, rel=1e-5)


def test_eals_weighs_events(timed_log: Interactions) -> None:
    model = EALS(dim=6, epochs=5, **EALS_SETTINGS, **SETTINGS).fit(timed_log)
    R = weigh(timed_log, 1.5, 20.0)
    np.testing.assert_allclose(model.interaction_weights_, R[R > 0], rtol=1e-5)
    mean = of_eals(R)[0].loss(model.user_vectors_, model.item_vectors_) / len(timed_log)
    assert model.history_["loss"][-1] == pytest.approx(mean, rel=1e-5)


def test_new_interactions_keep_the_weights_of_old_ones(timed_log: Interactions) -> None:
    model = EALS(dim=6, epochs=5, w_new=3.0, **EALS_SETTINGS, **SETTINGS).fit(timed_log)
    seen, users, items = model.seen_, model.users_, model.items_
    known = zip(users.ids(seen.entry_rows), items.ids(seen.indices), strict=True)
    before = dict(zip(known, model.interaction_weights_.tolist(), strict=True))
    today = {"user": [100, 0], "item": [1, 200], "timestamp": [1_700_000_000, 1_700_000_001]}
    model.partial_fit(read_interactions(pl.DataFrame(today)))
    rows, columns = model.seen_.entry_rows, model.seen_.indices
    pairs = zip(model.users_.ids(rows), model.items_.ids(columns), strict=True)
    expected = [before.get(pair, 3.0) for pair in pairs]
    assert expected.count(3.0) >= 2
    np.testing.assert_array_equal(model.interaction_weights_, np.float32(expected))


@pytest.mark.parametrize("kind", [IALS, EALS])
def test_later_items_of_a_new_history_count_more(
    kind: type[IALS] | type[EALS], timed_log: Interactions
) -> None:
    base = IALS_SETTINGS if kind is IALS else EALS_SETTINGS
    model = kind(dim=6, epochs=10, **base, event_weights=EventWeights(recency=2.0)).fit(timed_log)
    history = np.array([7, 2, 25, 11])
    weights = np.exp(2.0 * (np.arange(1, 5) / 4 - 1))
    guest = np.zeros((1, timed_log.n_items))
    guest[0, history] = weights * 4 / weights.sum()
    if kind is IALS:
        pull = guest + model.unobserved_weight
        ridge = model.regularization * (4 + model.unobserved_weight * guest.size) ** model.nu
        dense = Dense(pull, guest / pull, 0.0, np.array([ridge]), np.zeros(guest.size))
    else:
        pull = np.where(guest > 0, guest, model.item_weights_)
        ridge = np.array([model.regularization])
        dense = Dense(pull, (guest > 0).astype(float), 0.0, ridge, np.zeros(guest.size))
    expected = model.item_vectors_ @ dense.best_users(model.item_vectors_)[0]
    ids = model.items_.ids(history).to_list()
    table = model.recommend_for(ids, k=100, exclude_seen=False)
    found = model.items_.rows(table["item_id"])
    np.testing.assert_allclose(table["score"], expected[found], atol=1e-4)
    best = model.recommend_for(ids, k=1)
    told = model.explain_for(ids, best["item_id"][0], top=10)
    assert told.rest == 0
    total = sum(entry.effect for entry in told.effects)
    assert total == pytest.approx(best["score"][0], abs=1e-4)
    # In another order it is another person; without timestamps it is not.
    turned = model.recommend_for(ids[::-1], k=100, exclude_seen=False)
    assert not turned.equals(table)
    plain = read_interactions(timed_log.to_frame().select("user_id", "item_id"))
    untimed = kind(dim=6, epochs=2, **base, event_weights=EventWeights(recency=2.0)).fit(plain)
    assert untimed.recommend_for(ids, k=9).equals(untimed.recommend_for(ids[::-1], k=9))
