"""What users rate and like: variety of a log, and tastes of a user."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from transcf.data.readers import open_data, read_interactions
from transcf.errors import DataError, UnknownIdError
from transcf.paper.categories import tastes, variety


def test_variety_by_hand() -> None:
    events = pl.DataFrame(
        {
            "user": ["ann", "ann", "ann", "bob", "bob", "cid"],
            "item": ["a", "b", "c", "a", "d", "d"],
            "rating": [5, 5, 3, 4, 4, 1],
        }
    )
    table = pl.DataFrame({"item_id": ["a", "b", "c"], "category": ["x", "y", "x"]})
    found = variety(read_interactions(events, categories=table))
    # ann has 5 and 3; bob 4, cid 1. ann has x and y, bob x (d has none), cid nothing.
    assert found.facts["users_with_two_or_more_ratings_percent"] == pytest.approx(33.3333)
    assert found.facts["users_with_a_single_category_percent"] == 50
    rows = found.frame.select("what", "different", "users").rows()
    assert rows == [
        ("ratings", 1, 2), ("ratings", 2, 1), ("categories", 1, 1), ("categories", 2, 1)
    ]  # fmt: skip
    assert len(found.figures) == 2
    with pytest.raises(DataError, match="neither ratings nor categories"):
        variety(read_interactions(events.drop("rating")))


def test_ciao_is_as_published(real_data: Callable[[str], Path]) -> None:
    found = variety(open_data(real_data("ciao"))).facts
    assert found["users_with_two_or_more_ratings_percent"] == pytest.approx(95, abs=1)
    assert found["users_with_a_single_category_percent"] == pytest.approx(3, abs=1)


def test_tastes_by_hand(by_hand) -> None:
    # u000 stands where x is; all others where y is, and are moved to nowhere.
    items = [[0, 0], [0.1, 0], [5, 0], [5.1, 0]]
    space = by_hand([[0, 0], [5, 0], [5, 0.1]], items, None, [{0, 2}, {2}, {1, 3}])
    events = pl.DataFrame({"user_id": ["u000"] * 4, "item_id": ["i000", "i001", "i002", "i003"]})
    kinds = pl.DataFrame({"item_id": events["item_id"], "category": ["x", "x", "y", "y"]})
    log = read_interactions(events, categories=kinds)
    found = tastes(space, log, "u000")
    near, far = found.frame.to_dicts()
    assert (near["category"], near["items"]) == ("x", 1)
    assert near["distance"] == pytest.approx((0 + 0.01) / 2, abs=1e-6)
    assert near["strength_percent"] == 100
    assert (far["category"], far["strength_percent"], far["items"]) == ("y", 0, 1)
    assert far["distance"] == pytest.approx((25 + 5.1**2) / 2, rel=1e-6)
    assert found.to_dict()["facts"] == {"user_id": "u000", "model": "made", "history": 2}
    assert "has items of it" in found.figures[0].svg
    with pytest.raises(UnknownIdError):
        tastes(space, log, "nobody")
    with pytest.raises(DataError, match="no categories"):
        tastes(space, read_interactions(events), "u000")
