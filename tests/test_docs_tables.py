"""The tables of README and docs are those of the stored results."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import pytest
from tests.experiments.kept import RESULTS

from transcf.errors import ParameterError

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def tables() -> ModuleType:
    __import__("sys").path.append(str(ROOT / "docs"))  # as for a program that is run there
    spec = importlib.util.spec_from_file_location("docs_tables", ROOT / "docs" / "tables.py")
    module = importlib.util.module_from_spec(spec)
    __import__("sys").modules["docs_tables"] = module  # its dataclass looks itself up there
    spec.loader.exec_module(module)
    return module


def test_no_table_differs_from_its_results(tables, capsys) -> None:
    assert tables.main(["--check"]) == 0, f"run `make docs-tables`: {capsys.readouterr().out}"


def page(spec: str, content: str = "anything\n") -> str:
    return f"Before.\n\n<!-- table: {spec} -->\n{content}<!-- end -->\n\nAfter.\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "small.json").write_text(json.dumps(RESULTS))
    return tmp_path


def test_a_table_is_made_of_the_results_alone(tables, folder: Path) -> None:
    spec = (
        'small figures=NDCG@10 datasets=one models="transcf:TransCF,bpr:BPR" published=yes best=yes'
    )
    made = tables.renewed(page(spec), folder)
    assert made == page(
        spec,
        "| model | paper NDCG@10 |\n|---|--:|\n| TransCF | **.3000** |\n| as published | .3100 |\n"
        "| BPR | .1900 |\n| as published | .2500 |\n\n(`transcf study small`; filter: none)\n",
    )
    assert tables.renewed(made, folder) == made


def test_figures_of_a_table_can_stand_in_one_cell(tables, folder: Path) -> None:
    spec = (
        "small joined=yes datasets=one:One,two protocols=paper models=cml,popularity spread=sd "
        "digits=3 settings=yes published=yes"
    )
    made = tables.renewed(page(spec), folder)
    assert "| model | settings | One | as published | two | as published |" in made
    assert "| cml | 1 | .280 ± .002 / .280 ± .002 |  | .280 ± .002 / .280 ± .002 |  |" in made
    assert "| popularity | 1 | .050 / .050 |  |  |  |" in made, "one seed has no spread"


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("small rows=5", "has 'rows': use best, datasets"),
        ("small models=ease", "none of models called 'ease'; it has: popularity"),
        ("small spread=none", "needs spread=sd or se"),
        ("small digits=many", "needs spread=sd or se, and digits=4"),
        ("small -->\n<!-- table: small", "A table has no <!-- end -->"),
    ],
)
def test_what_there_is_not_is_named(tables, folder: Path, spec: str, message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        tables.renewed(page(spec), folder)


def fill(text: str, content: str) -> str:
    return f"Before.\n\n<!-- fill:\n{text}\n-->\n{content}<!-- end -->\n"


def test_figures_are_filled_into_text(tables, folder: Path) -> None:
    facts = {"speed": [{"what": "a b", "at": 2, "ratio": 0.512}, {"what": "a b", "at": 3}]}
    (folder / "facts.json").write_text(json.dumps(facts))
    text = "| so | {facts:speed/what=a b&at=2/ratio:.2f} | {facts:speed/1/at:} |"
    made = tables.renewed(fill(text, "| old |\n"), folder)
    assert made == fill(text, "| so | .51 | 3 |\n")
    for path in ("speed/what=c", "speed/what=a b", "speed/7", "slow", "speed/0/at/more"):
        with pytest.raises(ParameterError, match=r"facts.json has no"):
            tables.renewed(fill(f"{{facts:{path}:}}", ""), folder)
    with pytest.raises(ParameterError, match="no --> on a line"):
        tables.renewed("<!-- fill:\nsomething\n", folder)
