"""`transcf compare`: several models on one split, in one table, and in files as a page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from transcf.cli._options import (
    Beyond,
    ClusterAddress,
    Data,
    Lengths,
    NoStore,
    Part,
    Protocol,
    ReadingOptions,
    ReportFile,
    Seed,
    Seeds,
    StorePath,
    Threads,
    Ties,
    check_files,
    command_line,
    open_store_unless,
    parse_cluster,
    read_eval_config,
    read_values,
    reading_options,
)
from transcf.cli._output import (
    JsonFlag,
    print_json,
    print_table,
    say_reading,
    say_written,
    write_results,
)
from transcf.cli._progress import show_steps
from transcf.cli._sharing import RunWorkers
from transcf.errors import ParameterError
from transcf.interrupts import INTERRUPTED

if TYPE_CHECKING:
    from transcf.experiments.comparison import Comparison
    from transcf.experiments.experiment import Candidate

#: Options that do not change what comes of a comparison.
_BESIDE = (
    "report", "files", "out", "store", "no_store", "as_json", "threads", "workers", "cluster"
)  # fmt: skip


@reading_options
def compare(
    context: typer.Context,
    data: Data,
    models: Annotated[
        str,
        typer.Option(
            help="Names with commas between them, or 'all' (all that rank in a way of their own); "
            "trivial baselines join them."
        ),
    ] = "itemknn,ease",
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="MODEL.NAME=VALUE", help="A parameter of one model; repeatable."
        ),
    ] = None,
    config: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE",
            help="Settings of one model from a TOML file of `transcf tune`, before --set; the "
            "model joins the others; repeatable.",
        ),
    ] = None,
    budget: Annotated[
        str,
        typer.Option(
            help="Settings of each model to try on validation data: none (the defaults), small "
            "(3), medium (10), large (40) or a number."
        ),
    ] = "none",
    sampler: Annotated[
        str, typer.Option(help="Who proposes them: random, tpe (learns from trials) or grid.")
    ] = "random",
    protocol: Protocol = None,
    ties: Ties = "pessimistic",
    part: Part = "test",
    at: Lengths = "10,20",
    metric: Annotated[
        str | None,
        typer.Option(help="Metric of the paired test; NDCG at 10, or at the first of other --at."),
    ] = None,
    beyond: Beyond = False,
    *,
    reading: ReadingOptions,
    seeds: Seeds = 1,
    seed: Seed = 0,
    threads: Threads = None,
    workers: RunWorkers = None,
    cluster: ClusterAddress = None,
    out: Annotated[
        Path, typer.Option(help="Folder for the report (HTML, Markdown) and the figures (JSON).")
    ] = Path("comparison"),
    files: Annotated[
        bool, typer.Option("--files/--no-files", help="Whether to write these files.")
    ] = True,
    report: ReportFile = None,
    store: StorePath = None,
    no_store: NoStore = False,
    as_json: JsonFlag = False,
) -> None:
    """Fit and evaluate several models on the same split, and test their differences.

    With --workers, processes of a Ray cluster run some of the fits; they have to reach the folder
    of the store. Ends with exit code 1 if one of the models could not be fitted.
    """
    from transcf.data.report import listed
    from transcf.data.splitters import open_split
    from transcf.experiments.comparison import candidate_workers, compare_models, suited_to
    from transcf.experiments.experiment import Experiment
    from transcf.experiments.report import results_of, write_report

    check_files(report)
    eval_config = read_eval_config(protocol, ties, part, at, beyond)
    metric = eval_config.usual_metric if metric is None else metric
    eval_config.check_metric(metric)
    allowed = {"trials": budget, "sampler": sampler}
    candidates = _candidates(models, settings, config or [], allowed)
    if files and out.exists() and not out.is_dir():
        raise ParameterError(f"--out {out} is not a folder: name another one, or use --no-files.")
    split = open_split(data, protocol, seed=seed, **reading)
    say_reading(split.train)
    candidates = suited_to(split, candidates, allowed)
    numbers = range(seed, seed + seeds)
    kept = open_store_unless(no_store, store)
    with show_steps(len(candidates), "models") as steps:
        experiment = Experiment(split, eval_config, numbers, steps.report, store=kept, dataset=data)
        with candidate_workers(candidates, experiment, parse_cluster(workers, cluster)):
            found = compare_models(data, candidates, experiment, metric, steps.counted)
    if as_json:
        print_json(found.to_dict())
    else:
        print_comparison(found)
    if found.is_interrupted:
        typer.echo("transcf: interrupted: models without a row were not finished.", err=True)
        raise typer.Exit(INTERRUPTED)
    command = command_line(context, leave_out=_BESIDE)
    if files:
        say_written(*write_report(found, out, command))
    write_results(results_of(found, command), report, None)
    if found.failures:
        missing = listed(list(found.failures))
        typer.echo(f"transcf: {missing} could not be fitted: the notes say why.", err=True)
        raise typer.Exit(1)


def print_comparison(comparison: Comparison) -> None:
    """Print one line per model: metrics with standard errors, the best marked, and the test."""
    from transcf.experiments.report import table_of

    table = table_of(comparison)
    print_table(table.title, table.columns, table.rows, notes=table.notes)


def _candidates(
    models: str, settings: list[str] | None, config: list[Path], budget: dict[str, str]
) -> list[Candidate]:
    from transcf.experiments.comparison import TRIVIAL_BASELINES, candidates_of
    from transcf.experiments.run_result import TIMED_BASELINE
    from transcf.experiments.tune_result import Config
    from transcf.models.registry import canonical_name, distinct

    asked = distinct() if models == "all" else map(canonical_name, models.split(","))
    stored = {read.model: dict(read.params) for read in map(Config.read, config)}
    if len(stored) < len(config):
        raise ParameterError("Two --config files are about the same model: give one for each.")
    # The baseline of data with times is added later, unless it has settings of its own.
    floor = (
        [TIMED_BASELINE] if any(_model_of(one) == TIMED_BASELINE for one in settings or ()) else []
    )
    names = list(dict.fromkeys((*TRIVIAL_BASELINES, *floor, *asked, *stored)))
    given = _params_of(names, settings)
    return candidates_of({name: (name, stored.get(name, {}) | own) for name, own in given}, budget)


def _model_of(setting: str) -> str:
    """Return the model that `MODEL.NAME=VALUE` is about; nothing where there is no point."""
    from transcf.models.registry import canonical_name

    model, point, _ = setting.partition(".")
    return canonical_name(model) if point else ""


def _params_of(
    names: Sequence[str], settings: list[str] | None
) -> list[tuple[str, dict[str, Any]]]:
    """Return the models with their values of `MODEL.NAME=VALUE`, old names replaced."""
    dealt: dict[str, list[str]] = {name: [] for name in names}
    for setting in settings or ():
        model = _model_of(setting)
        if model not in dealt:
            raise ParameterError(
                f"--set {setting} names none of the models: write MODEL.NAME=VALUE, with one of "
                f"{', '.join(names)}."
            )
        dealt[model].append(setting.partition(".")[2])
    return [read_values(name, own) for name, own in dealt.items()]
