"""Writes the tables of README.md and of all pages in docs anew from docs/results.

`make docs-tables` runs it. A table stands between two comments, the first of which names the
results and says what to show:

    <!-- table: NAME figures=HitRate@10,NDCG@10 datasets=ciao models="ease:EASE,bpr:BPR" -->
    <!-- end -->

NAME is a file of docs/results, which `transcf study ... --out docs/results/NAME.json` writes;
several, with + between them, are put together. What may follow, all of it optional:

    figures      some of the study's metrics; all unless given
    datasets     which, in what order; NAME:TITLE gives a title; all unless given
    protocols    the same
    models       the same; rows of the table
    joined       yes puts the figures of a table into one cell, with slashes
    published    yes adds published figures, in columns of their own if joined, else in rows
    spread       sd (of seeds) or se (over users) behind each figure
    settings     yes adds how many settings were tried
    best         yes marks the best of each column
    digits       behind the point; 4 unless given

What is between `<!-- fill:` and `<!-- end -->` is filled with single figures: see docs/fills.py.
With `--check` nothing is written: it ends with code 1 and names the files that differ.
"""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TypeAlias

from fills import filled, shown

from transcf.errors import ParameterError, TransCFError
from transcf.experiments.results import Entry, Outcome, Results
from transcf.tables import Cell, Table

#: Models of one table by name, None where a model is not in it; and tables by title.
Entries: TypeAlias = Mapping[str, Entry | None]
Groups: TypeAlias = Mapping[str, Mapping[str, Entry]]

ROOT = Path(__file__).resolve().parents[1]
_BEGIN = "<!-- table: "
_BLOCK = re.compile(
    rf"({_BEGIN}(?P<spec>[^\n]*?) -->\n)(?:(?!{_BEGIN}).)*?(<!-- end -->)", re.DOTALL
)
_OPTIONS = {
    "figures", "datasets", "protocols", "models", "joined", "published", "spread", "settings",
    "best", "digits",
}  # fmt: skip


@dataclass(frozen=True)
class Spec:
    """What a table shows."""

    names: Sequence[str]
    options: dict[str, str]

    @classmethod
    def parse(cls, text: str) -> Spec:
        """Read what stands in the comment; an unknown word is an error that names it."""
        name, *words = shlex.split(text)
        options = dict(word.partition("=")[::2] for word in words)
        for word in options:
            if word not in _OPTIONS:
                raise ParameterError(
                    f"The table {text!r} has {word!r}: use {', '.join(sorted(_OPTIONS))}."
                )
        if (
            options.get("spread", "sd") not in ("sd", "se")
            or not options.get("digits", "4").isdecimal()
        ):
            raise ParameterError(f"The table {text!r} needs spread=sd or se, and digits=4 or so.")
        return cls(name.split("+"), options)

    def is_on(self, name: str) -> bool:
        """Whether something is asked for by yes."""
        return self.options.get(name, "no") == "yes"

    def pick(self, name: str, there: Sequence[str]) -> dict[str, str]:
        """Return the chosen ones of some names with their titles, in order."""
        asked = self.options.get(name)
        if asked is None:
            return {one: one for one in dict.fromkeys(there)}
        chosen = {}
        for word in asked.split(","):
            one, _, title = word.strip().partition(":")
            if one not in there:
                raise ParameterError(
                    f"{'+'.join(self.names)} has none of {name} called {one!r}; it has: "
                    f"{', '.join(dict.fromkeys(there))}."
                )
            chosen[one] = title or one
        return chosen


@dataclass(frozen=True)
class Column:
    """A column of a table: a cell for each model, and what was published, where there is any."""

    title: str
    cells: dict[str, Cell]
    printed: dict[str, str] = field(default_factory=dict)


def table_of(spec: Spec, results: Sequence[Results]) -> Table:
    """Make a table of stored results: models down, datasets and protocols across."""
    outcomes = [outcome for each in results for outcome in each.outcomes]
    datasets = spec.pick("datasets", [outcome.dataset for outcome in outcomes])
    protocols = spec.pick("protocols", [outcome.protocol for outcome in outcomes])
    groups = {
        _title(spec, datasets[dataset], protocols[protocol]): found
        for dataset in datasets
        for protocol in protocols
        if (found := _entries(outcomes, dataset, protocol))
    }
    models = spec.pick("models", [name for found in groups.values() for name in found])
    columns = [_settings(groups, models)] if spec.is_on("settings") else []
    metrics = list(spec.pick("figures", [metric for each in results for metric in each.metrics]))
    make = _joined if spec.is_on("joined") else _apart
    for title, found in groups.items():
        columns += make(spec, title, {name: found.get(name) for name in models}, metrics)
    rows = []
    for name, title in models.items():
        rows.append([Cell(title), *(column.cells[name] for column in columns)])
        printed = [column.printed.get(name, "") for column in columns]
        if spec.is_on("published") and any(printed):
            rows.append(list(map(Cell, ["as published", *printed])))
    titles = ["model", *(column.title for column in columns)]
    return Table("", titles, rows, align="l" + "r" * len(columns))


