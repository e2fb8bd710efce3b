"""`transcf runs`: list, show and remove stored runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from transcf.cli import options, output
from transcf.errors import ParameterError

if TYPE_CHECKING:
    from transcf.experiments.store import Store

runs = options.CommandGroup()

#: Characters of a key in tables; any unambiguous beginning is accepted.
_SHOWN = 12


@runs.command("list")
def list_runs(
    model: str | None = None, dataset: str | None = None, *, answer: output.Answer
) -> None:
    """List stored runs with their validation metric.

    Options:
        model: Only runs of this model.
        dataset: Only runs on this data, as it was named.

    Example: transcf runs list --model bpr
    """
    from transcf.experiments.store import COLUMNS
    from transcf.tables import Table, text_of

    kept = _store()
    rows = _listed_runs(kept, model, dataset)
    if answer.as_json:
        answer.show([kept.read(row["key"]).to_dict() for row in rows])
        return
    cells = [
        (row["key"][:_SHOWN], *(row[name] for name in COLUMNS[:-1]), row["written"][:19])
        for row in rows
    ]
    columns = (
        "key", "kind", "data", "model", "seed", "judged by", "metric", "figure", "seconds",
        "written (UTC)",
    )  # fmt: skip
    title = f"{len(rows):,} stored runs in {kept.folder}"
    # Rich takes several seconds for thousands of rows.
    typer.echo(
        Table(title, columns, [[text_of(cell, 2) for cell in row] for row in cells]).to_text()
    )


@runs.command()
def show(
    key: Annotated[str, typer.Argument(help="Key of a run, or the beginning of one.")],
    answer: output.Answer,
) -> None:
    """Show one stored run: data, settings, metrics, times and validation curve.

    Example: transcf runs show 3f9a01
    """
    kept = _store()
    entry = kept.read(kept.one_key(key))
    facts, result = entry.to_dict(), entry.result
    nested = ("key", "cell", "parameters", "curve", "evaluation")
    about = {name: value for name, value in facts.items() if name not in nested}
    run = {"kind": entry.cell["kind"], **entry.cell["rules"], "data": entry.cell["data"]}
    run["validation"] = result.validation  # instead of the digest of the validation data
    tables = [
        output.facts_table(f"Run {entry.key}", about | run),
        output.facts_table("Settings", result.parameters or entry.cell["settings"]),
    ]
    if result.evaluation is not None:
        metrics = result.evaluation.metrics.items()
        rows = [(name, f"{found.mean:.4f}", f"{found.se:.4f}") for name, found in metrics]
        title = f"Figures, {result.evaluation.users:,} users"
        tables.append(output.values_table(title, ("metric", "mean", "se (users)"), rows))
    validated = [step for step in result.curve if step["metric"] is not None]
    if validated:
        rows = [(step["epoch"], step["loss"], f"{step['metric']:.4f}") for step in validated]
        columns = ("epoch", "loss", "metric")
        tables.append(output.values_table("Validation curve", columns, rows))
    answer.show(facts, *tables)


@runs.command("rm")
def remove(
    keys: options.Argument[list[str] | None] = None,
    model: Annotated[str | None, typer.Option("--all-of")] = None,
    dataset: Annotated[str | None, typer.Option("--all-on")] = None,
    yes: bool = False,
    *,
    answer: output.Answer,
) -> None:
    """Remove stored runs, by keys or by model and data.

    Options:
        keys: Keys of runs, or beginnings of them.
        model (MODEL): All runs of this model.
        dataset (DATA): All runs on this data.
        yes: Do not ask.

    Example: transcf runs rm --all-of bpr --all-on events.csv
    """
    from transcf.data.report import counted

    kept = _store()
    if bool(keys) == bool(model or dataset):
        raise ParameterError(
            "Name the runs to remove: either by keys, or by --all-of and --all-on."
        )
    if keys:
        chosen = list(dict.fromkeys(kept.one_key(key) for key in keys))
    else:
        chosen = [row["key"] for row in _listed_runs(kept, model, dataset)]
    if chosen and not yes:
        typer.confirm(
            f"Remove {counted(len(chosen), 'stored run')} from {kept.folder}?", abort=True, err=True
        )
    for key in chosen:
        kept.remove(key)
    answer.show({"removed": chosen}, f"Removed {counted(len(chosen), 'stored run')}.")


def _store() -> Store:
    store = options.open_store()
    if store is None:
        raise ParameterError("--store none has no runs to show: name a folder.")
    return store


def _listed_runs(store: Store, model: str | None, dataset: str | None) -> list[dict[str, Any]]:
    """Return the runs of a model on some data, the oldest first; damaged ones are counted."""
    from transcf.models.registry import canonical_name

    wanted = {"model": None if model is None else canonical_name(model), "dataset": dataset}
    rows, damaged = store.listed()
    if damaged:
        what = "stored run is" if len(damaged) == 1 else "stored runs are"
        output.note(f"{len(damaged):,} {what} damaged and left out; the first: {damaged[0]}")
    return [
        row for row in rows if all(value in (None, row[name]) for name, value in wanted.items())
    ]
