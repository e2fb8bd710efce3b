"""TransCF beyond its own users: folding in, growing, explaining."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from transcf.data.interactions import Interactions
from transcf.data.readers import read_interactions
from transcf.data.synthetic import synthesize
from transcf.errors import DataError, ParameterError
from transcf.models.registry import load
from transcf.models.transcf import TransCF, TransCFSettings
from transcf.models.transcf.fitted import (
    averages,
    by_count,
    fold_users,
    refine_user,
)
from transcf.models.transcf.score_functions import SCORE_FUNCTIONS

DISTANCES = ["translation", "none", "alt"]


@pytest.fixture(scope="module")
def log() -> Interactions:
    return synthesize(users=200, items=90, interactions=4000, seed=3)


@pytest.fixture(scope="module")
def model(log: Interactions) -> TransCF:
    return TransCF(dim=16, epochs=10).fit(log)


def vectors(rng: np.random.Generator, n: int, dim: int = 5) -> np.ndarray:
    return 0.4 * rng.standard_normal((n, dim))


@pytest.mark.parametrize("form", DISTANCES)
def test_the_closed_forms_minimise_the_error_of_known_pairs(form: str) -> None:
    rng = np.random.default_rng(0)
    b, n, weights = vectors(rng, 12), vectors(rng, 12), rng.uniform(0.1, 1, 7)
    rows = rng.permutation(12)[:7]
    means = averages(np.array([0, 7]), rows, weights, 12)

    def user_error(a: np.ndarray, q: np.ndarray) -> float:
        return float(weights @ SCORE_FUNCTIONS[form].pair_cost(a, q, b[rows], n[rows]))

    (a,), (q,) = fold_users(SCORE_FUNCTIONS[form], means, b, n, 1.0)
    np.testing.assert_allclose(q, b[rows].mean(axis=0))
    users, near = vectors(rng, 12), vectors(rng, 12)

    def item_error(b: np.ndarray, n: np.ndarray) -> float:
        return float(SCORE_FUNCTIONS[form].pair_cost(users[rows], near[rows], b, n).sum())

    (item,) = SCORE_FUNCTIONS[form].place_items(means[0], users, near)
    mean = users[rows].mean(axis=0)
    for step in 1e-3 * rng.standard_normal((50, 5)):
        assert user_error(a + step, q) > user_error(a, q)
        assert item_error(item + step, mean) > item_error(item, mean)


def test_steps_lower_the_training_loss() -> None:
    rng = np.random.default_rng(1)
    b, n, bias = vectors(rng, 60), vectors(rng, 60), 0.1 * rng.standard_normal(60)
    items = (b, n, bias)
    rows, pool = np.arange(8), np.arange(8, 60)
    settings = TransCFSettings(
        variant="translation",
        negatives=20,
        margin=1.0,
        learning_rate=0.05,
        reg_distance=0.05,
        reg_neighborhood=0.1,
    )
    form, means = SCORE_FUNCTIONS["translation"], averages(np.array([0, 8]), rows, np.ones(8), 60)
    (a,), (q,) = fold_users(form, means, b, n, 1.0)

    def loss(a: np.ndarray) -> float:
        """The hinge over all negatives at once, plus the regularizers."""
        scores = bias - form.pair_cost(a, q, b, n)
        hinge = np.maximum(0, settings.margin - scores[rows][:, None] + scores[pool]).max(axis=1)
        near = form.pair_cost(a, q, b[rows], n[rows])
        spread = settings.reg_neighborhood * ((a - q) ** 2).sum()
        return float((hinge + settings.reg_distance * near).mean() + spread)

    refined = refine_user(settings, a, q, rows, np.ones(8), items, pool, 10)
    assert loss(refined) < loss(a)
    nothing = refine_user(settings, a, q, rows, np.ones(8), items, pool[:0], 10)
    assert (nothing == a).all()


def test_guests_are_scored_by_the_formula(model: TransCF) -> None:
    history = model.items_.series.to_list()[10:15]
    rows = model.items_.rows(history)
    weights = np.exp(model.learned_.recency * (np.arange(1, 6) / 5 - 1))
    b, n = model.item_vectors_.astype(np.float64), model.item_neighborhoods_.astype(np.float64)
    q = b[rows].mean(axis=0)
    a = np.average(b[rows] - q * n[rows], axis=0, weights=weights)
    scores = model.item_bias_ - ((a + q * n - b) ** 2).sum(axis=1)
    table = model.recommend_for(history, k=1000, exclude_seen=False)
    expected = scores[model.items_.rows(table["item_id"])]
    np.testing.assert_allclose(table["score"], expected, atol=1e-5)
    repeated = [history[4], history[0], *history]
    assert model.recommend_for(repeated, k=1000, exclude_seen=False).equals(table)
    backwards = model.recommend_for(history[::-1], k=1000, exclude_seen=False)
    assert not backwards.equals(table), "order counts, because the log had timestamps"
    refined = model.recommend_for(history, steps=5)
    assert not refined.equals(model.recommend_for(history))
    assert refined.equals(model.recommend_for(history, steps=5)), "the same bits again"
    with pytest.raises(ParameterError, match="steps=-1"):
        model.recommend_for(history, steps=-1)


def test_without_timestamps_the_order_of_a_history_does_not_count(log: Interactions) -> None:
    timeless = read_interactions(log.to_frame().select("user_id", "item_id"))
    model = TransCF(dim=8, epochs=2).fit(timeless)
    history = model.items_.series.to_list()[:4]
    forward, backward = model.recommend_for(history), model.recommend_for(history[::-1])
    assert forward["item_id"].to_list() == backward["item_id"].to_list()


@pytest.mark.parametrize("form", ["translation", "dot", "alt", "none", "emb"])
def test_guests_resemble_the_users_they_were(log: Interactions, form: str) -> None:
    model = TransCF(variant=form, dim=16, epochs=10).fit(log)
    shared = 0
    for user in range(40):
        own = log.by_user.row(user)
        times = log.timestamps[log.by_user.indptr[user] : log.by_user.indptr[user + 1]]
        history = model.items_.ids(own[np.argsort(times, kind="stable")]).to_list()
        trained = model.recommend(log.users.series[user])
        shared += len(set(trained["item_id"]) & set(model.recommend_for(history)["item_id"]))
    assert shared > 0.4 * 400  # by chance about 45


def new_events() -> pl.DataFrame:
    """A new user among old items, a new item of old users, a newcomer with the new item alone."""
    pairs = [("aaa", f"i{n:02}") for n in (1, 5, 9)] + [("zzz", "brand new")]
    pairs += [(f"u{n:03}", "brand new") for n in (3, 4, 5)] + [("u003", "i01"), ("zz2", "newer")]
    pairs += [("aaa", "newer")]
    return pl.DataFrame(pairs, schema=["user_id", "item_id"], orient="row")


@pytest.mark.parametrize("form", ["translation", "dot", "alt", "none"])
def test_a_model_grows_and_keeps_what_it_knew(log: Interactions, form: str, tmp_path: Path) -> None:
    model = TransCF(variant=form, dim=16, epochs=3).fit(log)
    before = load(model.save(tmp_path / "before"))
    added = read_interactions(new_events())
    assert model.partial_fit(added) is model
    assert set(model.users_.series) == set(before.users_.series) | {"aaa", "zzz", "zz2"}
    assert set(model.items_.series) == set(before.items_.series) | {"brand new", "newer"}
    users, items = (
        new.rows(old.series)
        for new, old in ((model.users_, before.users_), (model.items_, before.items_))
    )
    assert (users != np.arange(len(users))).any(), "rows move, ids do not"
    assert (model.user_vectors_[users] == before.user_vectors_).all()
    assert (model.item_vectors_[items] == before.item_vectors_).all()
    assert (model.item_bias_[items] == before.item_bias_).all()
    pairs = set(log.to_frame().select("user_id", "item_id").iter_rows()) | set(new_events().rows())
    seen = model.seen_
    found = zip(model.users_.ids(seen.entry_rows), model.items_.ids(seen.indices), strict=True)
    assert sorted(found) == sorted(pairs)
    by_user = seen.to_scipy(np.float64)
    q = (by_user @ model.item_vectors_) / seen.counts[:, None]
    n = (by_user.T @ model.user_vectors_) / model.item_counts_[:, None]
    np.testing.assert_allclose(model.learned_.q, q, atol=1e-5)
    np.testing.assert_allclose(model.learned_.n, n, atol=1e-5)
    for user in ("aaa", "zzz", "zz2"):
        assert np.linalg.norm(model.user_vectors_[model.users_.rows([user])]) > 0
        assert len(model.recommend(user)) == 10
    lengths = np.linalg.norm(model.item_vectors_, axis=1)
    trained, added_items = lengths[items], lengths[model.items_.rows(["brand new", "newer"])]
    assert (added_items >= trained.min() * 0.999).all()
    assert (added_items <= trained.max() * 1.001).all()
    assert "brand new" in model.recommend("u010", k=1000)["item_id"].to_list()
    assert model.report_["users"] == len(model.users_)
    assert model.report_["additions"] == 1
    again = load(model.save(tmp_path / "after"))
    assert again.recommend().equals(model.recommend())


def test_a_new_user_grows_to_where_a_guest_stands(log: Interactions) -> None:
    model = TransCF(dim=16, epochs=3).fit(log)
    history = ["i09", "i01", "i05"]
    expected = model.recommend_for(history, k=1000)
    times = {"timestamp": [1, 2, 3]}
    model.partial_fit(
        read_interactions(pl.DataFrame({"user_id": ["new"] * 3, "item_id": history} | times))
    )
    found = model.recommend("new", k=1000)
    joined = expected.join(found, on="item_id")
    # Only the neighbourhoods of the three items have moved, and those are not in the list.
    np.testing.assert_allclose(joined["score"], joined["score_right"], atol=1e-5)


def test_what_cannot_be_added_is_refused_and_changes_nothing(model: TransCF) -> None:
    before = model.recommend()
    island = pl.DataFrame({"user_id": ["p", "q"], "item_id": ["x", "x"]})
    with pytest.raises(DataError, match=r"'p' \(2 users in all\) shares no item"):
        model.partial_fit(read_interactions(island))
    numbers = read_interactions(pl.DataFrame({"user_id": [1], "item_id": ["i01"]}))
    with pytest.raises(DataError, match="user ids of the model are text"):
        model.partial_fit(numbers)
    with pytest.raises(DataError, match="nothing to add"):
        model.partial_fit(numbers.select(np.zeros(1, dtype=bool)))
    assert model.recommend().equals(before)


def test_lengths_and_biases_of_new_items_follow_popularity() -> None:
    counts = np.array([1, 10, 100])
    found = by_count(np.log(counts) - 2, counts, np.array([7]))
    np.testing.assert_allclose(found, np.log(7) - 2)
    np.testing.assert_allclose(by_count(np.array([0.5]), np.array([3]), np.array([9])), 0.5)


@pytest.mark.parametrize("form", ["translation", "alt", "none", "emb"])
def test_explanations_tell_distances_and_neighbors(log: Interactions, form: str) -> None:
    model = TransCF(variant=form, dim=16, epochs=5).fit(log)
    a, b = model.user_vectors_.astype(np.float64), model.item_vectors_.astype(np.float64)
    n, cost = model.learned_.n.astype(np.float64), SCORE_FUNCTIONS[form].pair_cost
    for user, item in ((0, 7), (11, 3), (150, 60)):
        own = log.by_user.row(user)
        pair = log.users.series[user], log.items.series[item]
        found = model.explain(*pair, include_seen=True, top=1000)
        details = found.details
        after = cost(a[user], b[own].mean(axis=0), b[item], n[item])
        assert details["distance_after"] == pytest.approx(after, abs=1e-6)
        assert found.score == pytest.approx(details["bias"] - details["distance_after"], abs=1e-6)
        assert details["distance_before"] == pytest.approx(((a[user] - b[item]) ** 2).sum())
        behind = log.by_item.row(item)
        distances = {
            log.users.series[int(other)]: ((a[other] - a[user]) ** 2).sum()
            for other in behind[behind != user]
        }
        neighbors = details["neighbors"]
        assert [entry["user_id"] for entry in neighbors] == sorted(distances, key=distances.get)
        assert neighbors[0]["distance"] == pytest.approx(min(distances.values()))


def test_notes_of_explanations_are_in_the_text(model: TransCF) -> None:
    found = model.explain("u010", "i07", top=2, include_seen=True)
    assert len(found.details["neighbors"]) == 2
    text = str(found)
    assert all(entry["user_id"] in text for entry in found.details["neighbors"])
    assert f"squared distance {found.details['distance_after']:.4f}" in text
    guest = model.explain_for(["i01", "i02"], "i07")
    after = guest.details["distance_after"]
    assert guest.score == pytest.approx(guest.details["bias"] - after, abs=1e-5)


def test_products_have_no_distances_to_tell(log: Interactions) -> None:
    found = (
        TransCF(variant="dot", dim=4, epochs=1).fit(log).explain("u010", "i07", include_seen=True)
    )
    assert (found.notes, found.details) == ((), {})
    assert found.effects
