"""What a model knows that takes in new interactions."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from transcf.data.readers import read_interactions
from transcf.data.training_data import Growth, TrainingData
from transcf.errors import DataError


def known_of(**columns: list) -> TrainingData:
    return TrainingData.of(read_interactions(pl.DataFrame(columns)))


@pytest.fixture
def before() -> TrainingData:
    return known_of(
        user=["bob", "ann", "bob", "ann"], item=["z", "m", "a", "b"], timestamp=[4, 3, 2, 1]
    )


def listed(known: TrainingData) -> dict[str, list[str]]:
    return {
        user: known.items.ids(known.histories[row]).to_list()
        for row, user in enumerate(known.users.series)
    }


def test_known_has_sets_orders_and_counts(before: TrainingData) -> None:
    assert listed(before) == {"ann": ["b", "m"], "bob": ["a", "z"]}
    assert before.timed
    assert not known_of(user=["ann"], item=["x"]).timed
    assert before.item_counts.tolist() == [1, 1, 1, 1]
    assert before.rankable.all()
    assert before.active.all()
    assert before.facts() == {"users": 2, "items": 4, "interactions": 4}


def test_what_is_new_comes_last_and_what_is_old_keeps_its_place(before: TrainingData) -> None:
    log = read_interactions(
        pl.DataFrame(
            {
                "user": ["ann", "ann", "abe", "ann", "ann"],
                "item": ["c", "b", "z", "a", "zz"],
                "timestamp": [0, 99, 5, 7, 6],
            }
        )
    )
    growth = Growth.of(before, log)
    after = growth.known
    expected = {"abe": ["z"], "ann": ["b", "m", "c", "zz", "a"], "bob": ["a", "z"]}
    assert listed(after) == expected
    assert after.timed
    for row, user in enumerate(after.users.series):
        assert after.items.ids(after.seen.row(row)).to_list() == sorted(expected[user])
    assert after.users.ids(growth.old_users).to_list() == before.users.series.to_list()
    assert after.items.ids(growth.old_items).to_list() == before.items.series.to_list()
    spread = growth.of_users(np.array([[1.0], [2.0]], np.float32))
    assert spread.tolist() == [[0.0], [1.0], [2.0]]
    assert growth.of_items(np.array([1, 2, 3, 4])).tolist() == [1, 2, 0, 3, 4, 0]
    pairs = list(zip(after.seen.entry_rows, after.seen.indices, strict=True))
    users, items = (np.array(rows, np.int32) for rows in zip(*pairs[::-1], strict=True))
    assert growth.places(users, items).tolist() == list(range(len(pairs)))[::-1]


def test_without_times_additions_are_in_the_order_of_their_log(before: TrainingData) -> None:
    log = read_interactions(pl.DataFrame({"user": ["ann", "ann", "ann"], "item": ["z", "a", "c"]}))
    assert listed(Growth.of(before, log).known)["ann"] == ["b", "m", "z", "a", "c"]


def test_nothing_and_other_kinds_of_ids_are_refused(before: TrainingData) -> None:
    log = read_interactions(pl.DataFrame({"user": ["ann"], "item": ["z"]}))
    with pytest.raises(DataError, match="nothing to add"):
        Growth.of(before, log.select(np.zeros(1, bool)))
    numbers = read_interactions(pl.DataFrame({"user": [1], "item": ["z"]}))
    with pytest.raises(DataError, match="user ids of the model are text and the new ones integers"):
        Growth.of(before, numbers)
