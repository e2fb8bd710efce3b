"""Reports: what is said is what the figures say, and what is missing is said to be."""

from __future__ import annotations

import json
from copy import deepcopy
from pathlib import Path

import pytest
from tests.experiments.kept import RESULTS

from transcf.errors import DataError, MissingExtraError
from transcf.experiments import drawings, reports, sentences
from transcf.experiments.results import Results


@pytest.fixture(scope="module")
def results() -> Results:
    return Results.from_dict(RESULTS)


def test_results_are_read_as_they_were_written(results: Results, tmp_path: Path) -> None:
    results.write(tmp_path / "r.json")
    assert Results.read(tmp_path / "r.json").content == RESULTS
    for bad in ("[]", "{", '{"format": 1}', json.dumps({**RESULTS, "format": 99})):
        (tmp_path / "bad.json").write_text(bad)
        with pytest.raises(DataError, match=r"bad\.json"):
            Results.read(tmp_path / "bad.json")


def test_the_summary_says_who_is_best_what_the_floor_is_and_what_is_missing(
    results: Results,
) -> None:
    said = sentences.summary(results)
    first, second = results.outcomes
    assert sentences.about_best(first) in said
    assert sentences.about_best(first) == (
        "one (paper): transcf has the highest N@10, 0.3000 ± 0.0100 (standard error over users); "
        "the paired test does not tell it apart from cml."
    )
    floor = sentences.about_floor(first)
    assert "the floor by N@10 is popularity 0.0500, inverse-popularity 0.2000." in floor
    assert "Not above inverse-popularity: bpr." in floor
    assert "The rarest items first do better than the most popular first" in floor
    assert "no trivial baseline is in the table" in sentences.about_floor(second)
    assert any("missing from the table: neumf" in sentence for sentence in said)
    assert "from 1 setting (bpr on one (paper)) to 4 settings (transcf on one (paper))" in said[-1]


def test_published_figures_are_reached_nearly_or_not(results: Results) -> None:
    verdicts = {
        (one.model, one.metric): one.verdict
        for one in sentences.reproduced(results)
        if one.outcome == "one (paper)"
    }
    assert verdicts == {
        ("transcf", "H@10"): "reached",
        ("transcf", "N@10"): "within two standard errors",
        ("bpr", "N@10"): "below",
    }
    reached, missing = sentences.about_published(results)
    assert reached.startswith("Published figures: 2 of 6 are reached or passed, 2 short by less")
    assert "2 short by more (bpr, N@10 on one (paper): 0.1900 against 0.2500" in reached
    assert missing == (
        "Published, but not in these tables: neumf on one (paper) and neumf on two (paper)."
    )


def test_figures_are_drawn_of_what_there_is(results: Results) -> None:
    first = results.outcomes[0]
    assert drawings.roles_of(first, "N@10") == {
        "popularity": "trivial",
        "inverse-popularity": "trivial",
        "bpr": "behind",
        "cml": "alike",
        "transcf": "best",
    }
    (curves,) = drawings.curves_of(first)
    assert curves.alt.endswith("bpr from 0.21 to 0.25; transcf from 0.21 to 0.25.")
    (grid,) = drawings.heat_maps_of(first, "N@10")
    assert "reg_a 0.1 reg_b 0.0: 0.4000, reg_b 0.1: 0.3000" in grid.alt
    together = drawings.bars_of_all(results, "N@10")
    assert "popularity one (paper): 0.0500; inverse" in together.alt, "it is in one table alone"


def test_models_that_differ_in_two_settings_make_a_grid_of_test_figures() -> None:
    content = deepcopy(RESULTS)
    model = content["datasets"][0]["models"][3]
    content["datasets"][0]["models"] = [
        {**model, "model": f"{a} {b}", "parameters": {"dim": 4, "reg_a": a, "reg_b": b}}
        for a in (1.0, 0.0)
        for b in (0.0, 0.5)
    ]
    content["datasets"][0]["tests"] = []
    outcome = Results.from_dict(content).outcomes[0]
    (grid,) = drawings.heat_maps_of(outcome, "N@10")
    assert grid.title == "N@10 of CML on one (paper)"
    assert grid.alt.index("reg_a 0.0") < grid.alt.index("reg_a 1.0"), "numbers come in order"


def test_the_page_has_every_figure_of_the_tables(results: Results, tmp_path: Path) -> None:
    page = reports.page_of(results, figures=False)
    text = page.to_markdown()
    assert "| transcf | **0.3000 ± 0.0100** | **0.3000 ± 0.0100** | 0.0100 |" in text
    assert "| as published | 0.2900 | 0.3100 |" in text
    assert (
        "| bpr | one (paper) | N@10 | 0.2500 | 0.1900 | -0.0600 | -24.0 % | 0.0100 | below |"
        in text
    )
    assert "| cml | 0.0200 | -0.1000 to 0.3000 | 0.4 | *not told apart* |" in text
    assert "| bpr | one (paper) | 1 | 2 | 1.50 | 1.50 |" in text
    assert "| cml | one (paper) | 1 | 2 | 1.50 | not kept |" in text
    assert "- neumf is missing: it did not train." in text
    assert "written without figures" in text
    assert "transcf study small" in text


def test_without_matplotlib_there_is_a_page_that_says_so(
    results: Results, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(*_: object, **__: object) -> None:
        raise MissingExtraError("Drawing figures", "plots")

    monkeypatch.setattr(reports, "bars_of", missing)
    monkeypatch.setattr(reports, "bars_of_all", missing)
    written, said = reports.write_page(results, tmp_path / "r.html")
    assert "transcf[plots]" in said
    assert "without figures" in written[0].read_text()
