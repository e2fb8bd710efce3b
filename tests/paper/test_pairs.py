"""Pairs of a log under a model, and pairs of no log."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from transcf.data.readers import read_interactions
from transcf.data.splitters import leave_one_out
from transcf.errors import DataError
from transcf.models.cml import CML
from transcf.paper.spaces import Pairs, item_labels, space_of


@pytest.fixture(scope="module")
def parts(log):
    split = leave_one_out(log)
    return split, space_of(CML(dim=4, epochs=1).fit(split.train))


def test_pairs_know_what_was_learned_from(parts, log) -> None:
    split, space = parts
    pairs = Pairs.of(space, log)
    learned = set(zip(split.train.user_rows.tolist(), split.train.item_rows.tolist(), strict=True))
    told = zip(pairs.users.tolist(), pairs.items.tolist(), pairs.in_training, strict=True)
    assert all(((u, i) in learned) == is_in for u, i, is_in in told)
    assert len(pairs) <= len(log)
    assert int(pairs.in_training.sum()) == len(split.train)


def test_unobserved_pairs_are_nobodys(parts, log) -> None:
    _, space = parts
    pairs = Pairs.of(space, log)
    users, items = pairs.unobserved(space, np.random.default_rng(0))
    owned = set(zip(pairs.users.tolist(), pairs.items.tolist(), strict=True))
    assert not owned & set(zip(users.tolist(), items.tolist(), strict=True))
    np.testing.assert_array_equal(np.bincount(users), np.bincount(pairs.users))
    assert (space.known.item_counts[items] > 0).all()


def test_somebody_who_has_everything_goes_without(by_hand) -> None:
    space = by_hand([[0, 0], [1, 1]], [[0, 0], [1, 0]], seen=[{0, 1}, {0}])
    rows = np.array([0, 0, 1], np.int32), np.array([0, 1, 0], np.int32)
    pairs = Pairs(*rows, None, None, (), np.ones(3, bool))
    users, items = pairs.unobserved(space, np.random.default_rng(0))
    assert (users.tolist(), items.tolist()) == ([1], [1])


def test_the_label_of_an_item_is_its_rarest_category() -> None:
    events = pl.DataFrame({"user": [1, 1, 1, 1], "item": ["a", "b", "c", "d"]})
    table = pl.DataFrame(
        {"item_id": ["a", "a", "b", "b", "c"], "category": ["film", "war", "film", "art", "film"]}
    )
    log = read_interactions(events, categories=table)
    named = [log.category_names[label] if label >= 0 else None for label in item_labels(log)]
    assert named == ["war", "art", "film", None]


def test_data_of_strangers_are_refused(parts) -> None:
    strange = read_interactions(pl.DataFrame({"user": ["x"], "item": ["y"]}))
    with pytest.raises(DataError, match="none of the users and items"):
        Pairs.of(parts[1], strange)
