"""The mixture of translations as a model: scores, newcomers, explanations, additions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.evaluation.scorers import held_out_ranks
from tests.models.mixture_oracle import Oracle

from transcf import Interactions, TransCFMixture, leave_one_out, read_interactions, synthesize
from transcf.data.csr import Csr, Histories
from transcf.errors import EvaluationError
from transcf.kernels.ahead import Job
from transcf.models.fitted import TrainingData
from transcf.models.mixture import model as model_module
from transcf.models.mixture import scoring
from transcf.models.mixture.fitted import Mixture
from transcf.parallel import use_threads
from transcf.retrieval import topk as tiles
from transcf.retrieval.scorer import Scorer

SMALL = {"dim": 12, "epochs": 4}


@pytest.fixture(scope="module")
def log() -> Interactions:
    return synthesize(users=120, items=50, interactions=1500, seed=3)


@pytest.fixture(scope="module", params=["learned", "context"])
def model(request: pytest.FixtureRequest, log: Interactions) -> TransCFMixture:
    return TransCFMixture(**SMALL, user_vectors=request.param).fit(log)


def learned_by(model: TransCFMixture) -> Mixture:
    learned = model.learned_
    assert isinstance(learned, Mixture)
    return learned


def oracle_of(model: TransCFMixture) -> Oracle:
    learned = learned_by(model)
    arrays = (learned.users, learned.items, learned.history, learned.bias)
    return Oracle(
        *(array.astype(np.float64) for array in arrays), histories=[], negatives=np.arange(0),
        tau=model.tau, beta=model.beta, tied=model.tie_item_vectors,
    )  # fmt: skip


def weights(length: int, rho: float) -> np.ndarray:
    return np.arange(length, 0, -1.0) ** -rho


@pytest.mark.parametrize(
    "changes", [{}, {"tie_item_vectors": True}, {"user_vectors": "context"}, {"tau": 10.0}]
)
def test_scores_are_those_of_the_formula(log: Interactions, changes: dict) -> None:
    model = TransCFMixture(**SMALL, **changes).fit(log)
    oracle, users = oracle_of(model), np.array([0, 7, 50], np.int32)
    block = model.scores(users)
    for row, user in enumerate(users):
        history = model.histories_[user].tolist()
        by_place = weights(len(history), model.history_decay)
        expected = [oracle.score(user, history, by_place, item) for item in range(log.n_items)]
        np.testing.assert_allclose(block[row], expected, rtol=2e-5, atol=2e-5)
        pairs = model.scores(np.full(5, user, np.int32), np.arange(5, dtype=np.int32))
        np.testing.assert_allclose(pairs, expected[:5], rtol=1e-5, atol=1e-5)


def test_without_times_no_place_counts_more(log: Interactions) -> None:
    pairs = read_interactions(log.to_frame().select("user_id", "item_id"))
    faded, even = (TransCFMixture(**SMALL, history_decay=rho).fit(pairs) for rho in (3.0, 0.0))
    everybody = np.arange(pairs.n_users, dtype=np.int32)
    np.testing.assert_array_equal(faded.scores(everybody), even.scores(everybody))


def test_without_tau_histories_say_nothing(log: Interactions) -> None:
    model = TransCFMixture(**SMALL, tau=0.0).fit(log)
    learned = learned_by(model)
    away = ((learned.users[:, None] - learned.items[None]) ** 2).sum(axis=2)
    expected = learned.bias - model.beta * away
    found = model.scores(np.arange(log.n_users, dtype=np.int32))
    lead = expected - expected.mean(axis=1, keepdims=True)
    np.testing.assert_allclose(found - found.mean(axis=1, keepdims=True), lead, atol=2e-5)


def test_debias_takes_popularity_out_of_scores() -> None:
    log = synthesize(users=300, items=40, interactions=3000, seed=2)
    everybody, popularity = np.arange(log.n_users), np.log(log.by_item.counts)

    def slope(debias: float) -> float:
        model = TransCFMixture(dim=4, epochs=30, popularity_correction=debias).fit(log)
        scores = model.scores(everybody.astype(np.int32)).mean(axis=0)
        return float(np.polyfit(popularity, scores, 1)[0])

    assert slope(0.0) - slope(1.0) == pytest.approx(1.0, abs=0.2)


def test_leaving_an_item_out_changes_the_score_by_what_its_share_says(
    model: TransCFMixture,
) -> None:
    learned, oracle = learned_by(model), oracle_of(model)
    for user, item in ((0, 3), (5, 11), (17, 40)):
        history = model.histories_[user]
        found = learned.contributions(history, item)
        assert found.effects.sum() == pytest.approx(1)
        assert (found.effects >= 0).all()
        by_place, top = weights(len(history), model.history_decay), int(found.effects.argmax())
        whole = oracle.score(user, history.tolist(), by_place, item)
        less = oracle.score(user, np.delete(history, top).tolist(), np.delete(by_place, top), item)
        assert less - whole == pytest.approx(np.log1p(-found.effects[top]), abs=1e-5)


def test_explanations_say_so(model: TransCFMixture) -> None:
    user = model.users_.series[0]
    item = model.recommend(user, k=1)["item_id"][0]
    text = str(model.explain(user, item))
    assert "log(1 - x)" in text
    assert "share in the score" in text


def test_order_counts_for_somebody_new(model: TransCFMixture) -> None:
    ids = model.items_.series[:4].to_list()
    there, back = (model.recommend_for(history, k=10) for history in (ids, ids[::-1]))
    assert not there.equals(back)


def test_additions_are_heard_at_once(log: Interactions) -> None:
    model = TransCFMixture(**SMALL).fit(log)
    before = learned_by(model)
    user, items = log.users.series[0], log.items.series
    own = set(model.histories_[0].tolist())
    other = next(row for row in range(log.n_items) if row not in own)
    added = pl.DataFrame(
        {
            "user": [user, "stranger", "stranger"],
            "item": [items[other], items[1], "novelty"],
            "timestamp": [2_000_000_000, 2_000_000_001, 2_000_000_002],
        }
    )
    model.partial_fit(read_interactions(added))
    after = learned_by(model)
    row = int(model.users_.rows(pl.Series([user]))[0])
    assert model.items_.ids(model.histories_[row][-1:]).to_list() == [items[other]]
    rows = model.items_.rows(log.items.series)
    np.testing.assert_array_equal(after.items[rows], before.items)
    np.testing.assert_array_equal(after.history[rows], before.history)
    assert model.recommend("stranger", k=3).shape == (3, 4)
    assert np.isfinite(after.items).all()


def test_translations_go_from_the_user_toward_the_history(model: TransCFMixture) -> None:
    learned = learned_by(model)
    user, item = 4, 9
    history = model.histories_[user]
    shares = learned.shares(Histories.of([history], 50), np.array([item], np.int32))
    middle = (shares[:, None] * learned.history[history]).sum(axis=0)
    expected = model.tau / (model.tau + model.beta) * (middle - learned.users[user])
    pairs = pl.DataFrame({"user": [model.users_.series[user]], "item": [model.items_.series[item]]})
    found = model.translation(pairs)["translation"].to_numpy()[0]
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_points_stay_in_the_ball(model: TransCFMixture) -> None:
    learned = learned_by(model)
    for points in (learned.users, learned.items, learned.history):
        assert np.linalg.norm(points, axis=1).max() <= 1 + 1e-6


@pytest.mark.parametrize("changes", [{}, {"tie_item_vectors": True, "beta": 0.5}, {"trend": 1.0}])
def test_tiles_are_those_of_the_scores(log: Interactions, changes: dict) -> None:
    model = TransCFMixture(**SMALL, **changes).fit(log)
    users, items = np.arange(log.n_users, dtype=np.int32), np.arange(3, log.n_items, dtype=np.int32)
    source, tile = model._open_block(users, items), np.empty((len(users), len(items)), np.float32)
    source.fill(items, tile)
    expected = model.scores(users)[:, items]
    np.testing.assert_allclose(tile, expected, rtol=1e-5, atol=1e-5)
    pairs = model.scores(np.repeat(users, len(items)), np.tile(items, len(users)))
    assert (np.abs(tile - pairs.reshape(tile.shape)).max(axis=1) <= source.error).all()


def test_lists_for_everybody_are_those_of_the_formula(model: TransCFMixture) -> None:
    oracle = oracle_of(model)
    lists = model.recommend(model.users_.series, k=5)
    for user in range(0, len(model.users_), 11):
        history = model.histories_[user].tolist()
        by_place = weights(len(history), model.history_decay)
        scores = np.array([oracle.score(user, history, by_place, i) for i in range(50)])
        scores[history] = -np.inf
        expected = model.items_.ids(np.argsort(-scores)[:5].astype(np.int32)).to_list()
        own = lists.filter(pl.col("user_id") == model.users_.series[user])
        assert own["item_id"].to_list() == expected


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("changes", [{}, {"trend": 1.0, "user_vectors": "context"}])
def test_many_are_ranked_as_pairs_are_scored(
    log: Interactions, changes: dict, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever tiles say, lists and ranks are those of the scores of pairs."""
    split = leave_one_out(log)
    model = TransCFMixture(**SMALL, **changes).fit(split.before_test)
    monkeypatch.setattr(tiles, "TILE_BYTES", 4 * 16)
    monkeypatch.setattr(tiles, "STRETCH", 16)
    known, held_out = split.before_test.by_user, split.test.by_user
    with use_threads(threads):
        found = held_out_ranks(model, split.test, known, "pessimistic", list_length=5)
    for place, user in enumerate(found.users):
        every = np.arange(log.n_items, dtype=np.int32)
        scores = model.scores(np.full(log.n_items, user, np.int32), every)
        open_items = np.setdiff1d(np.flatnonzero(model.rankable), known.row(user))
        (target,) = held_out.row(user)
        rank = (scores[open_items] >= scores[target]).sum()
        assert found.ranks[place] == rank
        best = open_items[np.lexsort((open_items, -scores[open_items]))[:5]]
        np.testing.assert_array_equal(found.lists[place], best)


