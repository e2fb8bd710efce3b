"""`transcf tune`: search for the best settings of a model on validation data."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from transcf.cli._options import (
    Data,
    JsonFlag,
    ModelOptions,
    Protocol,
    ReadingOptions,
    Seed,
    Workers,
    jobs_and_cluster,
    open_store,
    shared_options,
)
from transcf.cli._output import (
    note,
    note_reading,
    note_written,
    print_facts,
    print_json,
    show_steps,
)
from transcf.interrupts import INTERRUPTED

if TYPE_CHECKING:
    from transcf.experiments.tune_result import Tuning


@shared_options
def tune(
    data: Data,
    model: ModelOptions,
    trials: Annotated[
        int, typer.Option(min=1, help="Settings to try, those in the database included.")
    ] = 100,
    metric: Annotated[
        str | None,
        typer.Option(help="Metric to maximize, such as NDCG@10; by default that of the protocol."),
    ] = None,
    protocol: Protocol = None,
    sampler: Annotated[
        str, typer.Option(help="tpe (learns from earlier trials), random or grid.")
    ] = "tpe",
    minutes: Annotated[
        float | None, typer.Option(help="Start no trial after this many minutes.")
    ] = None,
    storage: Annotated[
        str,
        typer.Option(
            metavar="FILE|URL",
            help="Optuna database: a SQLite file, or postgresql://... The same command continues "
            "the search.",
        ),
    ] = "tuning.sqlite",
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.toml|FOLDER",
            help="File for the best settings, for --config of other commands; or a folder for "
            "best.toml and Optuna's plots.",
        ),
    ] = None,
    *,
    reading: ReadingOptions,
    seed: Seed = 0,
    workers: Workers = None,
    as_json: JsonFlag = False,
) -> None:
    """Search for the best settings of a model on validation data.

    Test events are not used. The first trial has the defaults, or the parameters of --config. Those
    of --set are not searched. Trials below the median of earlier ones are stopped early. With
    --workers, which settings are tried depends on the order in which trials end. Ctrl-C prints the
    best so far and exits with 130; the same command continues.

    Example: transcf tune events.csv --model bpr --trials 50 --out best.toml
    """
    from transcf.data.splitters import open_split
    from transcf.experiments.tune import tune as search
    from transcf.experiments.tune_result import check_plots

    jobs, cluster = jobs_and_cluster(workers)
    name, start, params = model.read(data)
    is_folder = out is not None and out.suffix != ".toml"
    if out is not None and is_folder:
        check_plots(out)
    store = open_store()
    split = open_split(data, protocol, seed=seed, **reading.keywords())
    note_reading(split.train)
    with _show_progress(trials) as on_trial:
        found = search(
            split, name, trials=trials, metric=metric, protocol=protocol, sampler=sampler,
            params=params, start=start, seed=seed, jobs=jobs, cluster=cluster, minutes=minutes,
            storage=storage, dataset=data, store=None if store is None else store.folder,
            on_trial=on_trial,
        )  # fmt: skip
    if found.is_interrupted and not found.count("complete"):
        raise KeyboardInterrupt
    if as_json:
        print_json({"dataset": data, **found.to_dict()})
    else:
        _print(data, found)
    if out is not None:
        written = [found.config().write(out / "best.toml" if is_folder else out)]
        note_written([*written, *(found.write_plots(out) if is_folder else [])])
    if found.is_interrupted:
        note("interrupted: the settings tried so far count.")
        raise typer.Exit(INTERRUPTED)


@contextmanager
def _show_progress(total: int) -> Iterator[Callable[[Tuning], None]]:
    """Show the number of trials and the best metric."""
    is_first = True
    with show_steps(total, "trials") as steps:

        def report(known: Tuning) -> None:
            nonlocal is_first
            done = len(known.trials)
            if is_first and done:
                note(f"{done} trials are in {known.storage} ({known.study}).")
            is_first = False
            steps.reach(done, _best(known))

        yield report


def _best(known: Tuning) -> str:
    if not known.count("complete"):
        return "none is complete"
    best = known.best
    setting = ", ".join(f"{name}={value}" for name, value in best.setting.items())
    return f"best {known.metric} {best.figure:.4f} ({setting or 'the defaults'})"


def _print(data: str, found: Tuning) -> None:
    ended = {state: found.count(state) for state in ("complete", "pruned", "failed")}
    best = found.best
    reasons = sorted({trial.reason for trial in found.trials if trial.reason})
    facts = {
        **found.best_params,
        found.metric: best.figure,
        "the defaults have": next((one.figure for one in found.trials if not one.setting), None),
        "epoch": best.epoch,
        "trials": ", ".join(f"{count} {state}" for state, count in ended.items() if count),
        "minutes of trials": round(found.seconds / 60, 2),
        "database": f"{found.storage} ({found.study})",
        **{f"failed ({number})": reason for number, reason in enumerate(reasons, start=1)},
    }
    print_facts(f"{found.model} on {data}: the best of {len(found.trials)} settings", facts)
