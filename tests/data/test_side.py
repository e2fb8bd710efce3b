"""Links between users and categories of items, beside the events."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pytest

from transcf.data import Split, k_core, leave_one_out, open_data, read_interactions, synthesize
from transcf.data.interactions import Interactions
from transcf.errors import DataError, ParameterError

EVENTS = [("ann", 1), ("bob", 2), ("cy", 2), ("cy", 3)]
LINKS = [("ann", "bob"), ("bob", "ann"), ("cy", "cy"), ("cy", "bob"), ("zoe", "ann")]


def pairs(log: Interactions) -> list[tuple]:
    return log.links.rows()


def test_links_hold_both_ways_once_and_strangers_are_counted():
    log = read_interactions(EVENTS, links=LINKS)
    assert pairs(log) == [("ann", "bob"), ("bob", "ann"), ("bob", "cy"), ("cy", "bob")]
    assert log.report.count("links", "rows") == 5
    assert log.report.count("links", "with_unknown_users") == 1
    friends = log.friends
    assert [friends.row(user).tolist() for user in range(3)] == [[1], [0, 2], [1]]
    assert (friends.n_rows, friends.n_columns) == (3, 3)


@pytest.mark.parametrize("form", ["polars", "pandas", "csv", "tsv", "three columns"])
def test_links_come_in_any_table(form, tmp_path):
    columns = {"user_id": [left for left, _ in LINKS], "friend_id": [right for _, right in LINKS]}
    source = pl.DataFrame(columns)
    if form == "pandas":
        source = pd.DataFrame(columns)
    elif form in ("csv", "tsv"):
        path = tmp_path / f"links.{form}"
        source.write_csv(path, separator="," if form == "csv" else "\t")
        source = path
    elif form == "three columns":
        source = source.with_columns(since=pl.lit(1)).select("since", "friend_id", "user_id")
    assert pairs(read_interactions(EVENTS, links=source)) == pairs(
        read_interactions(EVENTS, links=LINKS)
    )


def test_text_of_a_file_stands_for_integers_where_users_are(tmp_path):
    path = tmp_path / "links.csv"
    path.write_text("user,friend\n7,9\n9,guest\n")
    log = read_interactions([(7, 1), (9, 2)], links=path)
    assert pairs(log) == [(7, 9), (9, 7)]
    assert log.report.count("links", "with_unknown_users") == 1
    with pytest.raises(DataError, match="no user of the log, whose user ids are integers"):
        read_interactions([(7, 1), (9, 2)], links=[("7", "9")])


def test_categories_come_from_a_table_of_their_own():
    table = pl.DataFrame({"item": [1, 2, 2, 8], "genre": ["x", "y", "x", "z"]})
    log = read_interactions(EVENTS, categories=table)
    assert log.categories.rows() == [(1, "x"), (2, "x"), (2, "y")]
    assert log.report.count("categories", "unknown_items") == 1
    assert log.category_names == ("x", "y")
    assert [log.item_categories.row(item).tolist() for item in range(3)] == [[0], [0, 1], []]
    lists = table.group_by("item", maintain_order=True).agg("genre")
    assert read_interactions(EVENTS, categories=lists).categories.equals(log.categories)


def test_a_table_takes_the_place_of_a_column_but_not_of_one_that_was_named():
    frame = pl.DataFrame({"user": [1, 2], "item": [1, 2], "genre": ["a", "b"]})
    log = read_interactions(frame, categories=[(1, "c")])
    assert log.categories.rows() == [(1, "c")]
    with pytest.raises(ParameterError, match="either category or categories"):
        read_interactions(frame, category="genre", categories=[(1, "c")])


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"links": [("x", "y")]}, "speaks of no user of the log, whose user ids are text"),
        ({"links": pl.DataFrame({"user": ["ann"]})}, "no friend column"),
        ({"links": pl.DataFrame({"a": [], "b": []})}, "is empty"),
        ({"links": pl.DataFrame({"a": ["ann"], "b": [None]})}, "has no id"),
        ({"links": 3}, "int"),
        ({"categories": [(9, "c")]}, "speaks of no item of the log, whose item ids are integers"),
        ({"categories": pl.DataFrame({"item": [1]})}, "no category column"),
        ({"categories": pl.DataFrame({"i": [1], "c": [{"a": 1}]})}, "a category is text"),
    ],
)
def test_what_cannot_be_read_gets_a_sentence(given, sentence):
    with pytest.raises(DataError, match=sentence) as error:
        read_interactions(EVENTS, **given)
    assert str(error.value).endswith(".")


def test_logs_without_either_have_empty_rows():
    log = read_interactions(EVENTS)
    assert log.links is None
    assert log.categories is None
    assert log.friends.counts.tolist() == [0, 0, 0]
    assert log.item_categories.counts.tolist() == [0, 0, 0]
    assert log.category_names == ()


def test_filters_keep_links_between_those_who_stay():
    log = synthesize(users=200, items=80, interactions=1500)
    assert "links" in repr(log)
    fewer = k_core(log, 7, 5)
    assert fewer.n_users < log.n_users
    kept = set(fewer.users.series)
    assert set(pairs(fewer)) == {pair for pair in pairs(log) if kept.issuperset(pair)}
    assert fewer.friends.n_rows == fewer.n_users


def test_splits_joins_and_files_keep_both(tmp_path):
    log = synthesize(users=60, items=40, interactions=600)
    split = leave_one_out(log)
    folder = split.save(tmp_path / "split")
    for part in (
        split.train,
        split.test,
        split.before_test,
        Split.load(folder).validation,
        open_data(folder),
    ):
        assert part.links.equals(log.links)
        assert part.categories.equals(log.categories)
        assert np.array_equal(part.friends.indices, log.friends.indices)


def test_made_up_links_go_by_taste():
    log = synthesize()
    graph, likes = log.friends.to_scipy(), log.by_user.to_scipy() @ log.item_categories.to_scipy()
    assert (graph != graph.T).nnz == 0
    assert graph.diagonal().sum() == 0
    tastes = likes.toarray() / np.linalg.norm(likes.toarray(), axis=1, keepdims=True)
    linked = tastes[log.friends.entry_rows] * tastes[log.friends.indices]
    assert linked.sum(axis=1).mean() > 1.3 * (tastes @ tastes.T).mean()