def _settings(groups: Groups, models: Iterable[str]) -> Column:
    """How many settings of each model were tried; several numbers where tables differ."""
    tried = {
        name: dict.fromkeys(found[name].tried for found in groups.values() if name in found)
        for name in models
    }
    return Column("settings", {n: Cell("; ".join(map(str, some))) for n, some in tried.items()})


def _joined(spec: Spec, title: str, entries: Entries, metrics: Sequence[str]) -> list[Column]:
    """All figures of a table in one column, published ones in another."""

    def cells(figure: Callable[[Entry, str], str]) -> dict[str, Cell]:
        return {
            name: Cell("" if entry is None else " / ".join(figure(entry, m) for m in metrics))
            for name, entry in entries.items()
        }

    columns = [Column(title or " / ".join(metrics), cells(partial(_figure, spec)))]
    if spec.is_on("published"):
        columns.append(Column("as published", cells(partial(_published, spec))))
        for name, cell in columns[1].cells.items():
            columns[1].cells[name] = Cell(cell.text.strip(" /"))
    return columns


def _apart(spec: Spec, title: str, entries: Entries, metrics: Sequence[str]) -> list[Column]:
    """A column for each figure of a table."""
    columns = []
    for metric in metrics:
        means = {name: entry and entry.mean(metric) for name, entry in entries.items()}
        best = max((mean for mean in means.values() if mean is not None), default=None)
        cells, printed = {}, {}
        for name, entry in entries.items():
            is_best = spec.is_on("best") and best is not None and means[name] == best
            cells[name] = Cell(_figure(spec, entry, metric) if entry else "", "best" * is_best)
            printed[name] = _published(spec, entry, metric) if entry else ""
        columns.append(Column(f"{title} {metric}".strip(), cells, printed))
    return columns


def _figure(spec: Spec, entry: Entry, metric: str) -> str:
    """A mean, with its spread if that is asked for and there is one; nothing without a mean."""
    if metric not in entry.metrics:
        return ""
    found, spread = entry.metrics[metric], spec.options.get("spread")
    mean = _number(spec, found["mean"])
    if spread is None or (spread == "sd" and entry.runs == 1):
        return mean
    return f"{mean} ± {_number(spec, found[spread])}"


def _published(spec: Spec, entry: Entry, metric: str) -> str:
    return _number(spec, entry.published.get(metric))


def _number(spec: Spec, value: float | None) -> str:
    return "" if value is None else shown(value, f".{spec.options.get('digits', '4')}f")


def _title(spec: Spec, dataset: str, protocol: str) -> str:
    """Name datasets and protocols, apart from one that was asked for by its name alone."""
    said = []
    for option, title in (("datasets", dataset), ("protocols", protocol)):
        asked = spec.options.get(option, ",")
        said += [title] if "," in asked or ":" in asked else []
    return ", ".join(said)


def _entries(outcomes: Sequence[Outcome], dataset: str, protocol: str) -> dict[str, Entry]:
    """The models of a dataset and a protocol, by name; those of the first table win."""
    found = [o for o in outcomes if (o.dataset, o.protocol) == (dataset, protocol)]
    return {entry.name: entry for outcome in reversed(found) for entry in outcome.entries}


def filters_of(spec: Spec, results: Sequence[Results]) -> str:
    """Name the filters of the datasets of a table."""
    outcomes = [outcome for each in results for outcome in each.outcomes]
    chosen = spec.pick("datasets", [outcome.dataset for outcome in outcomes])
    filters = {one.dataset: one.filter for one in outcomes if one.dataset in chosen}
    if len(set(filters.values())) == 1:
        return f"filter: {next(iter(filters.values()))}"
    return "filters: " + ", ".join(f"{name} {each}" for name, each in filters.items())


def renewed(text: str, folder: Path) -> str:
    """Return a page with its tables made anew, each with its command, and its figures filled in."""

    def table(found: re.Match[str]) -> str:
        spec = Spec.parse(found["spec"])
        results = [Results.read(folder / f"{name}.json") for name in spec.names]
        commands = ", ".join(f"`{each.command}`" for each in results)
        lines = table_of(spec, results).to_markdown(titled=False)
        return f"{found[1]}{lines}\n\n({commands}; {filters_of(spec, results)})\n{found[3]}"

    if len(_BLOCK.findall(text)) != text.count(_BEGIN):
        raise ParameterError("A table has no <!-- end -->, or more than one line at its beginning.")
    return filled(_BLOCK.sub(table, text), folder)


def main(words: Sequence[str]) -> int:
    """Renew all pages, or say which differ."""
    differing = []
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        before = page.read_text(encoding="utf-8")
        after = renewed(before, ROOT / "docs" / "results")
        if before != after:
            differing.append(str(page.relative_to(ROOT)))
            if "--check" not in words:
                page.write_text(after, encoding="utf-8")
    if differing:
        print(f"{'Differ' if '--check' in words else 'Written'}: {', '.join(differing)}")
    return int(bool(differing) and "--check" in words)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except TransCFError as error:
        sys.exit(f"docs/tables.py: {error}")