def test_equal_items_tie_in_tiles(log: Interactions, model: TransCFMixture) -> None:
    """Items with the same points score alike to the bit, and go by row."""
    learned = learned_by(model)
    twins = {
        name: np.repeat(getattr(learned, name)[::2], 2, axis=0)
        for name in ("items", "history", "bias")
    }
    everybody = np.arange(log.n_users, dtype=np.int32)
    items, scores = learned.changed(**twins).top_k(everybody, 20)
    np.testing.assert_array_equal(items[:, 0::2] + 1, items[:, 1::2])
    np.testing.assert_array_equal(scores[:, 0::2], scores[:, 1::2])


def test_nobody_asked_for_gets_nothing(model: TransCFMixture) -> None:
    assert model.scores(np.empty(0, np.int32)).shape == (0, 50)
    assert model.recommend([], k=3).shape == (0, 4)


def test_users_of_one_event_stand_where_somebody_new_would(log: Interactions) -> None:
    table = log.to_frame().select("user_id", "item_id", "timestamp")
    alone = pl.DataFrame({"user_id": ["alone"], "item_id": ["rarity"], "timestamp": [5]})
    model = TransCFMixture(**SMALL).fit(
        read_interactions(pl.concat([table, alone.cast(table.schema)]))
    )
    learned = learned_by(model)
    row = int(model.users_.rows(pl.Series(["alone"]))[0])
    item = int(model.items_.rows(pl.Series(["rarity"]))[0])
    np.testing.assert_array_equal(learned.users[row], learned.items[item])
    np.testing.assert_array_equal(learned.history[item], learned.items[item])


