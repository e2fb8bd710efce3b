"""Write the tables of the documentation from the stored results (`make docs-tables`).

Each docs/tables/NAME.toml describes a table, which is written to docs/tables/NAME.md. Pages include
it with `--8<-- "tables/NAME.md"`; README.md has a copy between `<!-- table: NAME -->` and
`<!-- end -->`. A file has one of two forms.

1. A table of models from results of `transcf study ... --out docs/results/FILE.json`:

    results     names of files; tables of the first file take precedence
    models      rows; each is "name" or "name:title" (so are datasets and protocols); default: all
    datasets    columns; default: all
    protocols   columns; default: all
    figures     metrics; default: all
    joined      true: all metrics of a column in one cell
    published   true: add published figures, as columns if joined, else as rows
    spread      "sd" (of seeds) or "se" (over users)
    settings    true: add the number of settings that were tried
    effort      true: add numbers of settings and seeds, and the minutes of all runs
    best        true: mark the best of each column
    digits      decimals; default: 4

2. `text`, in which `{FILE:PATH:FORMAT}` is a value of docs/results/FILE.json. Steps of the path are
   keys, positions, or key=value (joined by &), which selects the only matching entry of a list.
   The format is Python's.

With `--check` nothing is written: the exit code is 1 and the files that differ are named.
"""

from __future__ import annotations

import json
import re
import sys
import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from transcf.errors import ParameterError, TransCFError
from transcf.tables import Cell, Table

