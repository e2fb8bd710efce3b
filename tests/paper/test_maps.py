"""Maps of vectors, and how alike categories are."""

from __future__ import annotations

import numpy as np
import pytest

from transcf.paper.categories import likeness, maps, mean_cosines
from transcf.paper.spaces import Pairs


def test_mean_cosines_pair_by_pair() -> None:
    generator = np.random.default_rng(0)
    vectors, labels = generator.normal(size=(12, 5)), np.repeat([0, 1, 2], 4)
    found = mean_cosines(vectors.astype(np.float32), labels, 3)
    for one in range(3):
        for other in range(3):
            cosines = [
                x @ y / np.linalg.norm(x) / np.linalg.norm(y)
                for place, x in enumerate(vectors)
                for second, y in enumerate(vectors)
                if labels[place] == one and labels[second] == other and place != second
            ]
            assert found[one, other] == pytest.approx(np.mean(cosines), abs=1e-6)


@pytest.fixture
def clusters(by_hand):
    """Three categories whose translations point in three directions."""
    generator = np.random.default_rng(1)
    labels = np.repeat([0, 1, 2], 20)
    items = np.arange(60, dtype=np.int32)
    corners = 5 * np.eye(4)[labels]

    def move(u, i):
        return corners[i] + 0.1 * generator.normal(size=4)

    space = by_hand(np.zeros((60, 4)), np.zeros((60, 4)), move, [{n} for n in range(60)])
    return space, Pairs(items, items, None, labels, ("x", "y", "z"), np.ones(60, bool))


def test_a_map_keeps_categories_together(clusters) -> None:
    pytest.importorskip("sklearn")
    space, pairs = clusters
    found = maps({"made": space}, pairs, each=15)
    (row,) = found.frame.to_dicts()
    assert row["vectors"] == "r"
    assert row["same_category_percent"] == row["same_among_strangers_percent"] == 100
    assert row["same_on_the_map_percent"] > 90
    assert found.facts["pairs"] == 45
    (drawing,) = found.figures
    assert all(f">{name}</text>" in drawing.svg for name in ("x", "y", "z"))


def test_likeness_is_one_on_the_diagonal_of_clear_categories(clusters) -> None:
    space, pairs = clusters
    found = likeness(space, pairs, each=15)
    grid = found.frame.select("x", "y", "z").to_numpy()
    assert grid.max() == 1
    assert (grid.argmax(axis=1) == [0, 1, 2]).all()
    assert np.abs(grid - np.eye(3)).max() < 0.1
    assert found.facts["rows_with_the_largest_on_the_diagonal"] == 3
