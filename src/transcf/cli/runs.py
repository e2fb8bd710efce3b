"""`transcf runs`: look at stored runs, and remove them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from transcf.cli._options import StorePath, open_store
from transcf.cli._output import JsonFlag, print_facts, print_json, print_table
from transcf.errors import DataError, ParameterError

if TYPE_CHECKING:
    from transcf.experiments.store import Entry, Store

app = typer.Typer(help="Look at stored runs, and remove them.", no_args_is_help=True)

#: How much of a key tables show; any beginning that only one run has will do.
_SHOWN = 12

Model = Annotated[str | None, typer.Option(help="Only runs of this model.")]
Dataset = Annotated[str | None, typer.Option(help="Only runs on this data, as it was named.")]


@app.command("list")
def list_runs(
    model: Model = None,
    dataset: Dataset = None,
    store: StorePath = None,
    as_json: JsonFlag = False,
) -> None:
    """List stored runs: what was run on which data, and its validation figure."""
    kept = open_store(store)
    found = list(_entries(kept, model, dataset))
    if as_json:
        print_json([_facts(entry) for entry in found])
        return
    rows = [
        (
            entry.key[:_SHOWN], entry.cell["kind"], entry.about.get("dataset", ""),
            entry.about.get("model", ""), entry.cell["settings"].get("random_state"),
            entry.cell["rules"].get("protocol", "validation"), _metric(entry), _figure(entry),
            round(entry.result.spent, 2), entry.written.removesuffix("+00:00"),
        )
        for entry in found
    ]  # fmt: skip
    columns = (
        "key", "kind", "data", "model", "seed", "judged by", "metric", "figure", "seconds",
        "written (UTC)",
    )  # fmt: skip
    print_table(f"{len(found):,} stored runs in {kept.folder}", columns, rows)


@app.command()
def show(
    key: Annotated[str, typer.Argument(help="Key of a run, or the beginning of one.")],
    store: StorePath = None,
    as_json: JsonFlag = False,
) -> None:
    """Show one stored run: what it depends on, its settings, figures, times and curve."""
    kept = open_store(store)
    entry = kept.read(kept.one_key(key))
    facts = _facts(entry)
    if as_json:
        print_json(facts)
        return
    result = entry.result
    about = {
        "kind": entry.cell["kind"], **entry.about, **entry.cell["rules"],
        "data": entry.cell["data"],
        "written (UTC)": entry.written, "versions": _listed(entry.versions),
        "seconds of fitting": result.seconds, "seconds of all": result.spent,
        "validation figure": result.validation, "best epoch": result.best_epoch,
        "failed": None if result.error is None else str(result.error),
    }  # fmt: skip
    print_facts(f"Run {entry.key}", about)
    print_facts("Settings", result.parameters or entry.cell["settings"])
    if result.evaluation is not None:
        rows = [
            (name, f"{figure.mean:.4f}", f"{figure.se:.4f}")
            for name, figure in result.evaluation.metrics.items()
        ]
        title = f"Figures, {result.evaluation.users:,} users"
        print_table(title, ("metric", "mean", "se (users)"), rows)
    validated = [step for step in result.curve if step["metric"] is not None]
    if validated:
        rows = [(step["epoch"], step["loss"], f"{step['metric']:.4f}") for step in validated]
        print_table("Validation curve", ("epoch", "loss", "metric"), rows)


@app.command("rm")
def remove(
    keys: Annotated[
        list[str] | None, typer.Argument(help="Keys of runs, or beginnings of them.")
    ] = None,
    model: Annotated[
        str | None, typer.Option("--all-of", metavar="MODEL", help="All runs of this model.")
    ] = None,
    dataset: Annotated[
        str | None, typer.Option("--all-on", metavar="DATA", help="All runs on this data.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    store: StorePath = None,
    as_json: JsonFlag = False,
) -> None:
    """Remove stored runs; `--all-of` and `--all-on` together mean runs of that model on that data.

    What is removed is run again when a table asks for it.
    """
    kept = open_store(store)
    if bool(keys) == bool(model or dataset):
        raise ParameterError(
            "Name the runs to remove: either by keys, or by --all-of and --all-on."
        )
    if keys:
        chosen = list(dict.fromkeys(kept.one_key(key) for key in keys))
    else:
        chosen = [entry.key for entry in _entries(kept, model, dataset)]
    if chosen and not yes:
        typer.confirm(
            f"Remove {len(chosen):,} stored runs from {kept.folder}?", abort=True, err=True
        )
    for key in chosen:
        kept.remove(key)
    if as_json:
        print_json({"removed": chosen})
    else:
        typer.echo(f"Removed {len(chosen):,} stored runs.")


def _entries(store: Store, model: str | None, dataset: str | None) -> Iterator[Entry]:
    """Yield the runs of a model on some data, the oldest first; damaged ones are counted."""
    from transcf.models.registry import canonical_name

    name = None if model is None else canonical_name(model)
    wanted = {"model": name, "dataset": dataset}
    found: list[Entry] = []
    damaged: list[str] = []
    for key in store.all_keys():
        try:
            entry = store.read(key)
        except DataError as problem:
            damaged.append(str(problem))
            continue
        if all(value in (None, entry.about.get(name)) for name, value in wanted.items()):
            found.append(entry)
    if damaged:
        what = "stored run is" if len(damaged) == 1 else "stored runs are"
        first = f"{len(damaged):,} {what} damaged and left out; the first:"
        typer.echo(f"transcf: {first} {damaged[0]}", err=True)
    yield from sorted(found, key=lambda entry: (entry.written, entry.key))


def _metric(entry: Entry) -> str:
    """The metric of a trial, or the first of a judged run that tables show first."""
    if entry.result.evaluation is None:
        return str(entry.cell["rules"].get("metric", ""))
    return next(iter(entry.result.evaluation.metrics))


def _figure(entry: Entry) -> str:
    if entry.result.error is not None:
        return "failed"
    if entry.result.evaluation is not None:
        return str(entry.result.evaluation.metrics[_metric(entry)])
    return "-" if entry.result.validation is None else f"{entry.result.validation:.4f}"


def _facts(entry: Entry) -> dict[str, Any]:
    """JSON form of a run."""
    result, judged = entry.result, entry.result.evaluation
    return {
        "key": entry.key,
        **entry.about,
        "cell": dict(entry.cell),
        "written": entry.written,
        "versions": dict(entry.versions),
        "parameters": dict(result.parameters),
        "seconds": result.seconds,
        "spent_seconds": result.spent,
        "validation": result.validation,
        "best_epoch": result.best_epoch,
        "curve": list(result.curve),
        "error": None if result.error is None else str(result.error),
        "evaluation": None if judged is None else judged.to_dict(),
    }


def _listed(values: Any) -> str:
    return ", ".join(f"{name} {value}" for name, value in values.items())
