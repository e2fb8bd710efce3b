"""`transcf tune`: search for the best settings of a model on validation data."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from transcf.cli._options import (
    ClusterAddress,
    Data,
    NoStore,
    Protocol,
    ReadingOptions,
    Seed,
    StorePath,
    Threads,
    open_store_unless,
    read_preset,
    read_values,
    reading_options,
)
from transcf.cli._output import JsonFlag, print_facts, print_json, say_reading
from transcf.cli._progress import show_steps
from transcf.cli._sharing import RunWorkers, parse_sharing
from transcf.interrupts import INTERRUPTED

if TYPE_CHECKING:
    from transcf.experiments.tune_result import Tuning


@reading_options
def tune(
    data: Data,
    model: Annotated[str, typer.Option(help="Name of the model; see `transcf models`.")],
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
    space: Annotated[
        str, typer.Option(help="Search space: default, or paper for the grid of TransCF's paper.")
    ] = "default",
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Not to be searched; repeatable."),
    ] = None,
    preset: Annotated[
        str | None, typer.Option(help="Settings of the model that replace the defaults.")
    ] = None,
    jobs: Annotated[
        int, typer.Option(min=1, help="Trials at the same time, in processes of this machine.")
    ] = 1,
    workers: RunWorkers = None,
    cluster: ClusterAddress = None,
    minutes: Annotated[
        float | None, typer.Option(help="Start no trial after this many minutes.")
    ] = None,
    prune: Annotated[
        bool,
        typer.Option(
            "--prune/--no-prune",
            help="Stop trials that are below the median of earlier trials at the same epoch.",
        ),
    ] = True,
    storage: Annotated[
        str,
        typer.Option(
            metavar="FILE|URL",
            help="Optuna database: a SQLite file, or postgresql://... The same command continues "
            "the search.",
        ),
    ] = "tuning.sqlite",
    study: Annotated[
        str | None,
        typer.Option(help="Name of the study in it; by default derived from data and options."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="TOML file for the best settings, for --config of other commands."),
    ] = None,
    plots: Annotated[
        Path | None, typer.Option(help="Folder for Optuna's plots: history and importance.")
    ] = None,
    *,
    reading: ReadingOptions,
    seed: Seed = 0,
    threads: Threads = None,
    store: StorePath = None,
    no_store: NoStore = False,
    as_json: JsonFlag = False,
) -> None:
    """Search for the best settings of a model on validation data; the test part is not used.

    The first trial has the defaults. With --jobs or --workers, the result of each trial is the
    same, but which settings are tried depends on the order in which trials end. Ctrl-C prints the
    best so far and exits with 130; the next search runs unfinished trials again.
    """
    from transcf.data.splitters import open_split
    from transcf.experiments.tune import tune as run
    from transcf.experiments.tune_result import check_plots

    spread = parse_sharing(jobs, workers, cluster)
    model, params = read_values(model, settings)
    start = read_preset(model, preset, data)
    if plots is not None:
        check_plots(plots)
    kept = open_store_unless(no_store, store)
    split = open_split(data, protocol, seed=seed, **reading)
    say_reading(split.train)
    with _show_progress(trials) as on_trial:
        found = run(
            split, model, trials=trials, metric=metric, protocol=protocol, sampler=sampler,
            space=space, params=params, start=start, seed=seed, jobs=jobs, cluster=spread,
            minutes=minutes, prune=prune, storage=storage, study=study, dataset=data,
            store=None if kept is None else kept.folder, on_trial=on_trial,
        )  # fmt: skip
    if found.is_interrupted and not found.count("complete"):
        raise KeyboardInterrupt
    if as_json:
        print_json({"dataset": data, **found.to_dict()})
    else:
        _print(data, found)
    written = [] if out is None else [found.config().write(out)]
    written += [] if plots is None else found.write_plots(plots)
    if written:
        typer.echo(f"Written: {', '.join(map(str, written))}", err=True)
    if found.is_interrupted:
        typer.echo("transcf: interrupted: the settings tried so far count.", err=True)
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
                found = f"{done} trials are in {known.storage} ({known.study})."
                typer.echo(f"transcf: {found}", err=True)
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
