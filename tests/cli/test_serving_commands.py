"""`transcf recommend`, `similar` and `explain`: a saved model answers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from typer.testing import Result

import transcf
from transcf.data.synthetic import synthesize
from transcf.models.transcf import TransCF

Command = Callable[..., Result]
Answer = Callable[..., Any]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    log = synthesize(users=150, items=60, interactions=2500, seed=3)
    return TransCF(dim=8, epochs=2).fit(log).save(tmp_path_factory.mktemp("model") / "transcf")


@pytest.fixture(scope="module")
def floor(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with integer ids and nothing to explain."""
    table = pl.DataFrame({"user": [1, 1, 2, 3000], "item": [1000, 8, 8, 9]})
    log = transcf.read_interactions(table)
    return transcf.Popularity().fit(log).save(tmp_path_factory.mktemp("model") / "floor")


def test_one_user(command: Command, answer: Answer, folder: Path) -> None:
    model = transcf.load(folder)
    expected = model.recommend("u010", 4)
    assert answer("recommend", folder, "--user", "u010", "-k", 4) == expected.to_dicts()
    shown = command("recommend", folder, "--user", "u010").stdout
    assert all(item in shown for item in expected["item_id"])
    seen = answer("recommend", folder, "--user", "u010", "-k", 99, "--with-seen")
    assert len(seen) == 60


def test_ids_are_shown_as_they_are(command: Command, answer: Answer, floor: Path) -> None:
    shown = command("recommend", floor, "--user", "3000").stdout
    assert "1000" in shown
    assert "3,000" not in shown
    assert answer("recommend", floor, "--user", "3000", "-k", 1)[0]["item_id"] == 8
    assert [row["item_id"] for row in answer("recommend", floor, "--history", "8, 9")] == [1000]


def test_a_file_of_users(answer: Answer, refusal: Answer, folder: Path, tmp_path: Path) -> None:
    names = tmp_path / "users.txt"
    names.write_text("u010\n\nnobody\nu003\n")
    assert "'nobody' is unknown" in refusal("recommend", folder, "--users-file", names)
    found = answer("recommend", folder, "--users-file", names, "-k", 1, "--skip-unknown")
    assert [row["user_id"] for row in found] == ["u010", "u003"]
    names.write_bytes(b"\xff\xfe\x00")
    assert "not a text file" in refusal("recommend", folder, "--users-file", names)
    assert "No such file" in refusal("recommend", folder, "--users-file", tmp_path / "none")


def test_everybody_goes_to_a_file(
    command: Command, answer: Answer, folder: Path, tmp_path: Path
) -> None:
    out = tmp_path / "recs.parquet"
    expected = transcf.load(folder).recommend(k=3)
    assert answer("recommend", folder, "--all", "-k", 3, "--out", out)["rows"] == len(expected)
    assert pl.read_parquet(out).equals(expected)
    assert str(out) in command("recommend", folder, "--all", "--out", out).stdout


def test_a_history(command: Command, answer: Answer, folder: Path) -> None:
    expected = transcf.load(folder).recommend_for(["i05", "i09"], 3)
    assert answer("recommend", folder, "--history", "i05,i09", "-k", 3) == expected.to_dicts()
    assert expected["item_id"][0] in command("recommend", folder, "--history", "i05,i09").stdout


def test_similar(command: Command, answer: Answer, refusal: Answer, folder: Path,
                 floor: Path) -> None:  # fmt: skip
    model = transcf.load(folder)
    assert answer("similar", folder, "--item", "i05", "-k", 3) == (
        model.similar_items("i05", 3).to_dicts()
    )
    assert answer("similar", folder, "--user", "u010", "-k", 3) == (
        model.similar_users("u010", 3).to_dicts()
    )
    assert "neighbor_id" in command("similar", folder, "--item", "i05").stdout
    assert "--item or --user" in refusal("similar", folder)
    assert "popularity has neither vectors nor weights" in refusal("similar", floor, "--item", 8)


def test_explain(command: Command, answer: Answer, refusal: Answer, folder: Path,
                 floor: Path) -> None:  # fmt: skip
    model = TransCF.load(folder)
    found = answer("explain", folder, "--user", "u010", "--item", "i05", "--top", 2)
    assert found["score"] == model.explain("u010", "i05").score
    assert len(found["effects"]) == 2
    assert command("explain", folder, "--user", "u010", "--item", "i05").stdout == (
        f"{model.explain('u010', 'i05')}\n"
    )
    guest = answer("explain", folder, "--history", "i05,i09", "--item", "i07")
    assert guest["user_id"] is None
    assert "--user or --history" in refusal("explain", folder, "--item", "i05")
    assert "cannot explain" in refusal("explain", floor, "--user", 1, "--item", 8)


WRONG = {
    "nobody": ((), "Say for whom, in one way"),
    "too many": (("--user", "u010", "--all"), "Say for whom, in one way"),
    "all without a file": (("--all",), "--all needs --out"),
    "unknown user": (("--user", "bob"), "user 'bob' is unknown"),
    "unknown history": (("--history", "x,y"), "item 'x' is unknown"),
    "empty history": (("--history", " , "), "history is empty"),
    "history to a file": (("--history", "i05", "--out", "x.parquet"), "--out is not for --history"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_requests_get_one_sentence(refusal: Answer, folder: Path, case: str) -> None:
    words, expected = WRONG[case]
    sentence = refusal("recommend", folder, *words)
    assert expected in sentence
    assert sentence.count("\n") == 1


def test_a_folder_without_a_model_is_named(refusal: Answer, tmp_path: Path) -> None:
    assert "has no model.json" in refusal("recommend", tmp_path, "--user", "ann")
