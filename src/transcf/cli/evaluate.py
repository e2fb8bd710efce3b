"""`transcf evaluate`: fit and judge in one go, or judge a saved model."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from transcf.cli._options import (
    Beyond,
    ClusterAddress,
    Config,
    Data,
    Lengths,
    NoStore,
    Part,
    Preset,
    Protocol,
    ReadingOptions,
    Seed,
    Seeds,
    Settings,
    StorePath,
    Threads,
    Ties,
    open_model,
    open_store_unless,
    parse_cluster,
    read_eval_config,
    read_model,
    reading_options,
)
from transcf.cli._output import JsonFlag, print_json, print_table, say_reading
from transcf.cli._sharing import RunWorkers
from transcf.errors import DataError, ParameterError
from transcf.protocols import protocol_named

if TYPE_CHECKING:
    from transcf.data.split import Split
    from transcf.experiments.run_result import CandidateResult
    from transcf.models.base import Recommender


#: Options that say how to fit, by parameter: a fitted model has them behind it.
_OF_FITTING = {
    "model": "--model",
    "settings": "--set",
    "preset": "--preset",
    "config": "--config",
    "columns": "--column",
    "ratings": "--ratings",
    "min_rating": "--min-rating",
    "filter_name": "--filter",
    "no_header": "--no-header",
    "separator": "--separator",
    "encoding": "--encoding",
    "categories": "--categories",
    "seeds": "--seeds",
    "seed": "--seed",
    "store": "--store",
    "no_store": "--no-store",
    "workers": "--workers",
    "cluster": "--cluster",
}


@reading_options
def evaluate(
    context: typer.Context,
    data: Data,
    model: Annotated[
        str | None, typer.Option(help="Name of the model; not for a folder of `transcf fit`.")
    ] = None,
    settings: Settings = None,
    preset: Preset = None,
    config: Config = None,
    protocol: Protocol = None,
    ties: Ties = "pessimistic",
    part: Part = "test",
    at: Lengths = "10,20",
    beyond: Beyond = False,
    *,
    reading: ReadingOptions,
    seeds: Seeds = 1,
    seed: Seed = 0,
    threads: Threads = None,
    workers: RunWorkers = None,
    cluster: ClusterAddress = None,
    store: StorePath = None,
    no_store: NoStore = False,
    as_json: JsonFlag = False,
) -> None:
    """Fit a model on DATA and judge it; or judge a saved model on the data it was fitted on.

    With --workers, processes of a Ray cluster run some of the seeds; they have to reach the folder
    of the store.
    """
    from transcf.data.paths import path_of

    if (path_of(data) / "model.json").is_file():
        _refuse_fitting(context, data)
        dataset, done = _judge_saved(data, protocol, ties, part, at, beyond)
    else:
        from transcf.data.splitters import open_split
        from transcf.experiments.comparison import candidate_workers
        from transcf.experiments.experiment import Candidate, Experiment

        model, params = read_model(model, config, settings, preset, data)
        eval_config = read_eval_config(protocol, ties, part, at, beyond)
        split = open_split(data, eval_config.protocol, seed=seed, **reading)
        say_reading(split.train)
        numbers = range(seed, seed + seeds)
        kept = open_store_unless(no_store, store)
        eval_config = replace(eval_config, with_validation=False)
        experiment = Experiment(split, eval_config, numbers, store=kept, dataset=data)
        candidate = Candidate(model, model, params)
        spread = parse_cluster(workers, cluster)
        if spread is not None and (seeds == 1 or not candidate.takes_seed):
            typer.echo("transcf: there is one run, so that no worker is of use.", err=True)
            spread = None
        with candidate_workers([candidate], experiment, spread):
            dataset, done = data, experiment.run(candidate)
    if as_json:
        print_json({"dataset": dataset, **done.to_dict()})
    else:
        _print(dataset, done)


def _refuse_fitting(context: typer.Context, folder: str) -> None:
    """Refuse options that a fitted model would ignore."""
    sources = {name: context.get_parameter_source(name) for name in _OF_FITTING}
    given = [
        _OF_FITTING[name]
        for name, source in sources.items()
        if source is not None and source.name != "DEFAULT"
    ]
    if given:
        raise ParameterError(f"{folder} is a fitted model: leave out {', '.join(given)}.")


def _judge_saved(
    folder: str, protocol: str | None, ties: str, part: str, at: str, beyond: bool
) -> tuple[str, CandidateResult]:
    """Open the data that a saved model was fitted on, and judge it there."""
    from transcf.data.splitters import open_split, split_log
    from transcf.experiments.run_result import CandidateResult, RunResult

    fitted = open_model(folder)
    origin = fitted.report_
    if not {"dataset", "protocol", "split_seed"} <= origin.keys():
        raise DataError(
            f"{folder} does not say what it was fitted on: only `transcf fit` notes that down."
        )
    if not origin.get("held_out"):
        raise DataError(
            f"{folder} was fitted on everything, so that nothing is left to judge it by: evaluate "
            "the data with --model, or fit with --hold-out."
        )
    dataset, seed = origin["dataset"], origin["split_seed"]
    fitted_for = protocol_named(origin["protocol"])
    if protocol is None and fitted_for.sampled:
        protocol = fitted_for.name  # others follow from the split, and from what was learned from
    eval_config = read_eval_config(protocol, ties, part, at, beyond)
    split = open_split(dataset, fitted_for.name, seed=seed, **origin.get("reading", {}))
    _check_same_training(folder, dataset, fitted, split)
    split = split_log(split, eval_config.protocol, seed=seed)
    found = RunResult.of(
        fitted,
        seconds=float(origin["seconds"]),
        evaluation=eval_config.evaluate(fitted, split),
        full_ranking=eval_config.full_ranking(fitted, split),
    )
    return dataset, CandidateResult(fitted.name, [found])


def _check_same_training(folder: str, dataset: str, fitted: Recommender[Any], split: Split) -> None:
    """Make sure that the model has learned from train, or from train and validation."""
    from numpy import array_equal

    same = any(
        part.users == fitted.users_
        and part.items == fitted.items_
        and array_equal(part.by_user.indptr, fitted.seen_.indptr)
        and array_equal(part.by_user.indices, fitted.seen_.indices)
        for part in (split.before_test, split.train)
    )
    if not same:
        raise DataError(f"{dataset} has changed since {folder} was fitted on it: fit again.")


def _print(dataset: str, done: CandidateResult) -> None:
    from transcf.data.report import counted
    from transcf.legend import legend

    found = done.to_dict()
    full = found.get("full_ranking", {})
    rows = [
        (
            name,
            *(f"{entry[kind]:.4f}" for kind in ("mean", "se")),
            f"{entry['sd']:.4f}" if found["runs"] > 1 else None,
            *([f"{full[name]['mean']:.4f}"] if full else []),  # which has all metrics, and more
        )
        for name, entry in found["metrics"].items()
    ]
    runs = f", {found['runs']} runs" if found["runs"] > 1 else ""
    title = (
        f"{found['model']} on {dataset}: {found['protocol']} protocol, {found['subset']}, "
        f"{counted(found['users'], 'user')}, {found['ties']} ties{runs}"
    )
    skipped = ", ".join(f"{reason} {count:,}" for reason, count in found["skipped"].items())
    shown = ", ".join(f"{name} {value:.4g}" for name, value in found["catalogue"].items())
    notes = [
        shown,
        f"held out: {found['split']}",
        f"skipped: {skipped or 'nobody'}",
        legend(
            [*found["metrics"], *found["catalogue"]],
            "se = standard error over users, what another sample of users would change",
            "sd = spread of the seeds' means",
        ),
        *found["notes"],
        f"fitted in {done.seconds:.1f} s"
        + (f"; {done.stored} of {done.cells} from the store of runs" if done.stored else ""),
    ]
    columns = ("metric", "mean", "se (users)", "sd (seeds)", *(["full ranking"] if full else []))
    print_table(title, columns, rows, notes=filter(None, notes))
