"""Transition counts in the mixture: scores, lists, explanations, additions, and their choice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.models.test_mixture import check_lists, random_mixture

from transcf import (
    Blend,
    EventWeights,
    Interactions,
    TransCFMixture,
    leave_one_out,
    read_interactions,
)
from transcf.data.csr import Histories
from transcf.errors import ParameterError
from transcf.models.mixture import transitions
from transcf.models.mixture.fitted import Mixture
from transcf.models.mixture.transitions import Transitions, log_partitions
from transcf.models.transitions import transition_shares

SMALL: dict[str, Any] = {"dim": 8, "epochs": 3, "event_weights": EventWeights(trend=0)}


def chains(n_users: int = 300, n_items: int = 60, seed: int = 0) -> Interactions:
    """Most events are followed by one of two items that no vector of a few numbers can know."""
    rng = np.random.default_rng(seed)
    follow = rng.permuted(np.tile(np.arange(n_items), (2, 1)), axis=1)
    users, items = [], []
    for user in range(n_users):
        own = [int(rng.integers(n_items))]
        while len(own) < 12:
            step = int(follow[rng.integers(2), own[-1]])
            own.append(step if rng.random() < 0.8 else int(rng.integers(n_items)))
        own = list(dict.fromkeys(own))
        users += [user] * len(own)
        items += own
    table = {"user": users, "item": items, "timestamp": np.arange(len(users))}
    return read_interactions(pl.DataFrame(table))


@pytest.fixture(scope="module")
def log() -> Interactions:
    return chains()


@pytest.fixture(scope="module")
def model(log: Interactions) -> TransCFMixture:
    return TransCFMixture(**SMALL, transitions=1.5).fit(log)


def learned_by(model: TransCFMixture) -> Mixture:
    learned = model.learned_
    assert isinstance(learned, Mixture)
    return learned


def dense_shares(
    histories: Histories, reach: int = 10, decay: float = 0.5, smoothing: float = 60.0
) -> np.ndarray:
    """Count by the definition."""
    counts = np.zeros((histories.n_items, histories.n_items))
    for user in range(len(histories)):
        own = histories[user]
        for a in range(len(own)):
            for b in range(a + 1, min(a + reach, len(own) - 1) + 1):
                counts[own[a], own[b]] += (b - a) ** -decay
    return counts / (counts.sum(axis=1, keepdims=True) + smoothing)


def formula(learned: Mixture, user: int, strength: float) -> np.ndarray:
    """Scores of all items in float64, by the formula of the documentation."""
    history = learned.known.histories[user]
    weights = np.arange(len(history), 0, -1.0) ** -learned.settings.history_decay
    a, b, p, c = (
        x.astype(np.float64)
        for x in (learned.users[user], learned.items, learned.history, learned.bias)
    )
    tau, beta = learned.settings.tau, learned.settings.beta
    near = np.exp(c - tau * ((p[history][:, None] - b[None]) ** 2).sum(axis=2))
    sums = near[:, learned.rankable].sum(axis=1, keepdims=True)
    counted = strength * sums * dense_shares(learned.known.histories)[history]
    own = -beta * ((a - b) ** 2).sum(axis=1)
    scores: np.ndarray = own + np.log(weights @ (near + counted))
    return scores


def test_counts_are_those_of_a_loop(log: Interactions) -> None:
    found = transition_shares(log.histories, ordered=True, reach=3, decay=1.0, smoothing=5.0)
    expected = dense_shares(log.histories, reach=3, decay=1.0, smoothing=5.0)
    np.testing.assert_allclose(found.toarray(), expected, atol=1e-12)
    assert found.has_sorted_indices


def test_without_an_order_pairs_count_in_both_directions(
    log: Interactions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("transcf.models.transitions._MOST", 7)
    monkeypatch.setattr("transcf.models.item_weights._BLOCK_ENTRIES", 500)
    histories, n = log.histories, log.n_items
    counts = np.zeros((n, n))
    for user in range(len(histories)):
        own = histories[user]
        for k in own:
            counts[k, own] += 1 / max(len(own) - 1, 1)
    np.fill_diagonal(counts, 0)
    expected = counts / (counts.sum(axis=1, keepdims=True) + 60)
    found = transition_shares(histories, ordered=False).toarray()
    for row, own in zip(found, expected, strict=True):
        kept = np.sort(np.lexsort((np.arange(n), -own.round(12)))[:7])
        np.testing.assert_allclose(np.sort(row[row > 0]), np.sort(own[kept]), atol=1e-12)
        np.testing.assert_allclose(row[row > 0], own[row > 0], atol=1e-12)


def test_scores_are_those_of_the_formula(log: Interactions, model: TransCFMixture) -> None:
    learned, users = learned_by(model), np.array([0, 7, 50], np.int32)
    block = model.scores(users)
    for row, user in enumerate(users):
        expected = formula(learned, int(user), 1.5)
        np.testing.assert_allclose(block[row], expected, rtol=2e-5, atol=2e-5)
        items = np.arange(log.n_items, dtype=np.int32)
        pairs = model.scores(np.full(len(items), user, np.int32), items)
        np.testing.assert_allclose(pairs, expected, rtol=1e-5, atol=1e-5)


def test_tiles_are_those_of_the_scores(log: Interactions, model: TransCFMixture) -> None:
    users = np.arange(log.n_users, dtype=np.int32)
    items = np.arange(3, log.n_items, 2, dtype=np.int32)
    source, tile = model._open_block(users, items), np.empty((len(users), len(items)), np.float32)
    source.fill(items, tile)
    pairs = model.scores(np.repeat(users, len(items)), np.tile(items, len(users)))
    assert (np.abs(tile - pairs.reshape(tile.shape)).max(axis=1) <= source.error).all()


def test_sums_of_few_items_stand_for_those_of_many(
    model: TransCFMixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = log_partitions(learned_by(model))
    monkeypatch.setattr(transitions, "_MOST", 30)
    assert log_partitions(learned_by(model)).mean() == pytest.approx(whole.mean(), abs=0.3)


@given(
    st.integers(0, 10**6), st.sampled_from([1, 5, 40, 300, 1500]), st.sampled_from([1, 6, 70]),
    st.sampled_from([1, 10, 60]), st.sampled_from([0.0, 2.0, 10.0]),
    st.sampled_from([0.0, 2.0]), st.sampled_from([0.0, 1.5, 50.0]),
    st.sampled_from([0.01, 1.0, 300.0]), st.sampled_from([1.0, 0.5]),
)  # fmt: skip
@settings(deadline=None, max_examples=40)
def test_lists_are_those_of_all_scores(
    seed: int, n_items: int, longest: int, k: int, tau: float, beta: float, decay: float,
    strength: float, share: float,
) -> None:  # fmt: skip
    learned = random_mixture(seed, n_items, longest, tau=tau, beta=beta, history_decay=decay)
    learned = learned.changed(transitions=Transitions.of(learned, strength))
    rng, users = np.random.default_rng(seed), np.arange(12, dtype=np.int32)
    seen = learned.known.seen if seed % 3 else None
    allowed = None if share == 1 else rng.random(n_items) < share
    check_lists(learned, users, k, seen, allowed)
    newcomers = learned.fold_in(learned.known.histories.take(users))
    check_lists(newcomers, users, k, learned.known.seen.take(users) if seed % 2 else None, allowed)


def test_leaving_an_item_out_changes_the_score_by_what_its_share_says(
    model: TransCFMixture,
) -> None:
    learned = learned_by(model)
    for user, item in ((0, 3), (5, 11), (17, 40)):
        history = model.histories_[user]
        found = learned.contributions(history, item)
        assert found.effects.sum() == pytest.approx(1)
        terms = np.exp(learned._near(Histories.of([history], 60), np.array([item], np.int32)))
        own = formula(learned, user, 1.5)[item]
        a, b = learned.users[user].astype(np.float64), learned.items[item].astype(np.float64)
        rest = float(learned.bias[item]) - model.beta * ((a - b) ** 2).sum()
        assert rest + np.log(terms.sum()) == pytest.approx(own, abs=1e-5)
        np.testing.assert_allclose(found.effects, terms / terms.sum())


def test_explanations_say_how_much_counts_add(model: TransCFMixture) -> None:
    user = model.users_.series[0]
    item = model.recommend(user, k=1)["item_id"][0]
    found = model.explain(user, item)
    assert "Transition counts" in str(found)
    assert 0 < found.details["transitions"] < 1


def test_validation_chooses_them_where_they_help(log: Interactions) -> None:
    split = leave_one_out(log)
    model = TransCFMixture(**SMALL).fit(split.train, split.validation)
    report = model.report_["transitions"]
    assert report["strength"] in transitions.STRENGTHS
    assert report["strength"] > 2, "the log consists of chains"
    assert report["with"] > report["without"] + 2 * report["standard_error"]
    strength = report["strength"]
    by_hand = TransCFMixture(**SMALL, transitions=strength).fit(split.train, split.validation)
    np.testing.assert_allclose(by_hand.scores(np.arange(5)), model.scores(np.arange(5)), rtol=1e-6)
    model.refit(log)
    kept = learned_by(model).transitions
    assert kept is not None
    assert kept.strength == strength
    again = Transitions.of(learned_by(model), strength)
    np.testing.assert_array_equal(kept.terms.values, again.terms.values)


def test_a_refitted_blend_keeps_them_in_its_parts(log: Interactions) -> None:
    split = leave_one_out(log)
    parts = "transcf-mixture(dim=8, epochs=3, trend=0) + itemknn(trend=0)"
    blend = Blend(parts=parts).fit(split.train, split.validation)
    chosen = blend.learned_.parts[0].transitions
    assert chosen is not None
    again = blend.refit(split.before_test).learned_.parts[0].transitions
    assert again is not None
    assert again.strength == chosen.strength


def test_they_are_left_out_where_they_gain_nothing(log: Interactions) -> None:
    rng = np.random.default_rng(1)
    table = pl.DataFrame({"user": log.user_rows, "item": rng.permutation(log.item_rows)}).unique()
    split = leave_one_out(
        read_interactions(table.with_columns(timestamp=pl.lit(rng.permutation(len(table)))))
    )
    model = TransCFMixture(**SMALL).fit(split.train, split.validation)
    assert model.report_["transitions"]["strength"] == 0
    assert learned_by(model).transitions is None
    assert "reason" in TransCFMixture(**SMALL).fit(log).report_["transitions"]


def test_additions_are_counted(log: Interactions) -> None:
    model = TransCFMixture(**SMALL, transitions=1.0).fit(log)
    before = learned_by(model)
    added = pl.DataFrame(
        {
            "user": [0, 0, 10_000, 10_000],
            "item": [1000, 3, 4, 1000],
            "timestamp": [10**6, 10**6 + 1, 10**6, 10**6 + 1],
        }
    )
    model.partial_fit(read_interactions(added))
    after = learned_by(model)
    assert before.transitions is not None
    assert after.transitions is not None
    rows = model.items_.rows(log.items.series)
    np.testing.assert_array_equal(
        after.transitions.log_partition[rows], before.transitions.log_partition
    )
    expected = dense_shares(after.known.histories)
    shares = np.zeros_like(expected)
    starts, items, values = after.transitions.terms
    past = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    scale = np.exp(after.transitions.log_partition[past] - after.bias[items])
    shares[past, items] = values / scale
    np.testing.assert_allclose(shares, expected, rtol=1e-5)


def test_saved_models_have_them(model: TransCFMixture, tmp_path: Path) -> None:
    model.save(tmp_path / "model")
    loaded = TransCFMixture.load(tmp_path / "model")
    assert loaded.recommend(k=5).equals(model.recommend(k=5))
    users = np.arange(9, dtype=np.int32)
    np.testing.assert_array_equal(loaded.scores(users), model.scores(users))


def test_a_trend_is_added_to_both_parts(log: Interactions) -> None:
    """An offset of an item changes its score by as much, whatever its counts are."""
    learned = learned_by(TransCFMixture(**SMALL, transitions=1.0).fit(log))
    offset = np.linspace(-2, 2, log.n_items).astype(np.float32)
    users = np.arange(5, dtype=np.int32)
    shifted = learned.with_bias(offset)
    assert shifted is not None
    np.testing.assert_allclose(shifted.scores(users), learned.scores(users) + offset, atol=1e-5)


def test_such_models_have_no_vectors_to_export(model: TransCFMixture, tmp_path: Path) -> None:
    from transcf.retrieval.export import export_parquet

    with pytest.raises(ParameterError, match="transitions=0"):
        export_parquet(model, tmp_path / "vectors")
