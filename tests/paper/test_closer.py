"""Shares of pairs that are closer after the translation, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from transcf.errors import UnsupportedError
from transcf.paper.pairs import closer, rating_groups, share
from transcf.paper.spaces import Pairs


def pairs_of(users, items, ratings=None, in_training=None) -> Pairs:
    n = len(users)
    return Pairs(
        np.array(users, np.int32),
        np.array(items, np.int32),
        None if ratings is None else np.array(ratings, np.float32),
        None,
        (),
        np.ones(n, bool) if in_training is None else np.array(in_training),
    )


def test_a_share_has_the_spread_of_its_users() -> None:
    # Two users with all their pairs alike: as uncertain as two coins.
    hits, users = np.array([1, 1, 1, 0, 0, 0], bool), np.array([0, 0, 0, 1, 1, 1], np.int32)
    found = share(hits, users)
    assert found["closer_percent"] == 50
    # residuals h_u - p n_u are 1.5 and -1.5: sqrt(2 / 1 * 4.5) / 6 = .5
    assert (found["low"], found["high"]) == (0, 100)
    many = share(np.tile(hits, 100), np.arange(600, dtype=np.int32))
    assert many["high"] - 50 == pytest.approx(196 * np.sqrt(0.25 / 599), rel=1e-9)


def test_closer_by_hand(by_hand) -> None:
    # Everybody is moved one to the right; items are at 3 and at -3 on a line.
    space = by_hand(
        [[0, 0], [1, 0], [9, 9]],
        [[3, 0], [-3, 0], [3, 1]],
        lambda u, i: [1.0, 0.0],
        [{0}, {0, 1}, {2}],
    )
    pairs = pairs_of([0, 1, 1], [0, 0, 1], ratings=[5, 5, 1], in_training=[True, True, False])
    found = closer(space, pairs)
    rows = {row["pairs"]: row for row in found.frame.to_dicts()}
    assert rows["observed"]["closer_percent"] == pytest.approx(200 / 3)
    assert rows["observed, learned from"]["closer_percent"] == 100
    assert rows["observed, held out"]["closer_percent"] == 0
    assert rows["rating 5"] | {"low": 0, "high": 0} == {
        "pairs": "rating 5", "closer_percent": 100.0, "low": 0, "high": 0, "number": 2,
        "portion_percent": pytest.approx(200 / 3),
    }  # fmt: skip
    assert rows["unobserved"]["number"] == 3
    assert found.facts["median_translation"] == 1
    assert found.facts["median_distance"] == pytest.approx(3)
    assert found.facts["median_ratio"] == pytest.approx(1 / 3)  # of 1/3, 1/2 and 1/4


def test_short_translations(by_hand) -> None:
    space = by_hand([[0, 0]], [[3, 0], [-3, 0]], lambda u, i: [0.001, 0.0], [{0}])
    found = closer(space, pairs_of([0], [0]))
    assert found.facts["observed_percent"] == 100
    assert found.facts["unobserved_percent"] is None  # nobody has the other item


def test_rare_ratings_are_put_together() -> None:
    ratings = [1] * 1 + [2] * 1 + [3] * 10 + [4] * 20 + [5] * 30 + [6] * 38 + [0] * 50
    pairs = pairs_of([0] * len(ratings), [0] * len(ratings), ratings)
    sizes = {name: int(mask.sum()) for name, mask in rating_groups(pairs).items()}
    assert sizes == {"rating 1 to 3": 12, "rating 4": 20, "rating 5": 30, "rating 6": 38}


def test_models_that_move_nobody_are_refused(by_hand) -> None:
    with pytest.raises(UnsupportedError, match="has no translations"):
        closer(by_hand([[0, 0]], [[1, 0]], seen=[{0}]), pairs_of([0], [0]))
