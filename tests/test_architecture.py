"""Packages import only from packages before them."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[1] / "src" / "transcf"

#: A package may import from those before it.
PACKAGES = [
    "errors",
    "interrupts",
    "user_cache",
    "tables",
    "protocols",
    "parallel",
    "kernels",
    "data",
    "datasets",
    "io",
    "retrieval",
    "evaluation",
    "models",
    "experiments",
    "paper",
    "distributed",
    "serving",
    "cli",
]


def imported_packages(path: Path) -> set[str]:
    packages = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        packages |= {name.split(".")[1] for name in names if name.startswith("transcf.")}
    return packages


MODULES = [path for path in sorted(SOURCE.rglob("*.py")) if path.parent != SOURCE]


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_packages_import_only_from_packages_before_them(path: Path) -> None:
    package = path.relative_to(SOURCE).parts[0]
    before = set(PACKAGES[: PACKAGES.index(package) + 1])
    assert imported_packages(path) <= before


def test_all_packages_are_listed() -> None:
    packages = {path.stem for path in SOURCE.iterdir() if not path.name.startswith(("_", "."))}
    assert packages - {"py"} == set(PACKAGES)
