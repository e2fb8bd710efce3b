"""What forests can tell, on vectors of which it is known what they know."""

from __future__ import annotations

import numpy as np
import pytest

from transcf.errors import DataError
from transcf.paper.pairs import balanced, classification, frequent_categories, labels_of
from transcf.paper.spaces import Pairs


def made(by_hand, per_class: int = 30):
    """Items with random vectors, each six times; translations that give the category away."""
    generator = np.random.default_rng(0)
    n = 2 * per_class
    labels = np.repeat([0, 1], per_class)
    items = np.arange(n, dtype=np.int32) // 6
    kinds = labels[::6]
    vectors = generator.normal(size=(len(kinds), 4))
    seen = [set(range(len(kinds)))]

    def move(u, i):
        return np.array([kinds[i] + 0.1 * generator.normal(), 0, 0, 0])

    space = by_hand([[0, 0, 0, 0]], vectors, move, seen)
    pairs = Pairs(np.zeros(n, np.int32), items, None, labels, ("x", "y"), np.ones(n, bool))
    return space, pairs


def test_recognising_items_is_told_from_knowing_categories(by_hand, small_forests) -> None:
    space, pairs = made(by_hand)
    found = classification({"made": space}, pairs, "category", number=1000)
    rows = {row["vectors"]: row for row in found.frame.to_dicts()}
    knows = rows["made: r"]
    assert knows["accuracy_percent"] > 95
    assert knows["other_items_percent"] > 95
    recognises = rows["made: item b alone"]
    assert recognises["accuracy_percent"] > 95
    assert recognises["other_items_percent"] < 80
    assert 30 < rows["random"]["accuracy_percent"] < 70
    assert found.facts["pairs"] == 60
    assert "made: item b alone" in found.figures[0].svg


def test_classes_are_balanced_to_the_smallest() -> None:
    labels = np.array([0] * 50 + [1] * 7 + [2] * 20 + [-1] * 9)
    chosen = balanced(labels, 1000, np.random.default_rng(0))
    assert np.bincount(labels[chosen]).tolist() == [7, 7, 7]
    assert len(set(chosen.tolist())) == 21
    assert np.bincount(labels[balanced(labels, 16, np.random.default_rng(0))]).tolist() == [5] * 3
    with pytest.raises(DataError, match="smallest class has 7"):
        balanced(labels, 12, np.random.default_rng(0))


def test_the_most_frequent_categories_are_told_apart() -> None:
    labels = np.array([2, 2, 2, 0, 0, 1, -1])
    rows = np.zeros(7, np.int32)
    pairs = Pairs(rows, rows, None, labels, ("x", "y", "z"), rows == 0)
    assert frequent_categories(pairs) == ["z", "x", "y"]
    names, classes = labels_of(pairs, "category")
    assert (names, classes.tolist()) == (["z", "x", "y"], [0, 0, 0, 1, 1, 2, -1])
    with pytest.raises(DataError, match="0 kinds of rating"):
        labels_of(pairs, "rating")
