"""Size and call paths of `src/transcf`, next to the goals of the restructuring.

`call_paths.py` says how commands, one HTTP request and models are traced.

Run: python tools/structure.py [--json]
     python tools/structure.py --path evaluate   the path of a command as a Markdown list
     python tools/structure.py --write           put the path of `evaluate` into CONTRIBUTING.md
"""

from __future__ import annotations

import argparse
import ast
import inspect
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from call_paths import COMMANDS, MODELS, SOURCE, path_of, trace_all

CONTRIBUTING = SOURCE.parents[1] / "CONTRIBUTING.md"
BEGIN, END = "<!-- path: evaluate -->", "<!-- end of path -->"


def count_lines(path: Path) -> Counter[str]:
    """Count the lines of a file by kind."""
    text = path.read_text(encoding="utf-8")
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    docstrings = set[int]()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, documented) and ast.get_docstring(node, clean=False) is not None:
            first = node.body[0]
            docstrings |= set(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    counts = Counter[str](files=1)
    for number, line in enumerate(text.splitlines(), 1):
        kind = "blank" if not line.strip() else "code"
        if number in docstrings:
            kind = "docstrings"
        elif line.strip().startswith("#"):
            kind = "comments"
        counts.update({kind: 1, "lines": 1})
    return counts


def sizes() -> dict[str, Counter[str]]:
    """Count lines and files by package."""
    found: dict[str, Counter[str]] = {}
    for path in sorted(SOURCE.rglob("*.py")):
        parts = path.relative_to(SOURCE).parts
        for name in ("all", parts[0] if len(parts) > 1 else "(top)"):
            found.setdefault(name, Counter()).update(count_lines(path))
    return found


def imported_modules() -> int:
    """Count the modules of the package that `from transcf import EASE` imports."""
    code = "from transcf import EASE; import sys; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True,
        env=os.environ | {"PYTHONPATH": str(SOURCE.parent)},
    )  # fmt: skip
    return sum(name.startswith("transcf") for name in done.stdout.split())


def parameters() -> dict[str, int]:
    """Count the parameters of every model class."""
    import transcf

    classes = [getattr(transcf, name) for name in transcf.__all__]
    return {
        kind.__name__: len(inspect.signature(kind).parameters)
        for kind in classes
        if isinstance(kind, type) and issubclass(kind, transcf.Recommender)
        if kind is not transcf.Recommender
    }


def attributes() -> int:
    """Count the public attributes of `TransCF` that are not parameters."""
    import transcf

    names = {name for name in dir(transcf.TransCF) if not name.startswith("_")}
    return len(names - set(inspect.signature(transcf.TransCF).parameters))


def options() -> int:
    """Count the options of all commands; `--help` is not one of them."""
    from typer.main import get_command

    from transcf.cli.app import app

    def walk(command: Any) -> int:
        if hasattr(command, "list_commands"):
            names = command.list_commands(None)
            return sum(walk(command.get_command(None, name)) for name in names)
        return sum(each.param_type_name == "option" for each in command.params)

    return walk(get_command(app))


def measure() -> dict[str, Any]:
    """Measure everything."""
    with tempfile.TemporaryDirectory() as folder:
        names = (*COMMANDS, "request", *(f"model {name}" for name in MODELS))
        traces = trace_all(names, Path(folder))
    return {
        "sizes": sizes(),
        "traces": {name: found.figures() for name, found in traces.items()},
        "imported modules": imported_modules(),
        "parameters": parameters(),
        "attributes": attributes(),
        "options": options(),
    }


def goals(found: dict[str, Any]) -> list[tuple[str, Any, Any]]:
    """Return what is measured, its value now and the goal in design/architecture.md."""
    size, traces, kernel = found["sizes"]["all"], found["traces"], "frames to the training kernel"
    models = [traces[f"model {name}"]["files"] for name in MODELS]
    return [
        ("lines in src/transcf", size["lines"], 32_000),
        ("files in src/transcf", size["files"], 180),
        ("files visited by evaluate", traces["evaluate"]["files"], 45),
        ("functions visited by evaluate", traces["evaluate"]["functions"], 250),
        (f"{kernel} in evaluate", traces["evaluate"][kernel], 14),
        ("files visited by recommend", traces["recommend"]["files"], 25),
        ("files visited by an HTTP request", traces["request"]["files"], 18),
        ("modules imported by `from transcf import EASE`", found["imported modules"], 40),
        (f"files visited by fit and recommend of {', '.join(MODELS)}", models, [15, 15, 10]),
        ("parameters of TransCF", found["parameters"]["TransCF"], 22),
        ("public attributes of TransCF that are no parameters", found["attributes"], 26),
        ("options of all commands", found["options"], 180),
    ]


def show(heads: tuple[str, ...], rows: list[tuple[Any, ...]]) -> None:
    """Print a Markdown table."""
    print(
        "|".join(["", *heads, ""]), "|".join(["", "---", *["--:"] * (len(heads) - 1), ""]), sep="\n"
    )
    for row in rows:
        print(
            "|".join(["", *(f"{each:,}" if type(each) is int else str(each) for each in row), ""])
        )
    print()


def print_tables(found: dict[str, Any]) -> None:
    kinds = ("files", "lines", "code", "docstrings", "comments", "blank")
    show(("measure", "now", "goal"), goals(found))
    show(
        ("traced", *found["traces"]["fit"]),
        [(name, *each.values()) for name, each in found["traces"].items()],
    )
    show(
        ("package", *kinds),
        [(name, *(each[kind] for kind in kinds)) for name, each in found["sizes"].items()],
    )
    show(("model", "parameters"), list(found["parameters"].items()))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print everything as JSON")
    parser.add_argument("--path", choices=COMMANDS, help="print the path of a command")
    parser.add_argument("--write", action="store_true", help="put it into CONTRIBUTING.md")
    given = parser.parse_args()
    if given.path or given.write:
        with tempfile.TemporaryDirectory() as folder:
            name = given.path or "evaluate"
            lines = "\n".join(path_of(trace_all((name,), Path(folder))[name]))
        print(lines)
        if given.write:
            before, rest = CONTRIBUTING.read_text(encoding="utf-8").split(BEGIN)
            text = f"{before}{BEGIN}\n{lines}\n{END}{rest.split(END)[1]}"
            CONTRIBUTING.write_text(text, encoding="utf-8")
        return
    found = measure()
    if given.json:
        print(json.dumps(found, indent=1))
    else:
        print_tables(found)


if __name__ == "__main__":
    main()
