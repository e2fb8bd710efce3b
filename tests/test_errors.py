"""Sentences stay sentences, whatever they quote."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from transcf import errors
from transcf.errors import DataError, TransCFError, UnknownIdError, brief, is_word, shown

DOCS = Path(__file__).resolve().parents[1] / "docs"


def test_errors_are_one_line_whatever_they_quote() -> None:
    for kind in (TransCFError, DataError, UnknownIdError):
        assert str(kind("There is no a\nb\r\nc: check\u2028it.")) == "There is no a b c: check it."


@pytest.mark.parametrize(
    "value", [10**5000, -(10**5000), np.arange(500), "x" * 5000, {1: "a\nb"}], ids=range(5)
)
def test_any_value_can_be_shown(value: object) -> None:
    assert 0 < len(shown(value)) <= 80
    assert "\n" not in shown(value)


def test_values_that_cannot_show_themselves() -> None:
    class Shy:
        def __repr__(self) -> str:
            raise RuntimeError

    assert shown(Shy()) == "a Shy that is too long to show"


def test_long_words_are_cut() -> None:
    text = str(DataError(f"There is no file {'x' * 5000}.csv: check the path."))
    assert text.endswith("x.csv: check the path.")
    assert len(text) < 150
    assert brief("x" * 379) == "x" * 379, "a long path stays whole"


def test_words_are_compared_as_words() -> None:
    assert is_word("time", ["time"])
    for other in (None, 3, np.array(["time", "time"]), b"time", ["time"]):
        assert not is_word(other, ["time"])


def test_pages_that_errors_name_exist() -> None:
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type)]
    pages = {kind.page for kind in kinds if issubclass(kind, TransCFError)} - {""}
    assert len(pages) >= 3
    assert all((DOCS / f"{page}.md").exists() for page in pages)
