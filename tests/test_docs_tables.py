"""The tables of README and documentation are those of the stored results."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

import pytest
from tests.experiments.stored_results import RESULTS

from transcf.errors import ParameterError

ROOT = Path(__file__).resolve().parents[1]
TABLES = runpy.run_path(str(ROOT / "docs" / "tables.py"))
render = TABLES["render"]


def test_no_table_differs_from_its_results(capsys: pytest.CaptureFixture[str]) -> None:
    assert TABLES["main"](["--check"]) == 0, f"run `make docs-tables`: {capsys.readouterr().out}"


def test_pages_have_no_templates() -> None:
    for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]:
        text = page.read_text(encoding="utf-8")
        assert "<!-- fill" not in text, page
        assert text.count("<!-- table: ") == text.count("<!-- end -->"), page


def test_every_table_is_included_somewhere() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    text = "\n".join(page.read_text(encoding="utf-8") for page in pages)
    for path in (ROOT / "docs" / "tables").glob("*.toml"):
        assert f'"tables/{path.stem}.md"' in text or f"<!-- table: {path.stem} -->" in text, path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "small.json").write_text(json.dumps(RESULTS))
    return tmp_path


def test_a_table_has_published_figures_in_rows(folder: Path) -> None:
    spec = {
        "results": ["small"], "figures": ["NDCG@10"], "datasets": ["one"],
        "models": ["transcf:TransCF", "bpr:BPR"], "published": True, "best": True,
    }  # fmt: skip
    assert render(spec, folder) == (
        "| model | paper NDCG@10 |\n|---|--:|\n| TransCF | **.3000** |\n| as published | .3100 |\n"
        "| BPR | .1900 |\n| as published | .2500 |\n\n(`transcf study small`; filter: none)\n"
    )


def test_a_table_can_join_figures_in_a_cell(folder: Path) -> None:
    spec = {
        "results": ["small"], "joined": True, "datasets": ["one:One", "two"],
        "protocols": ["paper"], "models": ["cml", "popularity"], "spread": "sd", "digits": 3,
        "settings": True, "published": True,
    }  # fmt: skip
    made = render(spec, folder)
    assert "| model | settings | One | as published | two | as published |" in made
    assert "| cml | 1 | .280 ± .002 / .280 ± .002 |  | .280 ± .002 / .280 ± .002 |  |" in made
    assert "| popularity | 1 | .050 / .050 |  |  |  |" in made, "one seed has no spread"


def test_a_table_says_how_its_rows_were_computed(folder: Path) -> None:
    spec = {"results": ["small"], "datasets": ["one"], "models": ["cml"], "effort": True}
    assert "| model | settings | seeds | minutes |" in render(spec, folder)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"rows": 5}, "Unknown option 'rows': use best, datasets"),
        ({"models": ["ease"]}, "no models 'ease'; they have: popularity"),
        ({"spread": "none"}, "use 'sd' or 'se'"),
    ],
)
def test_a_wrong_option_is_an_error(folder: Path, more: dict[str, Any], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        render({"results": ["small"], **more}, folder)


def test_text_is_filled_with_values(folder: Path) -> None:
    facts = {"speed": [{"what": "a b", "at": 2, "ratio": 0.512}, {"what": "a b", "at": 3}]}
    (folder / "facts.json").write_text(json.dumps(facts))
    text = "| so | {facts:speed/what=a b&at=2/ratio:.2f} | {facts:speed/1/at:} |"
    assert render({"text": text}, folder) == "| so | .51 | 3 |"
    for path in ("speed/what=c", "speed/what=a b", "speed/7", "slow", "speed/0/at/more"):
        with pytest.raises(ParameterError, match=r"facts.json has no"):
            render({"text": f"{{facts:{path}:}}"}, folder)