ROOT = Path(__file__).resolve().parents[1]
OPTIONS = {
    "results", "models", "datasets", "protocols", "figures", "joined", "published", "spread",
    "settings", "effort", "best", "digits",
}  # fmt: skip
_VALUE = re.compile(r"\{([\w-]+):([^{}]+):([^{}:]*)\}")
_COPY = re.compile(r"(<!-- table: ([\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def render(spec: Mapping[str, Any], folder: Path) -> str:
    """Return the Markdown of a table that a TOML file describes."""
    if set(spec) == {"text"}:
        return _VALUE.sub(lambda found: _lookup(folder, *found.groups()), spec["text"])
    if unknown := sorted(set(spec) - OPTIONS):
        raise ParameterError(f"Unknown option {unknown[0]!r}: use {', '.join(sorted(OPTIONS))}.")
    if spec.get("spread", "sd") not in ("sd", "se"):
        raise ParameterError(f"spread is {spec['spread']!r}: use 'sd' or 'se'.")
    results = [_read(folder / f"{name}.json") for name in spec["results"]]
    commands = ", ".join(f"`{each['command']}`" for each in results)
    table = model_table(spec, results).to_markdown(titled=False)
    return f"{table}\n\n({commands}; {_filters(spec, results)})\n"


#: Content of a file of results, and of one table or model of it.
_Json: TypeAlias = Mapping[str, Any]


def _read(path: Path) -> _Json:
    """Read a file of results; older ones name the protocol in the models only."""
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    for table in content["datasets"]:
        first = table["models"][0] if table["models"] else {}
        table.setdefault("protocol", first.get("protocol", ""))
    return content


def model_table(spec: Mapping[str, Any], results: Sequence[_Json]) -> Table:
    """Return a table with a row per model and columns per dataset, protocol and metric."""
    groups = _groups(spec, results)
    models = _pick(spec, "models", [name for entries in groups.values() for name in entries])
    metrics = list(_pick(spec, "figures", [m for each in results for m in each["metrics"]]))

    titles, rows = ["model"], {name: [Cell(title)] for name, title in models.items()}
    printed = {name: [Cell("as published")] for name in models}

    def add(title: str, cells: Mapping[str, Cell], below: Mapping[str, str] | None = None) -> None:
        titles.append(title)
        for name in models:
            rows[name].append(cells[name])
            printed[name].append(Cell((below or {}).get(name, "")))

    for title, text_of in _about_runs(spec).items():
        found = {
            name: dict.fromkeys(text_of(e[name][0]) for e in groups.values() if name in e)
            for name in models
        }
        add(title, {name: Cell("; ".join(texts)) for name, texts in found.items()})
    for title, entries in groups.items():
        figures = {m: {n: _figure(spec, entries.get(n), m) for n in models} for m in metrics}
        paper = {m: {n: _published(spec, entries.get(n), m) for n in models} for m in metrics}
        if spec.get("joined"):
            add(title or " / ".join(metrics), _joined(figures, models))
            if spec.get("published"):
                add("as published", _joined(paper, models))
            continue
        for metric in metrics:
            means = {
                n: entries[n][0]["metrics"].get(metric, {}).get("mean")
                for n in models
                if n in entries
            }
            best = max((mean for mean in means.values() if mean is not None), default=None)
            marked = {n for n in means if spec.get("best") and means[n] == best is not None}
            cells = {n: Cell(t, "best" * (n in marked)) for n, t in figures[metric].items()}
            add(f"{title} {metric}".strip(), cells, paper[metric])

    lines = []
    for name in models:
        lines.append(rows[name])
        if spec.get("published") and any(cell.text for cell in printed[name][1:]):
            lines.append(printed[name])
    return Table("", titles, lines, align="l" + "r" * (len(titles) - 1))


#: A model of a table, and its published values.
_Entry: TypeAlias = tuple[_Json, Mapping[str, float]]


def _groups(spec: Mapping[str, Any], results: Sequence[_Json]) -> dict[str, dict[str, _Entry]]:
    """Return the entries of each dataset and protocol, by the title of their columns."""
    tables = [table for each in results for table in each["datasets"]]
    datasets = _pick(spec, "datasets", [table["dataset"] for table in tables])
    protocols = _pick(spec, "protocols", [table["protocol"] for table in tables])
    groups: dict[str, dict[str, _Entry]] = {}
    for dataset, dataset_title in datasets.items():
        for protocol, protocol_title in protocols.items():
            same = [t for t in tables if (t["dataset"], t["protocol"]) == (dataset, protocol)]
            entries = {
                entry["model"]: (entry, table.get("published", {}).get(entry["model"], {}))
                for table in reversed(same)
                for entry in table["models"]
            }
            shown = [dataset_title] * _is_titled(spec, "datasets")
            shown += [protocol_title] * _is_titled(spec, "protocols")
            if entries:
                groups[", ".join(shown)] = entries
    return groups


def _about_runs(spec: Mapping[str, Any]) -> dict[str, Callable[[_Json], str]]:
    """Return columns that say how a row was computed."""
    settings = {"settings": lambda entry: str(entry["tried"])}
    effort = {
        "seeds": lambda entry: str(entry["runs"]),
        "minutes": lambda entry: f"{(entry.get('spent_seconds') or 0) / 60:.1f}",
    }
    if spec.get("effort"):
        return settings | effort
    return settings if spec.get("settings") else {}


def _pick(spec: Mapping[str, Any], option: str, present: Sequence[str]) -> dict[str, str]:
    """Return the chosen names with their titles, in order."""
    chosen = {}
    for word in spec.get(option, dict.fromkeys(present)):
        name, _, title = word.partition(":")
        if name not in present:
            there = ", ".join(dict.fromkeys(present))
            raise ParameterError(f"The results have no {option} {name!r}; they have: {there}.")
        chosen[name] = title or name
    return chosen


def _is_titled(spec: Mapping[str, Any], option: str) -> bool:
    """A single dataset or protocol is not named in the columns unless it has a title."""
    chosen = spec.get(option)
    return chosen is None or len(chosen) > 1 or ":" in chosen[0]


def _joined(figures: Mapping[str, Mapping[str, str]], models: Mapping[str, str]) -> dict[str, Cell]:
    return {n: Cell(" / ".join(each[n] for each in figures.values()).strip(" /")) for n in models}


def _figure(spec: Mapping[str, Any], entry: _Entry | None, metric: str) -> str:
    if entry is None or metric not in entry[0]["metrics"]:
        return ""
    found, spread = entry[0]["metrics"][metric], spec.get("spread")
    mean = _number(spec, found["mean"])
    if spread is None or (spread == "sd" and entry[0]["runs"] == 1):
        return mean
    return f"{mean} ± {_number(spec, found[spread])}"


def _published(spec: Mapping[str, Any], entry: _Entry | None, metric: str) -> str:
    value = None if entry is None else entry[1].get(metric)
    return "" if value is None else _number(spec, value)


def _number(spec: Mapping[str, Any], value: float) -> str:
    return without_zero(format(value, f".{spec.get('digits', 4)}f"))


def without_zero(number: str) -> str:
    """Leave out the 0 before the decimal point.

    Example:
        >>> without_zero("0.25"), without_zero("-0.5"), without_zero("1,200")
        ('.25', '-.5', '1,200')
    """
    return re.sub(r"^([-+]?)0\.", r"\1.", number)


def _filters(spec: Mapping[str, Any], results: Sequence[_Json]) -> str:
    tables = [table for each in results for table in each["datasets"]]
    chosen = _pick(spec, "datasets", [table["dataset"] for table in tables])
    filters = {
        one["dataset"]: one.get("filter", "none") for one in tables if one["dataset"] in chosen
    }
    if len(set(filters.values())) == 1:
        return f"filter: {next(iter(filters.values()))}"
    return "filters: " + ", ".join(f"{name} {each}" for name, each in filters.items())


def _lookup(folder: Path, name: str, path: str, form: str) -> str:
    value = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
    for step in path.split("/"):
        try:
            value = _step(value, step)
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise ParameterError(f"{name}.json has no {step!r} of {path!r}.") from error
    return without_zero(format(value, form))


def _step(value: Any, step: str) -> Any:
    if not isinstance(value, list):
        return value[step]
    if step.isdecimal():
        return value[int(step)]
    wanted = dict(part.split("=", 1) for part in step.split("&"))
    (found,) = [each for each in value if all(str(each[k]) == v for k, v in wanted.items())]
    return found


def main(words: Sequence[str]) -> int:
    """Write all tables, or name those that differ."""
    docs, readme = ROOT / "docs", ROOT / "README.md"
    files = {}
    for path in sorted((docs / "tables").glob("*.toml")):
        try:
            spec = tomllib.loads(path.read_text(encoding="utf-8"))
            files[path.with_suffix(".md")] = render(spec, docs / "results")
        except (TransCFError, KeyError, tomllib.TOMLDecodeError) as error:
            raise ParameterError(f"{path.name}: {error}") from error
    files[readme] = _COPY.sub(
        lambda found: found[1] + files[docs / "tables" / f"{found[2]}.md"] + found[3],
        readme.read_text(encoding="utf-8"),
    )
    differing = []
    for path, text in files.items():
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            differing.append(str(path.relative_to(ROOT)))
            if "--check" not in words:
                path.write_text(text, encoding="utf-8")
    if differing:
        print(f"{'Differ' if '--check' in words else 'Written'}: {', '.join(differing)}")
    return int(bool(differing) and "--check" in words)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except TransCFError as error:
        sys.exit(f"docs/tables.py: {error}")
