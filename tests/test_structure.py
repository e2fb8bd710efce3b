"""The path of `transcf evaluate` in CONTRIBUTING.md is the one that is traced."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BLOCK = re.compile(r"<!-- path: evaluate -->\n(.*)\n<!-- end of path -->", re.DOTALL)


def written_path() -> str:
    found = BLOCK.search((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"))
    assert found is not None
    return found[1]


def functions_in(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return {node.name for node in ast.walk(tree) if isinstance(node, kinds)}


def test_files_and_functions_of_the_path_exist() -> None:
    steps = re.findall(r"`([\w/]+\.py): ([\w.]+)`", written_path())
    assert len(steps) == len(written_path().splitlines())
    for file, function in steps:
        assert function.split(".")[-1] in functions_in(ROOT / "src" / "transcf" / file), file


def test_the_written_path_is_the_traced_one() -> None:
    command = [sys.executable, ROOT / "tools" / "structure.py", "--path", "evaluate"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    assert done.stdout.strip() == written_path(), "run `python tools/structure.py --write`"
