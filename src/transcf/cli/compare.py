"""`transcf compare`: several models on one split, in one table, and in files as a page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from transcf.cli._options import (
    INTERRUPTED,
    Beyond,
    Categories,
    Columns,
    Data,
    Encoding,
    Lengths,
    Links,
    MinRating,
    NoHeader,
    NoStore,
    Part,
    Protocol,
    Ratings,
    ReportFile,
    Seed,
    Seeds,
    Separator,
    StorePath,
    Threads,
    Ties,
    check_report,
    command_line,
    open_store_unless,
    parse_reading,
    read_judging,
    read_params,
)
from transcf.cli._output import JsonFlag, print_json, print_table, say_left_out, say_written
from transcf.cli._progress import show_steps
from transcf.errors import ParameterError

if TYPE_CHECKING:
    from transcf.experiments.comparison import Comparison
    from transcf.experiments.contenders import Contender

#: Options that do not change what comes of a comparison.
_BESIDE = ("report", "files", "out", "store", "no_store", "as_json", "threads")


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
    budget: Annotated[
        str,
        typer.Option(
            help="Settings of each model to try on validation data: none (the defaults), small "
            "(3), medium (10) or large (40)."
        ),
    ] = "none",
    protocol: Protocol = None,
    ties: Ties = "pessimistic",
    part: Part = "test",
    at: Lengths = "10,20",
    metric: Annotated[
        str | None,
        typer.Option(help="What the paired test looks at; N@10, or N at the first of other --at."),
    ] = None,
    beyond: Beyond = False,
    columns: Columns = None,
    ratings: Ratings = None,
    min_rating: MinRating = None,
    no_header: NoHeader = False,
    separator: Separator = None,
    encoding: Encoding = None,
    links: Links = None,
    categories: Categories = None,
    seeds: Seeds = 1,
    seed: Seed = 0,
    threads: Threads = None,
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
    """Fit and judge several models on the same split, and test their differences.

    Ends with exit code 1 if one of them could not be fitted.
    """
    from transcf.data.report import listed
    from transcf.data.sources import open_split
    from transcf.experiments.comparison import compare_models, suited_to
    from transcf.experiments.course import Course
    from transcf.experiments.report import results_of, write_report
    from transcf.experiments.reports import write_page

    check_report(report)
    judging = read_judging(protocol, ties, part, at, beyond)
    metric = judging.usual_metric if metric is None else metric
    judging.check_metric(metric)
    contenders = _contenders(models, settings, budget)
    if files and out.exists() and not out.is_dir():
        raise ParameterError(f"--out {out} is not a folder: name another one, or use --no-files.")
    reading = parse_reading(
        columns, ratings, min_rating, no_header, separator, encoding, links, categories
    )
    split = open_split(data, protocol, seed=seed, **reading)
    say_left_out(split.train.report)
    contenders = suited_to(split, contenders, budget)
    numbers = range(seed, seed + seeds)
    kept = open_store_unless(no_store, store)
    with show_steps(len(contenders), "models") as steps:
        course = Course(split, judging, numbers, steps.report, store=kept, dataset=data)
        found = compare_models(data, contenders, course, metric, steps.counted)
    if as_json:
        print_json(found.to_dict())
    else:
        print_comparison(found)
    command = command_line(context, leave_out=_BESIDE)
    if files:
        say_written(*write_report(found, out, command))
    if report is not None:
        say_written(*write_page(results_of(found, command), report))
    if found.is_interrupted:
        raise typer.Exit(INTERRUPTED)
    if found.failures:
        missing = listed(list(found.failures))
        typer.echo(f"transcf: {missing} could not be fitted: the notes say why.", err=True)
        raise typer.Exit(1)


def print_comparison(comparison: Comparison) -> None:
    """Print one line per model: metrics with standard errors, the best marked, and the test."""
    from transcf.experiments.report import table_of

    table = table_of(comparison)
    print_table(table.title, table.columns, table.rows, notes=table.notes)


def _contenders(models: str, settings: list[str] | None, budget: str) -> list[Contender]:
    from transcf.experiments.comparison import TRIVIAL_BASELINES, contenders_of
    from transcf.experiments.runs import TIMED_BASELINE
    from transcf.models.registry import canonical_name, distinct

    asked = distinct() if models == "all" else map(canonical_name, models.split(","))
    # The floor of timed data joins by itself later on, unless somebody has settings for it.
    floor = (
        [TIMED_BASELINE] if any(_model_of(one) == TIMED_BASELINE for one in settings or ()) else []
    )
    names = list(dict.fromkeys((*TRIVIAL_BASELINES, *floor, *asked)))
    return contenders_of(_params_of(names, settings).items(), budget)


def _model_of(setting: str) -> str:
    """Return the model that `MODEL.NAME=VALUE` is about; nothing where there is no point."""
    from transcf.models.registry import canonical_name

    model, point, _ = setting.partition(".")
    return canonical_name(model) if point else ""


def _params_of(names: Sequence[str], settings: list[str] | None) -> dict[str, dict[str, Any]]:
    """Deal out `MODEL.NAME=VALUE` to the models."""
    dealt: dict[str, list[str]] = {name: [] for name in names}
    for setting in settings or ():
        model = _model_of(setting)
        if model not in dealt:
            raise ParameterError(
                f"--set {setting} names none of the models: write MODEL.NAME=VALUE, with one of "
                f"{', '.join(names)}."
            )
        dealt[model].append(setting.partition(".")[2])
    return {name: read_params(name, own) for name, own in dealt.items()}
