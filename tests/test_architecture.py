"""The house stays as drawn: rooms import only from rooms before them."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[1] / "src" / "transcf"

#: From the ground up; a room may import from those before it.
ROOMS = [
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


def imported_rooms(path: Path) -> set[str]:
    rooms = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        rooms |= {name.split(".")[1] for name in names if name.startswith("transcf.")}
    return rooms


MODULES = [path for path in sorted(SOURCE.rglob("*.py")) if path.parent != SOURCE]


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_rooms_import_only_from_rooms_before_them(path: Path) -> None:
    room = path.relative_to(SOURCE).parts[0]
    before = set(ROOMS[: ROOMS.index(room) + 1])
    assert imported_rooms(path) <= before


def test_every_room_has_its_place_and_every_place_its_room() -> None:
    rooms = {path.stem for path in SOURCE.iterdir() if not path.name.startswith(("_", "."))}
    assert rooms - {"py"} == set(ROOMS)
