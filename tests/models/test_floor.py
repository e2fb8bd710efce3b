"""Popularity, its inverse and chance."""

from __future__ import annotations

import numpy as np

from transcf.data.interactions import Interactions
from transcf.models.baselines import InversePopularity, Popularity, Random


def test_popularity_counts_users(random_log: Interactions) -> None:
    counts = random_log.to_frame()["item_id"].value_counts(sort=True)
    most = counts["count"].max()
    best = Popularity().fit(random_log).recommend(k=1, exclude_seen=False)
    assert set(best["score"]) == {float(most)}
    assert set(best["item_id"]) == {min(counts.filter(counts["count"] == most)["item_id"])}


def test_inverse_popularity_reverses_the_order(random_log: Interactions) -> None:
    users = np.arange(3, dtype=np.int32)
    forward = Popularity().fit(random_log).scores(users)
    backward = InversePopularity().fit(random_log).scores(users)
    np.testing.assert_array_equal(forward, -backward)


def test_random_scores_depend_on_the_pair_alone(random_log: Interactions) -> None:
    model = Random(random_state=5).fit(random_log)
    users = np.arange(random_log.n_users, dtype=np.int32)
    block = model.scores(users)
    np.testing.assert_array_equal(model.scores(users[::-1]), block[::-1])
    np.testing.assert_array_equal(model.scores(users[7:8]), block[7:8])


def test_random_scores_are_uniform_and_unrelated(random_log: Interactions) -> None:
    users = np.arange(random_log.n_users, dtype=np.int32)
    scores = [Random(random_state=seed).fit(random_log).scores(users) for seed in range(20)]
    values = np.sort(np.concatenate(scores, axis=None))
    grid = np.arange(len(values)) / len(values)
    # Kolmogorov-Smirnov: 1.95 / sqrt(n) is passed by chance once in a thousand.
    assert np.abs(values - grid).max() < 1.95 / np.sqrt(len(values))
    table = np.stack([block.ravel() for block in scores[:2]] + [np.roll(scores[0], 1, 0).ravel()])
    off_diagonal = np.corrcoef(table)[np.triu_indices(3, 1)]
    assert np.abs(off_diagonal).max() < 4 / np.sqrt(table.shape[1])
