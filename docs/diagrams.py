"""Diagrams of the package, drawn from the code when the site is built."""

from __future__ import annotations

import ast
import json
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
#: Stored results that pages of models show: files (the first take precedence), dataset, protocol,
#: title.
CHARTS = (
    (
        ("reproduce-mixture-delicious", "reproduce-performance-delicious"),
        "delicious", "leave-last-out", "Delicious",
    ),
    (
        ("full-ranking-movietweetings",),
        "movietweetings", "temporal", "MovieTweetings, 5-core",
    ),
)  # fmt: skip
STEP, LEFT, BEND, BOX, HEIGHT = 46, 145, 18, 380, 34


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
            bend = LEFT - BEND * abs(names.index(other) - names.index(name))
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
            f'<tspan x="{LEFT + 125}">{meaning}</tspan></text>'
        )
    return _svg(LEFT + BOX + 1, 24 + STEP * len(names), 14, "Packages and their imports", parts)


def _svg(width: int, height: int, size: int, label: str, parts: list[str]) -> str:
    """Return an SVG with text of a size; phones scroll it where it would get too small to read."""
    head = (
        f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{label}" '
        f'style="max-width: {width}px; min-width: {0.65 * width:.0f}px" '
        f'font-size="{size}" font-family="sans-serif">'
    )
    return f'<div class="diagram">{head}{"".join(parts)}</svg></div>'


def command_path() -> str:
    """Return the traced path of `transcf evaluate` from CONTRIBUTING.md."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    found = re.search(r"<!-- path: evaluate -->\n(.*?)<!-- end of path -->", text, re.DOTALL)
    assert found is not None, "CONTRIBUTING.md has no path of evaluate"
    return found[1]


def path_diagram() -> str:
    """Return an SVG of the traced path: a column for each package, a row for each step."""
    steps = re.findall(r"^\d+\. `(\w+)", command_path(), re.MULTILINE)
    columns = [name for name in PACKAGES if name in steps] + ["other"]
    step, width = 20, 95
    points = [
        (width * columns.index(name if name in columns else "other") + width // 2, 40 + step * row)
        for row, name in enumerate(steps)
    ]
    parts = [
        f'<text x="{width * place + width // 2}" y="16" text-anchor="middle" font-weight="bold" '
        f'fill="currentColor">{name}</text>'
        for place, name in enumerate(columns)
    ]
    line = " ".join(f"{x},{y}" for x, y in points)
    parts.append(f'<polyline points="{line}" fill="none" stroke="teal" stroke-width="2"/>')
    for number, (x, y) in enumerate(points, start=1):
        parts.append(
            f'<circle cx="{x}" cy="{y}" r="10" fill="teal"/>'
            f'<text x="{x}" y="{y + 4}" text-anchor="middle" font-size="11" fill="white">'
            f"{number}</text>"
        )
    size = width * len(columns), 40 + step * len(steps)
    return _svg(*size, 13, "Steps of the command by package", parts)


def architecture_page() -> str:
    """Write the page about the structure of the code."""
    return f"""# Architecture

A package imports only packages below it; arcs show which ones. A test checks the order.

{package_diagram()}

`errors`, `parallel`, `protocols`, `tables` and a few more single modules are used by all packages.

## The path of a command

`transcf evaluate events.csv --model transcf` passes these packages and files, in the order
of their first calls (traced by `tools/structure.py`):

{path_diagram()}

{command_path()}
[Contributing](contributing.md) says what a model is made of and how to add one.
"""


def accuracy_chart(model: str) -> list[str]:
    """Return a section with the accuracy of a model next to others, from stored results."""
    for files, dataset, protocol, title in CHARTS:
        found: dict[str, dict[str, float]] = {}
        command = ""
        for file in reversed(files):
            results = json.loads((ROOT / "docs" / "results" / f"{file}.json").read_text("utf-8"))
            command = command or results["command"]
            for table in results["datasets"]:
                for one in table["models"]:
                    if (table["dataset"], one["protocol"]) == (dataset, protocol):
                        found[one["model"]] = one["metrics"]["NDCG@10"]
        found.pop("transcf by hand", None)
        if model in found:
            caption = (
                f"NDCG@10 in full ranking on {title}, protocol `{protocol}`, with the standard "
                f"error over users (`{command}`). One dataset decides little: see "
                "[accuracy](../results/accuracy.md) and [which model is best for me?]"
                "(../tutorials/which-model.md)."
            )
            return ["", "## Accuracy next to other models", "", _bars(found, model), "", caption]
    return []


def _bars(found: dict[str, dict[str, float]], chosen: str) -> str:
    """Return an SVG with a bar for each model, the best first."""
    names = sorted(found, key=lambda name: -found[name]["mean"])
    scale = 240 / max(one["mean"] + one["se"] for one in found.values())
    parts = []
    for place, name in enumerate(names):
        top, mean, error = 24 * place, found[name]["mean"], found[name]["se"]
        width, weight = mean * scale, "bold" if name == chosen else "normal"
        parts.append(
            f'<text x="140" y="{top + 17}" text-anchor="end" font-weight="{weight}" '
            f'fill="currentColor">{name}</text>'
            f'<rect x="148" y="{top + 4}" width="{width:.1f}" height="16" fill="teal" '
            f'fill-opacity="{1 if name == chosen else 0.3}"/>'
            f'<path d="M {148 + width - error * scale:.1f} {top + 12} '
            f'H {148 + width + error * scale:.1f}" stroke="currentColor"/>'
            f'<text x="{156 + width + error * scale:.1f}" y="{top + 17}" fill="currentColor">'
            f"{mean:.3f}</text>"
        )
    return _svg(445, 24 * len(names) + 4, 13, f"NDCG@10 of models; {chosen} is marked", parts)
