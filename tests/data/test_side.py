"""Links between users and categories of items, beside the events."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pytest

from transcf.data import Split, k_core, leave_one_out, open_data, read_interactions, synthesize
from transcf.data.interactions import Interactions
from transcf.errors import DataError, ParameterError
from transcf.serving.items import read_item_metadata

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
        ({"links": [("x", "y")]}, "has no user of the log, whose user ids are text"),
        ({"links": pl.DataFrame({"user": ["ann"]})}, "no friend column"),
        ({"links": pl.DataFrame({"a": [], "b": []})}, "is empty"),
        ({"links": pl.DataFrame({"a": ["ann"], "b": [None]})}, "has no id"),
        ({"links": 3}, "Data of type int is no event log"),
        ({"links": pl.DataFrame({"user_id": ["ann"], "item_id": [1]})}, "no friend column"),
        (
            {"links": pl.DataFrame({"user": ["ann"], "user_id": ["bob"]})},
            "several columns that could be the user: give a table with columns user_id and friend",
        ),
        ({"links": [("ann", " bob")]}, "with blanks around it"),
        ({"categories": [(9, "c")]}, "has no item of the log, whose item ids are integers"),
        ({"categories": pl.DataFrame({"item": [1]})}, "no category column"),
        ({"categories": pl.DataFrame({"user": ["ann"], "item": [1]})}, "no category column"),
        ({"categories": pl.DataFrame({"user": [1], "friend": [2]})}, "no item column"),
        ({"categories": pl.DataFrame({"item": [1], "genre": [None]})}, "has no category in it"),
        ({"categories": pl.DataFrame({"i": [1], "c": [{"a": 1}]})}, "a category is text"),
    ],
)
def test_what_cannot_be_read_gets_a_sentence(given, sentence):
    with pytest.raises(DataError, match=sentence) as error:
        read_interactions(EVENTS, **given)
    assert str(error.value).endswith(".")
    assert "friend=" not in str(error.value)


@pytest.mark.parametrize("name", ["user_id", "friend_id"])
def test_a_column_is_what_the_other_is_not(name):
    ends = ["whoever", name] if name == "user_id" else [name, "whoever"]
    links = pl.DataFrame({ends[0]: ["ann"], ends[1]: ["cy"]})
    assert pairs(read_interactions(EVENTS, links=links)) == [("ann", "cy"), ("cy", "ann")]
    shelves = pl.DataFrame({"shelf": [3, 3], "item_id": [1, 2]})
    log = read_interactions(EVENTS, categories=shelves)
    assert log.categories.rows() == [(1, "3"), (2, "3")]


@pytest.mark.parametrize(
    ("given", "text", "first"),
    [("links", "ann,bob\nbob,cy\n", "ann"), ("categories", "1,x\n2,y\n", "1")],
)
def test_a_first_line_of_data_is_not_lost(given, text, first, tmp_path):
    path, events = tmp_path / "beside.csv", tmp_path / "events.csv"
    path.write_text(text)
    events.write_text("ann,1\nbob,2\ncy,2\n")
    with pytest.raises(DataError, match=f"has '{first}' in the place of a name: give a table"):
        read_interactions(EVENTS, **{given: path})
    log = read_interactions(events, header=False, **{given: path})
    assert log.report.count(given, "rows") == 2
    assert (log.links if given == "links" else log.categories).height == (
        4 if given == "links" else 2
    )


def test_files_beside_a_log_are_written_as_it_is(tmp_path):
    events, links = tmp_path / "events.csv", tmp_path / "links.csv"
    events.write_bytes("user_id|item_id\nJosé|1\nbob|2\n".encode("latin-1"))
    links.write_bytes("user_id|friend_id\nJosé|bob\n".encode("latin-1"))
    form = {"separator": "|", "encoding": "latin-1"}
    log = read_interactions(events, links=links, categories=[(1, "x")], **form)
    assert pairs(log) == [("José", "bob"), ("bob", "José")]


def test_no_zero_is_lost_and_rows_without_category_are_counted(tmp_path):
    links, shelves = tmp_path / "links.csv", tmp_path / "shelves.csv"
    links.write_text("user,friend\n007,9\n8,9\n")
    shelves.write_text("item,category\n01,x\n2,y\n3,\n")
    log = read_interactions([(7, 1), (8, 2), (9, 3)], links=links, categories=shelves)
    assert pairs(log) == [(8, 9), (9, 8)]
    assert log.report.count("links", "with_unknown_users") == 1
    assert log.categories.rows() == [(2, "y")]
    assert log.report.count("categories", "unknown_items") == 1
    assert log.report.count("categories", "without_category") == 1


def test_logs_without_either_have_empty_rows():
    log = read_interactions(EVENTS)
    assert log.links is None
    assert log.categories is None
    assert log.friends.counts.tolist() == [0, 0, 0]
    assert log.item_categories.counts.tolist() == [0, 0, 0]
    assert log.category_names == ()


def test_tables_of_ones_own_are_made_plain():
    log = read_interactions(EVENTS)
    shelves = pl.DataFrame({"item_id": [2, 1, 3], "category": [7, 7, None]})
    log = log.with_categories(shelves)
    assert log.categories.rows() == [(1, "7"), (2, "7")]
    assert log.item_categories.counts.tolist() == [1, 1, 0]
    links = pl.DataFrame({"user_id": ["ann", "cy"], "friend_id": ["bob", None]})
    assert pairs(log.with_links(links)) == [("ann", "bob")]
    with pytest.raises(DataError, match="categories has no column 'item_id': it needs item_id and"):
        log.with_categories(links)
    with pytest.raises(DataError, match="links has no column 'friend_id'"):
        log.with_links(links.select("user_id"))


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


def test_one_reading_of_categories_for_models_and_services(tmp_path):
    path = tmp_path / "items.csv"
    rows = ["item_id,title,genres", "1,Up,Drama|War", "2,Go, War |Drama|", "3,No,", "4,Mix,Drama"]
    path.write_text("\n".join(rows))
    events = pl.DataFrame({"user": [1] * 4, "item": [1, 2, 3, 4]})
    log = read_interactions(events, categories=path)
    expected = {1: {"Drama", "War"}, 2: {"Drama", "War"}, 3: set(), 4: {"Drama"}}
    assert log.category_names == ("Drama", "War")
    assert {item: set(fact.categories) for item, fact in read_item_metadata(path).items()} == {
        str(item): names for item, names in expected.items()
    }
    column = pl.DataFrame({"user": 1, "item": [1, 4], "genre": ["Drama|War", "Drama"]})
    own = read_interactions(column)
    assert own.category_names == log.category_names
    assert log.categories.rows() == [
        (item, name) for item, names in expected.items() for name in sorted(names)
    ]


@pytest.mark.parametrize("names", ["sku,title", "id,sku", "product_id,sku"])
def test_the_id_column_of_items_has_a_usual_name(tmp_path, names):
    (tmp_path / "items.csv").write_text(f"{names}\n007,Up\n")
    assert list(read_item_metadata(tmp_path / "items.csv")) == ["007"]


def test_items_for_a_service_may_hold_columns_of_any_kind(tmp_path):
    rows = [f"{n},{n},{n},\u0663" for n in range(1, 300)] + ["300,word,2.5,x"]
    for name in ("items[1].csv", "items1.csv"):
        path = tmp_path / name
        path.write_text("\n".join(["item_id,year,price,digits", *rows]), encoding="utf-8")
        rows = rows[:1]
    facts = read_item_metadata(tmp_path / "items[1].csv")
    assert len(facts) == 300
    assert facts["300"].others == {"year": "word", "price": 2.5, "digits": "x"}
