"""Histories, and the order that a log has."""

from __future__ import annotations

import numpy as np
import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from transcf.data.csr import Histories
from transcf.data.readers import read_interactions

histories = st.lists(
    st.lists(st.integers(0, 11), max_size=6, unique=True).map(lambda x: np.array(x, np.int32)),
    max_size=5,
)


@given(lists=histories)
def test_single_histories_are_put_together_and_found_again(lists: list[np.ndarray]) -> None:
    both = Histories.of(lists, 12)
    assert len(both) == len(lists)
    assert both.counts.tolist() == [len(one) for one in lists]
    assert [both[row].tolist() for row in range(len(both))] == [one.tolist() for one in lists]
    assert both.items.dtype == np.int32
    assert both.indptr.dtype == np.int64
    assert both.places.tolist() == [place for one in lists for place in range(1, len(one) + 1)]


@given(lists=histories)
def test_the_matrix_is_the_same_as_a_set(lists: list[np.ndarray]) -> None:
    both = Histories.of(lists, 12)
    matrix = both.matrix
    assert (matrix.n_rows, matrix.n_columns) == (len(lists), 12)
    for row, one in enumerate(lists):
        assert matrix.row(row).tolist() == sorted(one.tolist())
    # The order is still there.
    assert [both[row].tolist() for row in range(len(both))] == [one.tolist() for one in lists]


def test_nobody_and_nothing() -> None:
    nobody = Histories.of([], 3)
    assert (len(nobody), len(nobody.items), nobody.matrix.n_rows) == (0, 0, 0)
    idle = Histories.of([np.empty(0, np.int32)] * 2, 3)
    assert idle.counts.tolist() == [0, 0]
    assert idle[1].tolist() == []


TABLE = pl.DataFrame(
    {
        "user": ["bob", "ann", "ann", "bob", "ann", "ann"],
        "item": ["z", "y", "x", "a", "m", "b"],
        "timestamp": [9, 5, 3, 1, 5, 1],
    }
)


def taken(table: pl.DataFrame) -> dict[str, list[str]]:
    log = read_interactions(table)
    items = log.items.series.to_list()
    users = log.users.series.to_list()
    by_events = log.items.ids(log.item_rows[log.in_order]).to_list()
    assert by_events == [items[row] for row in log.histories.items]
    assert (np.diff(log.user_rows[log.in_order]) >= 0).all()
    assert sorted(log.in_order) == list(range(len(log)))
    return {user: [items[row] for row in log.histories[place]] for place, user in enumerate(users)}


def test_with_times_the_oldest_is_first_and_equal_times_go_by_item() -> None:
    expected = {"ann": ["b", "x", "m", "y"], "bob": ["a", "z"]}
    assert taken(TABLE) == expected
    assert taken(TABLE.reverse()) == expected, "the order of the log does not matter"


def test_without_times_it_is_the_order_of_the_log() -> None:
    table = TABLE.drop("timestamp")
    assert taken(table) == {"ann": ["y", "x", "m", "b"], "bob": ["z", "a"]}
    assert taken(table.reverse()) == {"ann": ["b", "m", "x", "y"], "bob": ["a", "z"]}


def test_of_a_repeated_pair_the_event_that_is_kept_has_the_place() -> None:
    again = pl.DataFrame({"user": ["ann"], "item": ["b"], "timestamp": [4]})
    assert taken(pl.concat([TABLE, again]))["ann"] == ["x", "b", "m", "y"]
    assert taken(pl.concat([TABLE, again]).drop("timestamp"))["ann"] == ["y", "x", "m", "b"]
    first = pl.concat([again, TABLE]).drop("timestamp")
    assert taken(first)["ann"] == ["y", "x", "m", "b"], "the last in the log"


def test_a_part_of_a_log_keeps_the_order_of_the_whole() -> None:
    for table in (TABLE, TABLE.drop("timestamp")):
        log = read_interactions(table)
        kept = log.item_rows != log.items.rows(["x"])[0]
        part = log.select(kept)
        whole = [[row for row in log.histories[user] if row != 3] for user in range(2)]
        assert log.items.rows(["x"]).tolist() == [3]
        assert [part.histories[user].tolist() for user in range(2)] == whole
        fewer = log.select(kept, drop_ids=True)
        assert fewer.histories.n_items == log.n_items - 1
        names = [fewer.items.ids(fewer.histories[user]).to_list() for user in range(2)]
        assert names == [log.items.ids(np.array(rows, np.int32)).to_list() for rows in whole]


@given(seed=st.integers(0, 2**32 - 1), timed=st.booleans())
def test_order_agrees_with_sorting_the_events_of_each_user(seed: int, timed: bool) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 60))
    table = pl.DataFrame(
        {
            "user": rng.integers(0, 6, n),
            "item": rng.integers(0, 8, n),
            "timestamp": rng.integers(0, 5, n),
        }
    ).unique(["user", "item"], keep="first", maintain_order=True)
    expected = table.sort("timestamp", "item") if timed else table
    grouped = dict(expected.group_by("user", maintain_order=True).agg("item").iter_rows())
    assert taken(table if timed else table.drop("timestamp")) == grouped