def test_items_known_by_name_alone_are_placed_when_they_come(log: Interactions) -> None:
    late = log.item_rows == log.item_rows.max()
    train, rest = log.select(~late), log.select(late)
    model = TransCFMixture(**SMALL).fit(train)
    model.partial_fit(rest)
    learned, row = learned_by(model), int(log.item_rows.max())
    np.testing.assert_array_equal(learned.history[row], learned.items[row])
    assert model.rankable[row]


def test_points_far_beyond_the_ball_have_no_table(log: Interactions) -> None:
    model = TransCFMixture(**SMALL).fit(log)
    learned = learned_by(model)
    far = learned.changed(items=50 * learned.items)
    assert far._block_users() is None
    check_lists(far, np.arange(0, log.n_users, 7, dtype=np.int32), 5, learned.known.seen)


def test_scores_do_not_depend_on_threads(model: TransCFMixture) -> None:
    everybody = np.arange(len(model.users_), dtype=np.int32)
    found = []
    for threads in (1, 3):
        with use_threads(threads):
            found.append(model.scores(everybody))
    np.testing.assert_array_equal(*found)


def check_lists(
    scorer: Scorer, users: np.ndarray, k: int, seen: Csr | None, allowed: np.ndarray | None = None
) -> None:
    """Compare lists with those of all scores in float64."""
    items, scores = scorer.top_k(users, k, seen=seen, allowed=allowed)
    every = np.flatnonzero(scorer.rankable if allowed is None else allowed)
    for n, user in enumerate(users):
        hidden = np.empty(0, np.int32) if seen is None else seen.row(user)
        left = np.setdiff1d(every, hidden).astype(np.int32)
        true = scorer.scores(np.full(len(left), user, np.int32), left)
        order = np.lexsort((left, -true))[:k]
        np.testing.assert_array_equal(items[n, : len(order)], left[order])
        np.testing.assert_array_equal(scores[n, : len(order)], true[order])
        assert (items[n, len(order) :] == -1).all()
        assert np.isnan(scores[n, len(order) :]).all()


