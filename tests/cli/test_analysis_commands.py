"""`transcf analyze`, `transcf report` and `transcf reproduce analysis`, as people run them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from transcf.cli.analyze import analyze
from transcf.data.synthetic import synthesize, write_csv
from transcf.models.registry import create
from transcf.paper import reproduction as qualitative
from transcf.paper.analysis import WHAT
from transcf.paper.reproduction import PLANS


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory, answer) -> Path:
    """A folder with events, categories, two models fitted on them, and one that says nothing."""
    folder = tmp_path_factory.mktemp("shop")
    log = synthesize(users=40, items=25, interactions=320, categories=3, seed=2)
    events = write_csv(log, folder / "events.csv")
    log.categories.write_csv(folder / "categories.csv")
    kinds = ("--read", f"categories={folder / 'categories.csv'}")
    for name in ("transcf-mixture", "cml"):
        few = ("--set", "dim=4", "--set", "epochs=2")
        answer("fit", events, *kinds, "--model", name, *few, "--out", folder / name)
    create("transcf-mixture", dim=4, epochs=1).fit(log).save(folder / "silent")
    create("ease").fit(log).save(folder / "ease")
    return folder


def test_help_names_every_analysis() -> None:
    assert all(f" {name} " in str(analyze.__doc__) for name in WHAT)


def test_analyze_prints_tables_and_writes_figures(shop: Path, command, tmp_path: Path) -> None:
    words = (
        "analyze",
        shop / "transcf-mixture",
        "--what",
        "variety,closer,tastes",
        "--user",
        "u03",
    )
    result = command(*words, "--out", tmp_path / "found")
    assert result.exit_code == 0, result.output
    assert "closer after the translation" in result.output
    assert "Tastes of user u03" in result.output
    names = {path.name for path in (tmp_path / "found").iterdir()}
    assert {"closer-1.svg", "closer.json", "tastes-1.svg", "variety.csv"} <= names


def test_analyze_compares_models_and_speaks_json(shop: Path, answer) -> None:
    found = answer(
        "--threads", 1, "analyze", shop / "transcf-mixture", shop / "cml", "--what", "likeness,map"
    )  # fmt: skip
    likeness, maps = found["analyses"]
    assert likeness["analysis"] == "likeness"
    assert [row["vectors"] for row in maps["rows"]] == ["r", "a-b"]


def test_what_the_data_do_not_allow_is_said(
    shop: Path, answer, refusal, small_forests: None
) -> None:
    found = answer("analyze", shop / "cml", "--what", "all", "--data", shop / "events.csv")
    assert set(found["missing"]) == {"closer", "category", "map", "likeness", "tastes"}
    assert "has no translations" in found["missing"]["closer"]
    assert [each["analysis"] for each in found["analyses"]] == ["variety", "rating"]
    assert "has no translations" in refusal("analyze", shop / "cml", "--what", "closer")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("analyze", "transcf-mixture", "--what", "horoscope"), "what='horoscope' is not allowed"),
        (("analyze", "transcf-mixture", "--what", "tastes", "--user", "zoe"), "zoe"),
        (("analyze", "silent", "--what", "closer"), "--data DATA"),
        (("analyze", "ease", "--data", "events.csv", "--what", "closer"), "no vector for every"),
        (("report", "transcf-mixture", "--out", "page.txt"), ".html or .md"),
        (("reproduce", "analysis", "--datasets", "netflix"), "datasets='netflix' is not allowed"),
    ],
)
def test_mistakes_get_a_sentence(shop: Path, refusal, monkeypatch, words, said) -> None:
    monkeypatch.chdir(shop)
    sentence = refusal(*words)
    assert said in sentence
    assert sentence.count("\n") == 1


def test_a_report_of_a_silent_model_says_what_is_missing(shop: Path, answer, tmp_path) -> None:
    found = answer("report", shop / "silent", "--out", tmp_path / "page.html")
    assert "does not say what it was fitted on" in found["missing"]["data"]
    assert "Example users" in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_a_report_of_another_kind_of_model(shop: Path, answer, tmp_path: Path) -> None:
    words = ("--data", shop / "events.csv", "--out", tmp_path / "page.md")
    found = answer("report", shop / "ease", *words)
    assert "no vector for every user" in found["missing"]["closer"]
    text = (tmp_path / "page.md").read_text(encoding="utf-8")
    assert "fitted without the held-out events" in text
    assert "predicted from vectors" not in text


def test_reproduce_prints_the_papers_figures_beside_ours(
    shop: Path, answer, monkeypatch, small_forests, tmp_path: Path
) -> None:
    log = synthesize(users=60, items=30, interactions=800, categories=3, seed=2)
    monkeypatch.setattr(qualitative, "_data", lambda dataset: (log, _with_candidates(log)))
    monkeypatch.setattr(qualitative, "_TRIPLES", 10_000)
    monkeypatch.setitem(PLANS, "ciao", ("variety", "closer", "rating"))
    told = answer("reproduce", "analysis", "--datasets", "ciao", "--out", tmp_path)
    (found,) = told["datasets"]
    rows = {(row["analysis"], row["figure"]): row for row in found["rows"]}
    observed = rows["closer", "TransCF: observed"]
    assert observed["printed"] == 54.63
    assert 0 <= observed["as_published"] <= 100
    assert 0 <= observed["corrected"] <= 100
    assert rows["closer", "mixture: observed"]["printed"] is None
    copied, once = (rows["rating", "CML: a-b"][name] for name in ("as_published", "corrected"))
    assert copied > once + 10, "copies of a pair are recognised"
    stored = json.loads((tmp_path / "reproduce-analysis-ciao.json").read_text(encoding="utf-8"))
    assert stored == found
    assert list(tmp_path.glob("ciao-closer*.svg"))
    monkeypatch.setattr(qualitative, "FitOptions", None)
    again = answer("reproduce", "analysis", "--datasets", "ciao", "--out", tmp_path)
    assert again["datasets"] == [found], "fitted models are kept"


def test_published_figures_name_rows_that_there_are() -> None:
    """A figure of the paper would stand beside nothing if a row were renamed."""
    published = qualitative._published()
    assert set(published) <= set(PLANS)
    assert published["ciao"]["category"]["TransCF: r"] == 80.97
    assert published["delicious"]["closer"]["TransCF: observed"] == 64.63


def _with_candidates(log):
    from transcf.data.split import draw_candidates
    from transcf.data.splitters import leave_one_out

    return draw_candidates(leave_one_out(log))
