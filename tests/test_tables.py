"""Tables of text for terminals and Markdown."""

import polars as pl

from transcf.protocols import full_ranking
from transcf.tables import Cell, Table, escape_markdown, legend, text_of


def test_markdown_is_escaped() -> None:
    assert escape_markdown("a|b *c* reg_distance") == r"a\|b \*c\* reg_distance"
    assert escape_markdown("1. no list", paragraph=True) == r"1\. no list"


def test_a_table_as_text_and_as_markdown() -> None:
    table = Table("Title", ["model", "NDCG@10"], [["x", Cell("1", "best")]], ["A note."])
    assert table.to_text().split("\n") == ["Title", "model  NDCG@10", "x          1 *", "A note."]
    lines = ["**Title**", "", "| model | NDCG@10 |", "|---|--:|", "| x | **1** |", "", "A note."]
    assert table.to_markdown().split("\n") == lines
    frame = pl.DataFrame({"a": ["x"], "b": [0.5]})
    assert Table.of(frame, "T", digits=2).rows == [["x", "0.50"]]


def test_a_metric_is_explained_once() -> None:
    text = "MAP@N = mean average precision of the first N; * = the best."
    assert legend(["MAP@5", "MAP@10"], "* = the best") == text


def test_full_ranking_by_its_split() -> None:
    assert full_ranking(cut=False, refit=True).name == "leave-last-out"


def test_values_of_tables_are_formatted() -> None:
    assert text_of({"users": 1200, "times": True, "none": None}) == "users 1,200, times yes, none -"
    assert text_of([0.25, "b"], 2) == "0.25, b"