def random_mixture(seed: int, n_items: int, longest: int, **settings: Any) -> Mixture:
    """Vectors of a few clusters, where many bounds are near the scores; some items are equal."""
    rng = np.random.default_rng(seed)
    n_users, dim = 12, int(rng.choice([3, 16, 20]))
    lengths = rng.integers(1, min(longest, n_items) + 1, n_users)
    lengths[0] = 1
    histories = [rng.choice(n_items, length, replace=False) for length in lengths]
    owners = np.repeat(np.arange(n_users), lengths)
    table = {"user": owners, "item": np.concatenate(histories)}
    if rng.random() < 0.5:
        table["timestamp"] = np.arange(len(owners))
    extra = pl.DataFrame({"user": np.zeros(n_items, int) + n_users, "item": np.arange(n_items)})
    events = pl.concat([pl.DataFrame(table), extra], how="diagonal").fill_null(0)
    centres = rng.standard_normal((5, dim))

    def vectors(n: int) -> np.ndarray:
        drawn = centres[rng.integers(0, 5, n)] + rng.standard_normal((n, dim)) / 4
        return (drawn / np.linalg.norm(drawn, axis=1, keepdims=True)).astype(np.float32)

    items = vectors(n_items)
    items[1::3] = items[: len(items[1::3])]
    model = TransCFMixture(dim=dim, **settings).settings
    known = TrainingData.of(read_interactions(events))
    bias = rng.choice([0.0, 1.0, 5.0]) * rng.standard_normal(n_items).astype(np.float32)
    return Mixture(
        known, model, users=vectors(n_users + 1), items=items, history=vectors(n_items),
        bias=bias.astype(np.float32),
    )  # fmt: skip


