"""`transcf tune` and `transcf auto`: search for settings, or for a model, on validation data."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import transcf
from transcf.cli import options, output

if TYPE_CHECKING:
    from transcf import Tuning


def tune(
    data: options.Data,
    model: options.ModelOptions,
    trials: options.Count = 100,
    metric: str | None = None,
    protocol: options.Protocol = None,
    sampler: str = "tpe",
    minutes: float | None = None,
    storage: str = "tuning.sqlite",
    out: Path | None = None,
    *,
    reading: options.ReadingOptions,
    seed: options.Seed = 0,
    workers: options.Workers = None,
    answer: output.Answer,
) -> None:
    """Search for the best settings of a model on validation data.

    Test events are not used. The first trial has the defaults, or the parameters of --config. Those
    of --set are not searched. Trials below the median of earlier ones are stopped early. With
    --workers, which settings are tried depends on the order in which trials end. Ctrl-C prints the
    best so far and exits with 130; the same command continues.

    Options:
        trials: Settings to try, those in the database included.
        metric: Metric to maximize, such as NDCG@10; by default that of the protocol.
        sampler: tpe (learns from earlier trials), random or grid.
        minutes: Start no trial after this many minutes.
        storage (FILE|URL): Optuna database: a SQLite file, or postgresql://... The same command
            continues the search.
        out (FILE.toml|FOLDER): File for the best settings, for --config of other commands; or a
            folder for best.toml and Optuna's plots.

    Example: transcf tune events.csv --model bpr --trials 50 --out best.toml
    """
    from transcf.experiments.tune import check_plots

    jobs, cluster = options.jobs_and_cluster(workers)
    name, start, params = model.read(data)
    is_folder = out is not None and out.suffix != ".toml"
    if out is not None and is_folder:
        check_plots(out)
    store = options.open_store()
    split = transcf.open_split(data, protocol, seed=seed, **reading.keywords())
    output.note_reading(split.train)
    with _show_progress(trials) as on_trial:
        found = transcf.tune(
            split, name, trials=trials, metric=metric, protocol=protocol, sampler=sampler,
            params=params, start=start, seed=seed, jobs=jobs, cluster=cluster, minutes=minutes,
            storage=storage, dataset=data, store=None if store is None else store.folder,
            on_trial=on_trial,
        )  # fmt: skip
    if found.is_interrupted and not found.count("complete"):
        raise KeyboardInterrupt
    title = f"{found.model} on {data}: the best of {len(found.trials)} settings"
    answer.show({"dataset": data, **found.to_dict()}, output.facts_table(title, found.facts()))
    if out is not None:
        written = [found.config().write(out / "best.toml" if is_folder else out)]
        output.note_written([*written, *(found.write_plots(out) if is_folder else [])])
    if found.is_interrupted:
        output.end_interrupted(": the settings tried so far count.")


@contextmanager
def _show_progress(total: int) -> Iterator[Callable[[Tuning], None]]:
    is_first = True
    with output.Steps(total, "trials") as steps:

        def report(known: Tuning) -> None:
            nonlocal is_first
            done = len(known.trials)
            if is_first and done:
                output.note(f"{done} trials are in {known.storage} ({known.study}).")
            is_first = False
            steps.reach(done, str(known))

        yield report


def auto(
    data: options.Data,
    out: Path,
    minutes: float = 10.0,
    models: Annotated[str | None, typer.Option(show_default=False)] = None,
    *,
    reading: options.ReadingOptions,
    seed: options.Seed = 0,
    overwrite: options.Overwrite = False,
    answer: output.Answer,
) -> None:
    """Find the best model for DATA within a time limit, and save it.

    Tries models and settings on validation data (NDCG at 10), the cheapest first, and blends the
    best ones. The winner is tested on held-out events that no choice has seen, and fitted on all
    events. Writes OUT, OUT.report.json and OUT.report.md. The same command continues an interrupted
    search. Ctrl-C saves the best model so far and exits with 130; a second one ends at once.

    Options:
        out: Folder for the model; the report is put next to it.
        minutes: Time limit for everything, including the final fit.
        models: Names of models to try, separated by commas; popularity is added. By default those
            that suit the data and need no torch.

    Example: transcf auto events.csv --minutes 10 --out models/shop
    """
    from transcf.experiments.auto_report import report_paths

    place, store = out.absolute(), options.open_store()  # "." is another folder once replaced
    total = round(max(0.0, min(1e9, 60 * minutes)))  # also of no number, which is refused below
    with output.Steps(total, "seconds") as steps:
        found = transcf.auto(
            data,
            minutes,
            out,
            models=options.split_names(models),
            seed=seed,
            store=None if store is None else store.folder,
            overwrite=overwrite,
            on_progress=lambda seconds, text: steps.reach(int(seconds), text),
            on_read=output.note_reading,
            **reading.keywords(),
        )
    answer.show(found.report, found.table())
    output.note_written([place, *report_paths(place)])
    if found.report["interrupted"]:
        output.end_interrupted(": this is the best model so far; the same command goes on.")
