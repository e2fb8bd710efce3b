"""Made-up data: sizes, seeds, and something to learn."""

import numpy as np
import pytest

from transcf.data import leave_one_out, read_interactions, synthesize, write_csv
from transcf.errors import ParameterError


def test_sizes_are_exact_and_pairs_differ():
    log = synthesize(users=300, items=200, interactions=5000)
    assert (log.n_users, len(log)) == (300, 5000)
    assert log.n_items <= 200
    assert log.by_user.counts.min() >= 5
    assert log.categories["category"].n_unique() == 12
    assert log.categories["item_id"].to_list() == log.items.series.to_list()
    assert set(np.unique(log.ratings)) <= {1, 2, 3, 4, 5}


@pytest.mark.parametrize("sizes", [(5, 4, 10), (1, 2, 1), (40, 30, 600), (3, 1000, 1500)])
def test_odd_sizes(sizes):
    users, items, interactions = sizes
    log = synthesize(users=users, items=items, interactions=interactions, categories=2)
    assert len(log) == interactions


def test_the_seed_decides():
    one, same, other = (synthesize(100, 80, 1500, seed=seed) for seed in (1, 1, 2))
    assert one.to_frame().equals(same.to_frame())
    assert not one.to_frame().equals(other.to_frame())


def test_popularity_has_a_long_tail():
    log = synthesize()
    counts = np.sort(np.bincount(log.item_rows))[::-1]
    assert counts[:50].sum() > 0.25 * counts.sum()
    assert counts[0] > 8 * np.median(counts)


def test_neighbours_beat_popularity_clearly():
    split = leave_one_out(synthesize(), "random")
    train = split.train.by_user.to_scipy(np.float64).toarray()
    counts = train.sum(axis=0)
    cosine = train.T @ train / np.sqrt(np.outer(counts, counts) + 1e-9)
    np.fill_diagonal(cosine, 0)
    hits = {}
    for name, scores in (("popular", np.tile(counts, (len(train), 1))), ("near", train @ cosine)):
        ranked = np.argsort(-np.where(train > 0, -np.inf, scores), axis=1)[:, :10]
        hits[name] = np.mean([
            split.test.by_user.row(user)[0] in ranked[user] for user in range(len(train))
        ])  # fmt: skip
    assert hits["near"] > 2 * hits["popular"]
    assert hits["near"] > 0.15


def test_ratings_follow_the_taste():
    log = synthesize()
    frame = log.to_frame().join(log.categories, on="item_id")
    sizes = frame.group_by("user_id", "category").len()
    joined = frame.join(sizes, on=["user_id", "category"])
    often, once = joined.filter(joined["len"] >= 5), joined.filter(joined["len"] == 1)
    assert often["rating"].mean() > once["rating"].mean() + 0.5


def test_csv_round_trip(tmp_path):
    log = synthesize(50, 40, 500)
    assert read_interactions(write_csv(log, tmp_path / "l.csv")).to_frame().equals(log.to_frame())


def test_drift_lets_items_come_and_fade():
    still, drifting = (synthesize(drift=drift, seed=3).to_frame() for drift in (0.0, 4.0))
    half = still["timestamp"].median()

    def overlap(frame):
        """How alike the item counts of the two halves of the log are."""
        counts = [
            frame.filter((frame["timestamp"] > half) == late).group_by("item_id").len()
            for late in (False, True)
        ]
        both = counts[0].join(counts[1], on="item_id", how="full", coalesce=True).fill_null(0)
        return np.corrcoef(both["len"], both["len_right"])[0, 1]

    assert overlap(drifting) < 0.5 < 0.9 < overlap(still)
    first = drifting.group_by("item_id").agg(first=drifting["timestamp"].min())
    assert drifting.filter(drifting["timestamp"] < half)["item_id"].n_unique() < 400
    assert len(first) <= 500


def test_sequences_go_on_in_the_same_category():
    def kept(sequences):
        """How often an event has the category of the one before it."""
        log = synthesize(sequences=sequences, seed=3)
        frame = log.to_frame().join(log.categories, on="item_id").sort("user_id", "timestamp")
        same_user = frame["user_id"] == frame["user_id"].shift(1)
        same_category = frame["category"] == frame["category"].shift(1)
        return same_category.filter(same_user).mean()

    assert kept(0.8) > kept(0.0) + 0.1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"drift": -1.0}, "drift=-1"),
        ({"drift": float("inf")}, "drift=inf"),
        ({"sequences": 1.5}, "it must be a number from 0 to 1"),
        ({"sequences": "some"}, "sequences='some'"),
        ({"users": 0}, "users=0"),
        ({"items": 5, "categories": 6}, "categories=6 is more than items=5"),
        ({"interactions": 10**9}, "must lie between 1,000 and 250,000"),
        ({"interactions": 999}, "must lie between"),
    ],
)
def test_bad_parameters(arguments, message):
    with pytest.raises(ParameterError, match=message):
        synthesize(**arguments)
