"""Diagrams of the package, drawn from the code when the site is built."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "transcf"
#: Packages in the order of imports, with what each holds.
PACKAGES = {
    "cli": "commands: parse, call, print",
    "serving": "HTTP service and page",
    "distributed": "training and lists on Ray",
    "paper": "the paper's tables and analyses",
    "experiments": "compare, tune, run cache, reports",
    "models": "one module or package per model",
    "evaluation": "ranking, metrics, significance",
    "retrieval": "exact top-k, index, export",
    "io": "model folders",
    "data": "log, interactions, split",
    "kernels": "compiled arithmetic",
}
WIDTH, STEP, LEFT, BOX, HEIGHT = 760, 46, 300, 430, 34


def imports() -> dict[str, set[str]]:
    """Return which packages each package imports."""
    found: dict[str, set[str]] = {name: set() for name in PACKAGES}
    for name in PACKAGES:
        for path in (SOURCE / name).rglob("*.py"):
            text = path.read_text(encoding="utf-8")
            modules = [
                node.module
                for node in ast.walk(ast.parse(text))
                if isinstance(node, ast.ImportFrom) and node.module
            ]
            own = {module.split(".")[1] for module in modules if module.startswith("transcf.")}
            found[name] |= own & PACKAGES.keys() - {name}
    return found


def package_diagram() -> str:
    """Return an SVG: packages from top to bottom, and an arc from each to those it imports."""
    names = list(PACKAGES)
    middle = {name: 12 + STEP * place + HEIGHT // 2 for place, name in enumerate(names)}
    parts = []
    for name, others in imports().items():
        for other in sorted(others, key=names.index):
            start, end = middle[name], middle[other]
            bend = LEFT - 26 * abs(names.index(other) - names.index(name))
            parts.append(
                f'<path d="M {LEFT} {start} C {bend} {start}, {bend} {end}, {LEFT} {end}" '
                'fill="none" stroke="currentColor" stroke-opacity=".35"/>'
            )
    for name, meaning in PACKAGES.items():
        top = middle[name] - HEIGHT // 2
        parts.append(
            f'<rect x="{LEFT}" y="{top}" width="{BOX}" height="{HEIGHT}" rx="5" '
            'fill="teal" fill-opacity=".12" stroke="teal"/>'
            f'<text x="{LEFT + 12}" y="{middle[name] + 5}" fill="currentColor">'
            f'<tspan font-weight="bold">{name}</tspan>'
            f'<tspan x="{LEFT + 130}">{meaning}</tspan></text>'
        )
    height = 24 + STEP * len(names)
    return (
        f'<svg viewBox="0 0 {WIDTH} {height}" role="img" font-size="14" '
        'font-family="sans-serif" aria-label="Packages and their imports">'
        f"{''.join(parts)}</svg>"
    )


def command_path() -> str:
    """Return the traced path of `transcf evaluate` from CONTRIBUTING.md."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    found = re.search(r"<!-- path: evaluate -->\n(.*?)<!-- end of path -->", text, re.DOTALL)
    assert found is not None, "CONTRIBUTING.md has no path of evaluate"
    return found[1]


def architecture_page() -> str:
    """Write the page about the structure of the code."""
    return f"""# Architecture

A package imports only packages below it; arcs show which ones. A test checks the order.

{package_diagram()}

`errors`, `parallel`, `protocols`, `tables` and a few more single modules are used by all packages.

## The path of a command

`transcf evaluate events.csv --model transcf` passes these files (traced by `tools/structure.py`):

{command_path()}
[Contributing](contributing.md) says what a model is made of and how to add one.
"""
