"""Categories of items, beside the events."""

from __future__ import annotations

import polars as pl
import pytest

from transcf.data import Split, leave_one_out, open_data, read_interactions, synthesize
from transcf.errors import DataError, ParameterError
from transcf.serving.items import read_item_metadata

EVENTS = [("ann", 1), ("bob", 2), ("cy", 2), ("cy", 3)]


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
        ({"categories": pl.DataFrame({"a": [], "b": []})}, "is empty"),
        ({"categories": pl.DataFrame({"a": [1, None], "b": ["c", "c"]})}, "has no id"),
        ({"categories": 3}, "Data of type int is no event log"),
        (
            {"categories": pl.DataFrame({"item": [1], "item_id": [2]})},
            "several columns that could be the item: give a table with columns item_id and categ",
        ),
        ({"categories": [(" x", "c")]}, "with blanks around it"),
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


def test_a_column_is_what_the_other_is_not():
    shelves = pl.DataFrame({"shelf": [3, 3], "item_id": [1, 2]})
    log = read_interactions(EVENTS, categories=shelves)
    assert log.categories.rows() == [(1, "3"), (2, "3")]


def test_a_first_line_of_data_is_not_lost(tmp_path):
    path, events = tmp_path / "beside.csv", tmp_path / "events.csv"
    path.write_text("1,x\n2,y\n")
    events.write_text("ann,1\nbob,2\ncy,2\n")
    with pytest.raises(DataError, match="has '1' in the place of a name: give a table"):
        read_interactions(EVENTS, categories=path)
    log = read_interactions(events, header=False, categories=path)
    assert log.report.count("categories", "rows") == 2
    assert log.categories.height == 2


def test_files_beside_a_log_are_written_as_it_is(tmp_path):
    events, genres = tmp_path / "events.csv", tmp_path / "genres.csv"
    events.write_bytes("user_id|item_id\nann|José\nbob|2\n".encode("latin-1"))
    genres.write_bytes("item_id|genre\nJosé|x\n".encode("latin-1"))
    form = {"separator": "|", "encoding": "latin-1"}
    log = read_interactions(events, categories=genres, **form)
    assert log.categories.rows() == [("José", "x")]


def test_no_zero_is_lost_and_rows_without_category_are_counted(tmp_path):
    shelves = tmp_path / "shelves.csv"
    shelves.write_text("item,category\n01,x\n2,y\n3,\n")
    log = read_interactions([(7, 1), (8, 2), (9, 3)], categories=shelves)
    assert log.categories.rows() == [(2, "y")]
    assert log.report.count("categories", "unknown_items") == 1
    assert log.report.count("categories", "without_category") == 1


def test_logs_without_categories_have_empty_rows():
    log = read_interactions(EVENTS)
    assert log.categories is None
    assert log.item_categories.counts.tolist() == [0, 0, 0]
    assert log.category_names == ()


def test_tables_of_ones_own_are_made_plain():
    log = read_interactions(EVENTS)
    shelves = pl.DataFrame({"item_id": [2, 1, 3], "category": [7, 7, None]})
    log = log.with_categories(shelves)
    assert log.categories.rows() == [(1, "7"), (2, "7")]
    assert log.item_categories.counts.tolist() == [1, 1, 0]
    with pytest.raises(DataError, match="categories has no column 'item_id': it needs item_id and"):
        log.with_categories(shelves.select("category"))


def test_splits_joins_and_files_keep_categories(tmp_path):
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
        assert part.categories.equals(log.categories)


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
