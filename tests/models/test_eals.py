"""eALS against its loss over all pairs, minimised without any of the method's formulas."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st
from tests.models.als_dense import Dense, dense_eals
from tests.models.test_ials import csr, matrix, random_start, vectors

from transcf.data.interactions import Interactions
from transcf.data.readers import read_interactions
from transcf.errors import DataError, DivergenceError, ParameterError
from transcf.kernels.als import solve_rows
from transcf.kernels.als_elements import descend_rows
from transcf.models import eals
from transcf.models.alternation import ALSObjective, ALSProblem, Alternation
from transcf.models.eals import EALS, weights_of_items
from transcf.models.registry import load
from transcf.models.training import FitOptions
from transcf.parallel import thread_count, use_threads

#: For a few hundred interactions; the defaults are for larger data.
SMALL = {"unobserved_weight": 6.0, "regularization": 0.05}


def objective_of(dense: Dense, c: np.ndarray) -> ALSObjective:
    return ALSObjective(c, c, dense.user_ridges, dense.item_ridges)


def alternation(
    R: np.ndarray, start: list[np.ndarray], exact: bool = False, **settings: float
) -> tuple[Alternation, Dense]:
    model = EALS(**settings)
    dense = dense_eals(R, model.unobserved_weight, model.popularity_power, model.regularization)
    c = weights_of_items(model.settings, R.sum(axis=0)).astype(np.float64)
    solver = solve_rows if exact else partial(descend_rows, dim=start[0].shape[1])
    state = Alternation(ALSProblem(csr(R), csr(R.T), objective_of(dense, c)), solver, *start)
    # Weights are kept in float32: the oracle takes the same.
    return state, replace(dense, weights=np.where(R > 0, 1.0, c))


def lowest(loss: Callable[[float], float]) -> float:
    """Where a parabola is lowest, from three of its values."""
    left, middle, right = loss(-1.0), loss(0.0), loss(1.0)
    return (left - right) / (2 * (left - 2 * middle + right))


def minimise_numbers(row_loss: Callable[[np.ndarray], float], x: np.ndarray) -> np.ndarray:
    """Set one number of x after the other to its minimum."""
    x = x.astype(np.float64)
    for k in range(len(x)):
        step = np.eye(len(x))[k]
        x = x + step * lowest(lambda t, x=x, step=step: row_loss(x + t * step))
    return x


def test_every_number_is_set_to_its_minimum(random_log: Interactions) -> None:
    R = matrix(random_log)[:25]
    state, dense = alternation(R, random_start(R, 5), unobserved_weight=9.0, regularization=0.05)
    users, items = vectors(state)
    state.solve_users()
    found, _ = vectors(state)
    for u in range(len(R)):

        def row_loss(x: np.ndarray, u: int = u) -> float:
            errors = dense.weights[u] * (R[u] - items @ x) ** 2
            return float(errors.sum() + dense.user_ridges[u] * x @ x)

        if R[u].any():
            np.testing.assert_allclose(found[u], minimise_numbers(row_loss, users[u]), atol=1e-8)
    state.solve_items()
    _, solved = vectors(state)
    for i in range(R.shape[1]):

        def column_loss(y: np.ndarray, i: int = i) -> float:
            errors = dense.weights[:, i] * (R[:, i] - found @ y) ** 2
            return float(errors.sum() + dense.item_ridges[i] * y @ y)

        if R[:, i].any():
            expected = minimise_numbers(column_loss, items[i])
            np.testing.assert_allclose(solved[i], expected, atol=1e-8)


def test_the_slope_by_the_last_number_is_zero(random_log: Interactions) -> None:
    R = matrix(random_log)
    state, dense = alternation(R, random_start(R, 7), **SMALL)
    state.run_epoch(1)
    users, items = vectors(state)
    for i in np.flatnonzero(R.any(axis=0))[:10]:
        there, back = items.copy(), items.copy()
        there[i, -1] += 1e-4
        back[i, -1] -= 1e-4
        slope = (dense.loss(users, there) - dense.loss(users, back)) / 2e-4
        assert slope == pytest.approx(0.0, abs=1e-6)


@given(
    shape=st.tuples(st.integers(1, 14), st.integers(1, 11)),
    density=st.floats(0.05, 1.0),
    dim=st.integers(1, 20),
    weight=st.floats(0.01, 20.0),
    power=st.floats(0.0, 1.5),
    regularization=st.sampled_from([1e-9, 1e-3, 0.5]),
    seed=st.integers(0, 1000),
)
@examples(max_examples=40)
def test_no_half_step_raises_the_loss(
    shape: tuple[int, int], density: float, dim: int, weight: float, power: float,
    regularization: float, seed: int,
) -> None:  # fmt: skip
    R = (np.random.default_rng(seed).random(shape) < density).astype(np.float64)
    if not R.any():
        return
    state, dense = alternation(
        R, random_start(R, dim, seed), unobserved_weight=weight, popularity_power=power,
        regularization=regularization,
    )  # fmt: skip
    before = dense.loss(*vectors(state))
    for _ in range(3):
        for half_step in (state.solve_users, state.solve_items):
            told = half_step()
            after = dense.loss(*vectors(state))
            assert told == pytest.approx(after, rel=1e-9, abs=1e-9)
            assert after <= before * (1 + 1e-12) + 1e-12
            before = after


def test_it_ends_where_exact_alternation_ends(random_log: Interactions) -> None:
    R = matrix(random_log)[:30, 5:30]
    R = R[R.any(axis=1)][:, R.any(axis=0)]
    start, settings = random_start(R, 6), {"unobserved_weight": 4.0, "regularization": 1.0}
    state, dense = alternation(R, start, **settings)
    # Also the benchmark's peer: the same objective, solved exactly row by row.
    exact, _ = alternation(R, start, exact=True, **settings)
    items = start[1]
    for epoch in range(150):
        state.run_epoch(epoch)
        exact.run_epoch(epoch)
        users = dense.best_users(items)
        items = dense.best_items(users)
    np.testing.assert_allclose(vectors(exact)[1], items, atol=1e-9)
    oracle = dense.loss(users, items)
    assert dense.loss(*vectors(state)) == pytest.approx(oracle, rel=1e-6)


def test_popular_items_weigh_more(random_log: Interactions) -> None:
    model = EALS(dim=4, unobserved_weight=8.0, popularity_power=0.5, epochs=1).fit(random_log)
    roots = np.sqrt(random_log.by_item.counts)
    np.testing.assert_allclose(model.item_weights_, 8.0 * roots / roots.sum(), rtol=1e-6)
    dense = dense_eals(matrix(random_log), 8.0, 0.5, model.settings_.regularization)
    mean = dense.loss(model.user_vectors_, model.item_vectors_) / len(random_log)
    assert model.history_["loss"][-1] == pytest.approx(mean, rel=1e-5)


def test_a_history_is_solved_exactly(random_log: Interactions) -> None:
    model = EALS(dim=10, epochs=4, **SMALL).fit(random_log)
    rows = np.array([2, 5, 30])
    weights = model.item_weights_[None].astype(np.float64)
    weights[0, rows] = 1
    targets = np.zeros_like(weights)
    targets[0, rows] = 1
    alone = Dense(weights, targets, 0.0, np.array([model.regularization]), np.empty(0))
    expected = model.item_vectors_ @ alone.best_users(model.item_vectors_)[0]
    history = model.items_.ids(rows).to_list()
    table = model.recommend_for(history, k=100, exclude_seen=False)
    found = model.items_.rows(table["item_id"])
    np.testing.assert_allclose(table["score"], expected[found], atol=1e-3)


def test_guests_need_a_ridge(random_log: Interactions) -> None:
    with pytest.raises(ParameterError, match=r"regularization=0 .*above 0"):
        EALS(regularization=0).fit(random_log)
    history = random_log.items.series[[2, 5, 30]].to_list()
    # Five numbers in a row of sixteen: the matrix has rows of nothing but the ridge.
    tiny = EALS(dim=5, epochs=3, unobserved_weight=6.0, regularization=1e-12).fit(random_log)
    assert tiny.recommend_for(history, k=60)["score"].is_finite().all()
    none = EALS(dim=5, epochs=3, unobserved_weight=6.0, regularization=1e-60).fit(random_log)
    with pytest.raises(DivergenceError, match=r"regularization is too small .*float32; fit with"):
        none.recommend_for(history)


def test_bits_hold_for_threads_and_resumption(random_log: Interactions, tmp_path: Path) -> None:
    def fit(epochs: int, threads: int, folder: Path | None = None) -> bytes:
        options = FitOptions(checkpoint=folder, resume=True, threads=threads)
        model = EALS(dim=20, epochs=epochs, **SMALL).fit(random_log, options=options)
        return model.user_vectors_.tobytes() + model.item_vectors_.tobytes()

    whole = fit(5, 1)
    assert fit(5, 2) == fit(5, 3) == whole
    assert fit(2, 1, tmp_path) != whole
    assert fit(5, 2, tmp_path) == whole


# -- new interactions ------------------------------------------------------------------------


def today(events: list[tuple[int, str, int]]) -> Interactions:
    users, items, times = zip(*events, strict=True)
    return read_interactions(pl.DataFrame({"user": users, "item": items, "timestamp": times}))


def by_id(model: EALS) -> tuple[dict, dict]:
    users = dict(zip(model.users_.series, model.user_vectors_.astype(np.float64), strict=True))
    items = dict(zip(model.items_.series, model.item_vectors_.astype(np.float64), strict=True))
    return users, items


class Online:
    """The online rule over dictionaries: known pairs with their weights, one event at a time."""

    def __init__(self, model: EALS) -> None:
        self.users, self.items = by_id(model)
        self.c = dict(zip(model.items_.series, model.item_weights_.tolist(), strict=True))
        pairs = zip(
            model.users_.ids(model.seen_.entry_rows), model.items_.ids(model.seen_.indices),
            strict=True,
        )  # fmt: skip
        self.weights = dict.fromkeys(pairs, 1.0)
        self.ridge = model.regularization

    def _error(self, user: int, item: str, score: float) -> float:
        if (user, item) in self.weights:
            return self.weights[user, item] * (1 - score) ** 2
        return self.c[item] * score**2

    def learn(self, user: int, item: str, weight: float, steps: int) -> None:
        self.weights[user, item] = weight
        for _ in range(steps):
            self.users[user] = minimise_numbers(
                lambda x: (
                    self.ridge * x @ x
                    + sum(self._error(user, other, x @ y) for other, y in self.items.items())
                ),
                self.users[user],
            )
            self.items[item] = minimise_numbers(
                lambda y: (
                    self.ridge * y @ y
                    + sum(self._error(other, item, x @ y) for other, x in self.users.items())
                ),
                self.items[item],
            )


@pytest.fixture
def online_model(random_log: Interactions) -> EALS:
    return EALS(dim=3, epochs=5, online_steps=2, w_new=3.0, **SMALL).fit(random_log)


def test_online_updates_follow_the_rule(online_model: EALS) -> None:
    reference = Online(online_model)
    before = by_id(online_model)
    seen = set(reference.weights)
    fresh = [
        (user, item)
        for user in (0, 5)
        for item in online_model.items_.series[[10, 20, 30]]
        if (user, item) not in seen
    ]
    assert fresh
    known = next(iter(seen))
    events = [(user, item, 10 - n) for n, (user, item) in enumerate(fresh)]
    online_model.partial_fit(today([*events, (*known, 0)]))
    for user, item in fresh[::-1]:  # by time, not by id
        reference.learn(user, item, 3.0, 2)
    after = by_id(online_model)
    for found, expected, old, touched in zip(
        after, (reference.users, reference.items), before, zip(*fresh, strict=True), strict=True
    ):
        for key, vector in found.items():
            np.testing.assert_allclose(vector, expected[key], atol=2e-4)
            assert (vector == old[key]).all() == (key not in touched)


def test_new_users_and_items_are_learned(online_model: EALS, tmp_path: Path) -> None:
    before = by_id(online_model)
    pairs = len(online_model.seen_.indices)
    log = today([(-4, "item 00", 1), (-4, "aardvark", 2), (7, "aardvark", 3), (99, "zebra", 4)])
    online_model.partial_fit(log)
    users, items = by_id(online_model)
    assert set(users) - set(before[0]) == {-4, 99}
    assert set(items) - set(before[1]) == {"aardvark", "zebra"}
    for key in set(before[0]) - {7}:
        assert (users[key] == before[0][key]).all()
    assert users[-4] @ items["item 00"] > 0.3
    assert users[-4] @ items["aardvark"] > 0.3
    assert len(online_model.seen_.indices) == pairs + 4
    assert "aardvark" not in online_model.recommend(7, k=100)["item_id"].to_list()
    assert "aardvark" in online_model.recommend(8, k=100)["item_id"].to_list()
    weights = online_model.interaction_weights_
    assert (weights == 3.0).sum() == 4
    assert (weights == 1.0).sum() == pairs
    assert online_model.report_["additions"] == 1
    loaded = load(online_model.save(tmp_path / "model"))
    assert isinstance(loaded, EALS)
    for model in (online_model, loaded):
        model.partial_fit(today([(3, "aardvark", 1), (-4, "item 03", 1)]))
    assert loaded.recommend().equals(online_model.recommend())
    assert (loaded.interaction_weights_ == 3.0).sum() == 6


def test_ids_without_interactions_stay_out(random_log: Interactions) -> None:
    """Neither a user nor an item that only the ids know gets a vector or a weight."""
    idle_user, idle_item = 3, 4
    part = random_log.select(
        (random_log.user_rows != idle_user) & (random_log.item_rows != idle_item)
    )
    model = EALS(dim=4, epochs=3, **SMALL).fit(part)
    model.partial_fit(today([(200, "item 00", 1), (200, "yak", 2)]))
    assert not model.user_vectors_[idle_user].any()
    row = int(model.items_.rows([random_log.items.series[idle_item]])[0])
    assert not model.item_vectors_[row].any()
    assert model.item_weights_[row] == 0
    yak = model.item_weights_[model.items_.rows(["yak"])[0]]
    assert yak == pytest.approx(6.0 / np.count_nonzero(part.by_item.counts))


def test_new_items_weigh_the_same_together_or_one_by_one(random_log: Interactions) -> None:
    events = [(1, "aardvark", 1), (2, "zebra", 2)]
    together, apart = (
        EALS(dim=4, epochs=1, popularity_power=0.5, **SMALL).fit(random_log) for _ in range(2)
    )
    mean = together.item_weights_.mean()
    together.partial_fit(today(events))
    for event in events:
        apart.partial_fit(today([event]))
    np.testing.assert_allclose(apart.item_weights_, together.item_weights_, rtol=1e-6)
    assert apart.item_weights_[apart.items_.rows(["zebra"])[0]] == pytest.approx(mean)


def test_new_interactions_use_so_many_threads(
    online_model: EALS, monkeypatch: pytest.MonkeyPatch
) -> None:
    used, learn_log = [], eals.learn_log

    def spy(*args: object) -> object:
        used.append(thread_count())
        return learn_log(*args)

    monkeypatch.setattr(eals, "learn_log", spy)
    before = thread_count()
    for threads in (1, 3, None):
        with use_threads(threads):
            online_model.partial_fit(today([(1, f"new {threads}", 1)]))
    assert used == [1, 3, before]
    assert thread_count() == before


def test_a_model_that_takes_in_nothing_stays_as_it_is(online_model: EALS) -> None:
    log = today([(1, "item 01", 1)])
    with pytest.raises(DataError, match="nothing to add"):
        online_model.partial_fit(log.select(np.zeros(1, bool)))
    with pytest.raises(DataError, match="user ids of the model are integers"):
        online_model.partial_fit(
            read_interactions(pl.DataFrame({"user": ["ann"], "item": ["item 01"]}))
        )
    seen = online_model.seen_
    first = (int(seen.entry_rows[0]), int(seen.indices[0]))
    pair = online_model.users_.series[first[0]], online_model.items_.series[first[1]]
    before = by_id(online_model)
    online_model.partial_fit(today([(*pair, 1)]))
    for old, new in zip(before, by_id(online_model), strict=True):
        assert all((old[key] == new[key]).all() for key in old)


def test_growing_online_tells_what_is_missed(random_log: Interactions) -> None:
    """Interactions taken in online are explained better than if they were left out."""
    late = np.random.default_rng(4).random(len(random_log)) < 0.2
    model = EALS(dim=8, epochs=20, **SMALL).fit(random_log.select(~late))
    users, items = random_log.user_rows[late], random_log.item_rows[late]
    before = model.scores(users, items)
    model.partial_fit(random_log.select(late))
    after = model.scores(users, items)
    assert np.mean((1 - after) ** 2) < 0.3 * np.mean((1 - before) ** 2)
