"""`transcf recommend`, `similar` and `explain`: a saved model answers."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from typer.testing import Result

import transcf
from transcf.data.synthetic import synthesize
from transcf.errors import ModelFileError
from transcf.io.model_dir import Versions
from transcf.models.mixture import TransCFMixture

Command = Callable[..., Result]
Answer = Callable[..., Any]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    log = synthesize(users=150, items=60, interactions=2500, seed=3)
    return (
        TransCFMixture(dim=8, epochs=2).fit(log).save(tmp_path_factory.mktemp("model") / "transcf")
    )


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
    assert [row["item_id"] for row in answer("recommend", floor, "--history", "8,9")] == [1000]


@pytest.mark.parametrize(
    "text", ["01", "+1", "1_0", " 1", "1 ", "\uff11", "1.0", "0x1", "1e0", "-0"]
)
def test_ids_match_by_their_exact_text(
    refusal: Answer, floor: Path, tmp_path: Path, text: str
) -> None:
    names = tmp_path / "users.txt"
    names.write_text(f"{text}\n", encoding="utf-8")
    for options in (["--user", text], ["--users-file", names], ["--history", f"8,{text}"]):
        assert "is unknown" in refusal("recommend", floor, *options)
    assert "is unknown" in refusal("explain", floor, "--user", text, "--item", 8)


@pytest.mark.parametrize("history", ["8,,9", ",8", "8,", ",", ""])
def test_empty_ids_in_a_history_are_refused(refusal: Answer, floor: Path, history: str) -> None:
    assert "empty" in refusal("recommend", floor, "--history", history)
    assert "empty" in refusal("explain", floor, "--history", history, "--item", 8)


@pytest.mark.parametrize("asked", [("--user", "u010"), ("--history", "i05,i09")])
def test_filters_of_items(
    command: Command, answer: Answer, folder: Path, tmp_path: Path, asked: tuple[str, str]
) -> None:
    ids, table = tmp_path / "ids.txt", tmp_path / "items.csv"
    ids.write_text("i01\ni02\n\ni03\nodd\n")
    table.write_text("item_id,category\ni01,green|new\ni02,black\ni03,new\nodd,new\n")

    def listed(*options: object) -> set[str]:
        found = answer("recommend", folder, *asked, "-k", 60, "--with-seen", *options)
        return {row["item_id"] for row in found}

    every = listed()
    assert listed("--exclude", "i01", "--exclude", "i02") == every - {"i01", "i02"}
    assert listed("--items-file", ids) == listed("--items-file", table) == {"i01", "i02", "i03"}
    assert listed("--items-file", ids, "--exclude", "i03") == {"i01", "i02"}
    said = command("recommend", folder, *asked, "--items-file", ids, "--exclude", "none").stderr
    assert "1 of 4 item ids in items" in said
    assert "1 of 1 item ids in exclude" in said


def test_the_current_version_of_a_model_answers(
    command: Command, answer: Answer, refusal: Answer, folder: Path, tmp_path: Path
) -> None:
    base = tmp_path / "shop"
    shutil.copytree(folder, base)
    asked = ("recommend", base, "--user", "u010")
    assert command(*asked).stderr == ""
    versions, log = Versions(base), transcf.synthesize(users=20, items=60, interactions=300)
    newer = transcf.EASE().fit(log)
    versions.add(newer)
    assert transcf.load(base).name == "TransCF-mixture"
    versions.switch(2)
    user = newer.users_.series[0]
    expected = newer.recommend(user, 3)
    for found in (transcf.load(base), transcf.EASE.load(str(base))):
        assert found.recommend(user, 3).equals(expected)
    asked = ("recommend", base, "--user", user, "-k", 3)
    assert answer(*asked) == expected.to_dicts()
    assert "version 2" in command(*asked).stderr
    (item, *_) = expected["item_id"]
    assert answer("explain", base, "--user", user, "--item", item)["model"] == "ease"
    assert answer("similar", base, "--item", item)
    for save in (newer.save, transcf.load(folder).save):
        with pytest.raises(ModelFileError, match="version 2 is in use"):
            save(base, overwrite=True)
    assert answer("refresh", base, "--back-to", 1)["served"] == 1
    assert transcf.load(base).name == "TransCF-mixture"
    newer.save(base, overwrite=True)
    (tmp_path / "shop.versions" / "current").write_text("two")
    assert "number of a version" in refusal("recommend", base, "--user", user)


def test_a_file_of_users(
    command: Command, answer: Answer, refusal: Answer, folder: Path, tmp_path: Path
) -> None:
    names = tmp_path / "users.txt"
    names.write_text("u010\n\nnobody\nu003\n")
    assert "'nobody' is unknown" in refusal("recommend", folder, "--users-file", names)
    found = answer("recommend", folder, "--users-file", names, "-k", 1, "--on-unknown", "skip")
    assert [row["user_id"] for row in found] == ["u010", "u003"]
    said = command("recommend", folder, "--users-file", names, "--on-unknown", "skip").stderr
    assert said == "transcf: skipped 1 user without training interactions (--on-unknown skip).\n"
    item = transcf.load(folder).items_.series[0]
    history = ("--history", f"{item},odd,strange", "--on-unknown", "skip")
    assert "skipped 2 items" in command("recommend", folder, *history).stderr
    assert not command("recommend", folder, "--user", "u010", "--on-unknown", "skip").stderr
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
    model = TransCFMixture.load(folder)
    (item, *_) = model.recommend("u010", 1)["item_id"]
    asked = ("explain", folder, "--user", "u010", "--item", item)
    expected = model.explain("u010", item, top=2)
    found = answer(*asked, "--top", 2)
    assert found["sentence"] == expected.sentence
    assert found["effects"][0]["share"] == expected.effects[0].share
    shown = command(*asked, "--top", 2).stdout
    assert expected.title in shown
    assert expected.sentence in shown
    assert all(cell in shown for row in expected.rows for cell in row)
    assert expected.reading in shown
    guest = answer("explain", folder, "--history", "i05,i09", "--item", "i07")
    assert guest["user_id"] is None
    assert "--user or --history" in refusal("explain", folder, "--item", "i05")
    assert "popularity cannot explain" in refusal("explain", floor, "--user", 1, "--item", 9)


def test_items_of_the_history_are_explained(answer: Answer, folder: Path) -> None:
    found = answer("explain", folder, "--history", "i05,i09", "--item", "i05")
    assert found["item_id"] == "i05"


READERS: dict[str, Callable[[Path], pl.DataFrame]] = {
    ".csv": pl.read_csv,
    ".csv.gz": pl.read_csv,
    ".tsv": lambda path: pl.read_csv(path, separator="\t"),
    ".jsonl": pl.read_ndjson,
    ".parquet": pl.read_parquet,
}


@pytest.mark.parametrize("ending", READERS)
def test_files_hold_what_their_ending_says(
    answer: Answer, folder: Path, tmp_path: Path, ending: str
) -> None:
    out, model = tmp_path / f"lists{ending}", transcf.load(folder)
    for words, expected in (
        (("recommend", folder, "--all", "-k", 3), model.recommend(k=3)),
        (("recommend", folder, "--history", "i05,i09"), model.recommend_for(["i05", "i09"])),
    ):
        facts = answer(*words, "--out", out)
        assert facts == {"file": str(out), "rows": len(expected)}
        found = READERS[ending](out)
        assert found.columns == expected.columns
        assert found.cast(dict(expected.schema)).equals(expected)


@pytest.mark.parametrize("form", ["-", "csv", "tsv", "jsonl"])
def test_tables_go_to_the_output(command: Command, folder: Path, form: str) -> None:
    expected = transcf.load(folder).recommend(k=2)
    result = command("recommend", folder, "--all", "-k", 2, "--out", form)
    assert result.exit_code == 0, result.output
    raw = result.stdout.encode()
    if form == "jsonl":
        found = pl.read_ndjson(raw)
    else:
        found = pl.read_csv(raw, separator="\t" if form == "tsv" else ",")
    assert found.cast(dict(expected.schema)).equals(expected)


def test_strangers_get_what_is_popular(
    command: Command, answer: Answer, folder: Path, tmp_path: Path
) -> None:
    names = tmp_path / "users.txt"
    names.write_text("u010\nnobody\n")
    asked = ("recommend", folder, "--users-file", names, "-k", 2, "--on-unknown", "popular")
    model = transcf.load(folder)
    expected = model.recommend(["u010", "nobody"], 2, on_unknown="popular")
    assert answer(*asked) == expected.to_dicts()
    assert expected["source"].to_list() == ["model"] * 2 + ["popularity"] * 2
    shown = command(*asked).stdout
    assert "source" in shown
    out = tmp_path / "lists.csv"
    answer(*asked, "--out", out)
    assert pl.read_csv(out).cast(dict(expected.schema)).equals(expected)
    new = answer("recommend", folder, "--history", "odd", "-k", 1, "--on-unknown", "popular")
    assert new == [{**new[0], "source": "popularity", "rank": 1}]


def test_advice_is_in_the_words_of_the_command_line(
    refusal: Answer, tmp_path: Path, log_file: Path
) -> None:
    log = transcf.read_interactions(log_file)
    idle = transcf.Popularity().fit(log.select(log.user_rows != 5)).save(tmp_path / "model")
    sentence = refusal("recommend", idle, "--user", log.users.series[5])
    assert "or skip them with --on-unknown skip" in sentence
    assert "on_unknown" not in sentence


WRONG = {
    "nobody": ((), "Say for whom, in one way"),
    "too many": (("--user", "u010", "--all"), "Say for whom, in one way"),
    "all without a file": (("--all",), "--all needs --out"),
    "unknown user": (("--user", "bob"), "user 'bob' is unknown"),
    "unknown history": (("--history", "x,y"), "item 'x' is unknown"),
    "empty history": (("--history", ","), "empty id"),
    "unknown ending": (("--all", "--out", "x.xlsx"), "x.xlsx does not say by its ending"),
    "no ending": (("--all", "--out", "x"), "use .csv, .tsv or .jsonl"),
    "no folder": (("--all", "--out", "no/where/x.csv"), "in a folder that exists"),
    "form of text": (("--all", "--out", "parquet"), "parquet does not say by its ending"),
    "two forms": (("--all", "--out", "-", "--json"), "--json and --out - contradict"),
    "odd policy": (("--user", "u010", "--on-unknown", "odd"), "--on-unknown='odd' is not"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_requests_get_one_sentence(refusal: Answer, folder: Path, case: str) -> None:
    words, expected = WRONG[case]
    sentence = refusal("recommend", folder, *words)
    assert expected in sentence
    assert sentence.count("\n") == 1


def test_lists_by_workers_need_a_folder(refusal: Answer, folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "lists"
    out.write_text("a file")
    said = refusal("recommend", folder, "--all", "--workers", 2, "--out", out)
    assert "is a file: name a folder" in said


def test_a_folder_without_a_model_is_named(refusal: Answer, tmp_path: Path) -> None:
    assert "has no model.json" in refusal("recommend", tmp_path, "--user", "ann")


def test_events_are_deleted_with_json(answer: Answer, refusal: Answer, folder: Path) -> None:
    pytest.importorskip("sqlalchemy", reason="sqlalchemy is not installed")
    from transcf.serving.events import Event, EventStore, events_url

    store = EventStore(events_url(folder, None))
    store.add([[Event("u010", "i05", 1.0), Event("u010", "i06", 2.0)]])
    store.close()
    assert answer("events", "delete", folder, 1) == {"deleted": 1}
    assert answer("events", "prune", folder, 1) == {"deleted": 0}
    assert [event["number"] for event in answer("events", "list", folder)] == [2]
    assert "There is no event 1" in refusal("events", "delete", folder, 1, "--json")