@given(
    st.integers(0, 10**6), st.sampled_from([1, 5, 40, 300, 1500]), st.sampled_from([1, 6, 70]),
    st.sampled_from([1, 10, 60]), st.sampled_from([0.0, 2.0, 10.0]),
    st.sampled_from([0.0, 2.0, 10.0]), st.sampled_from([0.0, 1.5, 50.0]),
    st.sampled_from([1.0, 0.5, 0.01]),
)  # fmt: skip
@settings(deadline=None, max_examples=60)
def test_lists_are_those_of_all_scores(
    seed: int, n_items: int, longest: int, k: int, tau: float, beta: float, decay: float,
    share: float,
) -> None:  # fmt: skip
    learned = random_mixture(seed, n_items, longest, tau=tau, beta=beta, history_decay=decay)
    rng = np.random.default_rng(seed)
    users = np.arange(12, dtype=np.int32)
    seen = learned.known.seen if seed % 3 else None
    allowed = None if share == 1 else rng.random(n_items) < share
    check_lists(learned, users, k, seen, allowed)
    newcomers = learned.fold_in(learned.known.histories.take(users))
    check_lists(newcomers, users, k, learned.known.seen.take(users) if seed % 2 else None, allowed)


@pytest.mark.parametrize("spare", [1, 256])
def test_many_equal_items_go_by_row(spare: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scoring, "_SPARE", spare)
    learned = random_mixture(5, 900, 20)
    same = learned.changed(items=np.tile(learned.items[:1], (900, 1)), bias=0 * learned.bias)
    check_lists(same, np.arange(12, dtype=np.int32), 10, learned.known.seen)


def test_lists_do_not_depend_on_who_else_is_asked_for(model: TransCFMixture) -> None:
    learned = learned_by(model)
    users = np.flatnonzero(learned.known.active).astype(np.int32)
    everybody = learned.top_k(users, 10, seen=learned.known.seen)
    for some in (slice(0, 1), slice(5, 8)):
        found = learned.top_k(users[some], 10, seen=learned.known.seen)
        for part, whole in zip(found, everybody, strict=True):
            np.testing.assert_array_equal(part, whole[some])


def test_vectors_that_are_not_finite_are_refused(log: Interactions, model: TransCFMixture) -> None:
    learned = learned_by(model)
    if learned.is_context:
        pytest.skip("the means of contexts are not finite then")
    items = learned.items.copy()
    items[7] = np.nan
    broken, allowed = learned.changed(items=items), np.arange(log.n_items) != 7
    users = np.arange(3, dtype=np.int32)
    with pytest.raises(EvaluationError, match="NaN or infinite"):
        broken.top_k(users, 5)
    assert 7 not in broken.top_k(users, 5, allowed=allowed & broken.rankable)[0]


def test_saved_models_have_the_nearest_items(model: TransCFMixture, tmp_path: Path) -> None:
    model.save(tmp_path / "model")
    loaded = TransCFMixture.load(tmp_path / "model")
    near, stored = learned_by(loaded)._stored, learned_by(model).stored_arrays()
    assert near is not None
    np.testing.assert_array_equal(near.items, stored["neighbor_items"])
    assert "neighbor_items" not in learned_by(loaded).arrays()
    assert loaded.recommend(k=5).equals(model.recommend(k=5))


@pytest.mark.parametrize("case", ["a single item", "a first user without events"])
def test_what_is_compiled_ahead_is_found_with_any_log(
    case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which the first fit of an installation does."""
    jobs = list[Job]()
    monkeypatch.setattr(model_module, "is_first_use", lambda kernel: True)
    monkeypatch.setattr(scoring, "compile_ahead", lambda found, urgent: jobs.extend(found))
    events = pl.DataFrame({"user": [1, 2, 2, 3, 3], "item": [1, 1, 2, 1, 2]})
    log = read_interactions(events)
    if case == "a single item":
        log = read_interactions(events.filter(pl.col("item") == 1))
    else:
        log = log.select(log.user_rows > 0)
    model = TransCFMixture(dim=4, epochs=1).fit(log)
    assert len(jobs) == 6
    assert len(model.recommend(3, k=1, exclude_seen=False)) == 1
