"""`transcf tune`: try settings of a model on validation data, and write the best to a file."""

from __future__ import annotations

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
    read_params,
    read_preset,
    reading_options,
)
from transcf.cli._output import JsonFlag, print_facts, print_json, say_reading
from transcf.cli._progress import Steps, show_steps
from transcf.cli._sharing import RunWorkers, parse_sharing
from transcf.interrupts import INTERRUPTED

if TYPE_CHECKING:
    from transcf.experiments.tuning import Tuning


@reading_options
def tune(
    data: Data,
    model: Annotated[str, typer.Option(help="Name of the model; see `transcf models`.")],
    trials: Annotated[
        int, typer.Option(min=1, help="Settings to try, those on record included.")
    ] = 100,
    metric: Annotated[
        str | None,
        typer.Option(help="What to choose by, such as N@10; that of the protocol unless given."),
    ] = None,
    protocol: Protocol = None,
    sampler: Annotated[
        str, typer.Option(help="Who proposes settings: tpe (learns from trials), random or grid.")
    ] = "tpe",
    space: Annotated[
        str, typer.Option(help="Where from: default, or paper for the grid of TransCF's paper.")
    ] = "default",
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Not to be searched; repeatable."),
    ] = None,
    preset: Annotated[
        str | None,
        typer.Option(help="Settings that come with the model, in the place of the defaults."),
    ] = None,
    jobs: Annotated[
        int, typer.Option(min=1, help="Trials side by side, each with its share of the threads.")
    ] = 1,
    workers: RunWorkers = None,
    cluster: ClusterAddress = None,
    minutes: Annotated[
        float | None, typer.Option(help="No trial is started after so many minutes.")
    ] = None,
    prune: Annotated[
        bool,
        typer.Option(
            "--prune/--no-prune",
            help="Whether to give up trials that are behind half of the others after as many "
            "epochs.",
        ),
    ] = True,
    storage: Annotated[
        str,
        typer.Option(
            metavar="FILE|URL",
            help="Record of the trials: a SQLite file, or postgresql://... The same command goes "
            "on with those that are missing.",
        ),
    ] = "tuning.sqlite",
    study: Annotated[
        str | None,
        typer.Option(help="Name of the trials in it; one for these data and options unless given."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="TOML file for the best settings, for --config of other commands."),
    ] = None,
    plots: Annotated[
        Path | None, typer.Option(help="Folder for charts of the trials and of what mattered.")
    ] = None,
    *,
    reading: ReadingOptions,
    seed: Seed = 0,
    threads: Threads = None,
    store: StorePath = None,
    no_store: NoStore = False,
    as_json: JsonFlag = False,
) -> None:
    """Choose the settings of a model on validation data; the test part is not looked at.

    The defaults are the first trial. With --jobs or --workers, what a trial finds is the same;
    which ones are tried depends on who finishes first. Ctrl-C ends with the best so far and 130;
    what was under way is not counted.
    """
    from transcf.data.sources import open_split
    from transcf.experiments.tuning import tune as run

    spread = parse_sharing(jobs, workers, cluster)
    params = read_params(model, settings)
    start = read_preset(model, preset, data)
    if plots is not None:
        _check_plots(plots)
    kept = open_store_unless(no_store, store)
    split = open_split(data, protocol, seed=seed, **reading)
    say_reading(split.train)
    with show_steps(trials, "trials") as steps:
        found = run(
            split, model, trials=trials, metric=metric, protocol=protocol, sampler=sampler,
            space=space, params=params, start=start, seed=seed, jobs=jobs, cluster=spread,
            minutes=minutes, prune=prune, storage=storage, study=study, dataset=data,
            store=None if kept is None else kept.folder, on_trial=_Progress(steps),
        )  # fmt: skip
    if found.is_interrupted and not found.trials:
        raise KeyboardInterrupt
    if as_json:
        print_json({"dataset": data, **found.to_dict()})
    else:
        _print(data, found)
    _write(found, out, plots)
    if found.is_interrupted:
        raise typer.Exit(INTERRUPTED)


class _Progress:
    """Shows how many trials are done, and the best so far."""

    def __init__(self, steps: Steps) -> None:
        self._steps = steps
        self._is_first = True

    def __call__(self, known: Tuning) -> None:
        if self._is_first and known.trials:
            typer.echo(
                f"transcf: {len(known.trials)} trials are on record in {known.storage} "
                f"({known.study}).",
                err=True,
            )
        self._is_first = False
        figure = next((figure for figure in reversed(known.curve()) if figure is not None), None)
        best = "" if figure is None else f"best {known.metric} {figure:.4f} {_setting(known)}"
        self._steps.reach(len(known.trials), best)


def _setting(found: Tuning) -> str:
    chosen = ", ".join(f"{name}={value}" for name, value in found.best.setting.items())
    return f"({chosen or 'the defaults'})"


def _print(data: str, found: Tuning) -> None:
    ended = {state: found.count(state) for state in ("complete", "pruned", "failed")}
    best = found.best
    reasons = sorted({tried.reason for tried in found.trials if tried.reason})
    facts = {
        **found.best_params,
        found.metric: best.figure,
        "the defaults have": next((one.figure for one in found.trials if not one.setting), None),
        "epoch": best.epoch,
        "trials": ", ".join(f"{count} {state}" for state, count in ended.items() if count),
        "minutes of trials": round(found.seconds / 60, 2),
        "on record": f"{found.storage} ({found.study})",
        **{f"failed ({number})": reason for number, reason in enumerate(reasons, start=1)},
    }
    print_facts(f"{found.model} on {data}: the best of {len(found.trials)} settings", facts)


def _write(found: Tuning, out: Path | None, plots: Path | None) -> None:
    written = [] if out is None else [found.config().write(out)]
    if plots is not None:
        from transcf.experiments.tuning.charts import write_charts

        written += write_charts(found, plots)
    if written:
        typer.echo(f"Written: {', '.join(map(str, written))}", err=True)


def _check_plots(folder: Path) -> None:
    """Refuse before the work what cannot be drawn after it."""
    from transcf.errors import ParameterError
    from transcf.pages.figures import canvas

    if folder.exists() and not folder.is_dir():
        raise ParameterError(f"--plots {folder} is not a folder: name another one.")
    with canvas(1.0):  # needs what drawing needs
        pass
