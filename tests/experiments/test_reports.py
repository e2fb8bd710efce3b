"""Reports: tables and charts show the results, and what is missing is named."""

from __future__ import annotations

import json
import re
import sys
from copy import deepcopy
from pathlib import Path

import pytest
from tests.experiments.stored_results import RESULTS, results_of

from transcf.data.splitters import leave_one_out
from transcf.data.synthetic import synthesize
from transcf.experiments import report
from transcf.experiments.pages import Drawing
from transcf.experiments.results import Results
from transcf.experiments.study import Study, run_study


@pytest.fixture(scope="module")
def results() -> Results:
    return results_of(RESULTS)


def test_results_are_written_as_json(results: Results, tmp_path: Path) -> None:
    results.write(tmp_path / "r.json")
    written = json.loads((tmp_path / "r.json").read_text())
    assert written.keys() == RESULTS.keys()
    for table, expected in zip(written["datasets"], RESULTS["datasets"], strict=True):
        for model, before in zip(table["models"], expected["models"], strict=True):
            assert {**model, "trials": ()} == {**model, **before, "trials": ()}


def test_published_figures_stand_beside_no_other_kind_of_ranking(tmp_path: Path) -> None:
    split = leave_one_out(synthesize(users=60, items=40, interactions=900, seed=1))
    folder = str(split.save(tmp_path / "split"))
    printed = {"popularity": {"NDCG@10": 0.5}}
    for protocol, expected in (("leave-last-out", printed), ("paper", {})):
        content = {
            "title": "small",
            "protocol": protocol,
            "seeds": 1,
            "metrics": ["NDCG@10"],
            "datasets": [{"name": folder, "protocols": ["leave-last-out"], "published": printed}],
            "models": [{"name": "popularity"}],
        }
        plan = Study.from_dict(content)
        (found,) = run_study(plan)
        facts = found.to_dict()
        assert (facts["protocol"], facts["published"]) == ("leave-last-out", expected)


def test_published_figures_are_reached_nearly_or_not(results: Results) -> None:
    text = report.page_of(results, figures=False).to_markdown()
    for line in (
        "| transcf | one (paper) | HitRate@10 | 0.2900 | 0.3000 | +0.0100 | +3.4 % | 0.0100 "
        "| reached |",
        "| transcf | one (paper) | NDCG@10 | 0.3100 | 0.3000 | -0.0100 | -3.2 % | 0.0100 "
        "| within two standard errors |",
        "| bpr | one (paper) | NDCG@10 | 0.2500 | 0.1900 | -0.0600 | -24.0 % | 0.0100 | below |",
    ):
        assert line in text


def test_figures_are_drawn_of_what_there_is(results: Results) -> None:
    first = results.tables[0]
    assert report.groups_of(first, "NDCG@10") == {
        "popularity": "trivial baseline",
        "inverse-popularity": "trivial baseline",
        "bpr": "other",
        "cml": "not significantly different",
        "transcf": "best",
    }
    _, grid, curves = map(_texts, report.charts_of(first))
    assert {"bpr", "transcf", "epoch"} <= set(curves)
    values = [text for text in grid if re.fullmatch(r"\d\.\d{4}", text)]
    assert values == ["0.3000", "0.2000", "0.4000", "0.3000"]
    _, (together,) = report.page_of(results).sections["All datasets"]
    assert _texts(together).count("0.0500") == 1, "popularity is in one table alone"


def test_models_that_differ_in_two_settings_make_a_grid_of_test_figures() -> None:
    content = deepcopy(RESULTS)
    model = content["datasets"][0]["models"][3]
    content["datasets"][0]["models"] = [
        {**model, "model": f"{a} {b}", "parameters": {"dim": 4, "reg_a": a, "reg_b": b}}
        for a in (1.0, 0.0)
        for b in (0.0, 0.5)
    ]
    content["datasets"][0]["tests"] = []
    outcome = results_of(content).tables[0]
    _, grid = [one for one in report.charts_of(outcome) if "Validation" not in one.title]
    assert grid.title == "NDCG@10 of CML on one (paper)"
    texts = _texts(grid)
    assert texts.index("0.0") < texts.index("1.0"), "numbers come in order"


def _texts(drawing: Drawing) -> list[str]:
    return re.findall(r"<text[^>]*>([^<]*)</text>", drawing.svg)


def test_the_page_has_every_figure_of_the_tables(results: Results) -> None:
    text = report.page_of(results, figures=False).to_markdown()
    assert "| transcf | **0.3000 ± 0.0100** | **0.3000 ± 0.0100** | 0.0100 ± 0.0010 | - |" in text
    assert "| transcf | 2 | 0.0020 | 1.50 | 0.3100 | 4 | - | reg_a=0.1 |" in text
    assert "| bpr | 2 | 0.0020 | 1.50 | 0.2000 | 1 | 1.5 | default |" in text
    assert "| cml | 0.0200 | -0.1000 to 0.3000 | *0.4* |" in text
    assert "- best NDCG@10 on one (paper): **transcf**" in text
    assert "neumf is missing: it did not train." in text
    assert "transcf study small" in text


def test_a_folder_may_have_a_dot_in_its_name(results: Results, tmp_path: Path) -> None:
    folder = tmp_path / "run.1"
    written, _ = report.write_results(results, folder, "r")
    assert {folder / f"r{kind}" for kind in (".html", ".md", ".json")} <= set(written)


@pytest.mark.parametrize("package", ["matplotlib", "jinja2"])
def test_a_missing_extra_leaves_out_charts_and_html_and_is_named(
    results: Results, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    written, message = report.write_results(results, tmp_path, "r")
    assert "transcf[plots]" in message
    assert written == [tmp_path / "r.md", tmp_path / "r.json"]
    assert "| transcf | one (paper) |" in written[0].read_text()
