"""`transcf study` and `transcf reproduce`: tables of several datasets, models and seeds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from transcf.cli import options, output
from transcf.errors import ParameterError, check_word
from transcf.interrupts import advise

if TYPE_CHECKING:
    from transcf.experiments.results import Comparison, Results
    from transcf.experiments.study import Study
    from transcf.tables import Table

_Datasets: TypeAlias = Annotated[
    str | None, typer.Option(help="Only these of its datasets, separated by commas.")
]
_Models: TypeAlias = Annotated[
    str | None, typer.Option(help="Only these of its models, by the names in its table.")
]
_OutFiles: TypeAlias = Annotated[
    list[Path] | None,
    typer.Option(
        "--out",
        metavar="PATH",
        help="Write results: FILE.json, a report FILE.html or FILE.md, or a folder for all three; "
        "repeatable.",
        show_default=False,
    ),
]


def study(
    context: typer.Context,
    name: options.Argument[str | None] = None,
    datasets: _Datasets = None,
    models: _Models = None,
    *,
    workers: options.Workers = None,
    out: _OutFiles = None,
    answer: output.Answer,
) -> None:
    """Run a study of several datasets, models and seeds.

    Settings are chosen on validation data. Without NAME, list the studies of the library and show
    the format of a TOML file. Runs are cached, so that the same command continues a study that was
    interrupted, and several processes (--workers) share the work; they need access to the folder of
    `transcf --store`.

    Options:
        name: Name of a study, or a TOML file.

    Example: transcf study my-study.toml --workers 2 --out report.html --out results.json
    """
    from transcf.experiments.study import available_studies, load_study, study_example

    if name is None:
        names, example = available_studies(), study_example()
        answer.show(
            {"studies": names, "format": example},
            f"Studies of the library: {', '.join(names)}.\n",
            f"A study of your own is a TOML file:\n\n{example.rstrip()}",
        )
        return
    plan = load_study(name).only(options.split_names(datasets), options.split_names(models))
    if not any(plan.under(protocol, data) for data, protocol in plan.tables()):
        raise ParameterError(
            f"{name} runs none of these models on these datasets: choose other ones, or leave out "
            "--models or --datasets."
        )
    _run(plan, name, options.command_line(context), workers, out or [], answer)


def reproduce(
    context: typer.Context,
    table: options.Argument[str],
    datasets: _Datasets = None,
    models: _Models = None,
    budget: str = "full",
    protocols: str | None = None,
    *,
    workers: options.Workers = None,
    out: _OutFiles = None,
    answer: output.Answer,
) -> None:
    """Compute the tables of the TransCF paper.

    The published values are compared with ours. Each table is a study (`transcf study
    reproduce-performance`): all models try the same number of settings with the same sampler on
    validation data. Runs are cached, so that the same command continues. The copies of Pinterest,
    Tradesy and Flixster differ from the paper's data, and are not compared with its values.
    `analysis` takes --datasets, --budget (of the forests) and --out FOLDER, where fitted
    models are kept, so that the same command continues. `all` takes --budget, --protocols and --out
    FOLDER, which gets a JSON file of each table and those of the analyses.

    Options:
        table: performance, regularizers, ablations, analysis of the translation vectors, or all of
            them.
        budget: preset (1 setting of each model, 2 seeds), quick (4 and 2), medium (12 and 5) or
            full (30 and 5).
        protocols: Protocols separated by commas, such as paper,leave-last-out; by default those of
            the study.

    Example: transcf reproduce performance --datasets delicious --budget quick
    """
    from transcf.paper.reproduction import TABLES, load_table, with_shape

    check_word("TABLE", table, (*TABLES, "analysis", "all"))
    folder, selected = (out[0] if out else None), options.split_names(datasets)
    if table == "all":
        if datasets or models or answer.as_json or folder is None or folder.suffix:
            raise ParameterError(
                "`reproduce all` takes no --datasets, --models and --json: name a folder for all "
                "results (--out FOLDER)."
            )
        output.check_folder(folder)
        folder.mkdir(parents=True, exist_ok=True)
        files = {name: [folder / f"reproduce-{name}.json"] for name in TABLES}
    else:
        files = {} if table == "analysis" else {table: out or []}
    command = options.command_line(context)
    for name, paths in files.items():
        only = {"models": options.split_names(models), "protocols": options.split_names(protocols)}
        plan = load_table(name, budget, datasets=selected, **only)
        shape = partial(with_shape, plan)
        _run(plan, f"reproduce-{name}", command, workers, paths, answer, shape, budget=budget)
    if table in ("all", "analysis"):
        _reproduce_analysis(selected, budget, folder, answer)


def _run(
    plan: Study,
    name: str,
    command: str,
    workers: str | None,
    out: list[Path],
    answer: output.Answer,
    completed: Callable[[Comparison], Comparison] = lambda table: table,
    **more: str,
) -> None:
    """Run a study, print its tables and write them; `completed` adds facts to a table.

    Files of JSON are written after each model. Raises the first error if no model could be fitted.
    """
    from transcf.experiments.results import Results
    from transcf.experiments.study import run_study
    from transcf.experiments.workers import shared_work

    output.check_outputs(out)
    store = options.open_store()
    if store is not None:
        advise("the same command continues")
    for data, protocol, fits, minutes in plan.expected():
        about = "" if minutes is None else f", about {minutes:,.0f} minutes of processor time"
        output.note(
            f"{data} ({protocol}): at most {fits:,} fits{about}; stored runs are not repeated."
        )
    total = sum(len(plan.under(protocol, data)) for data, protocol in plan.tables())
    jobs, cluster = options.jobs_and_cluster(workers)
    sharing = shared_work(partial(run_study, plan, store=store), store, jobs, cluster)

    def results(tables: list[Comparison]) -> Results:
        return Results(name, plan.title, plan.metrics, tables, command, more)

    def keep(model: str, tables: list[Comparison]) -> None:
        steps.finish(model)
        for path in (one for one in out if one.suffix == ".json"):
            results(tables).write(path)

    with output.Steps(total, "models") as steps, sharing:
        found = run_study(plan, steps.report, store, keep)
    if not any(comparison.runs for comparison in found):
        raise next(iter(found[0].failures.values()))
    done = results([completed(comparison) for comparison in found])
    answer.show(done.to_dict(), *_tables_of(plan, done))
    output.write_outputs(done, out, Path(name).stem)
    if any(comparison.is_interrupted for comparison in found):
        output.end_interrupted(": the same command goes on.")


def _tables_of(plan: Study, results: Results) -> Iterator[Table]:
    """Yield a table for each dataset and protocol, paired tests, and published values."""
    from transcf.experiments.report import metrics_table, published_table

    for comparison in results.tables:
        table = metrics_table(comparison, plan.metrics)
        yield replace(table, title=f"{plan.title}: {table.title}")
        if plan.paired_tests and len(comparison.tests):
            tests = comparison.tests
            title = f"Paired tests of {plan.paired_tests}"
            yield output.values_table(title, tests.columns, tests.rows())
        if "shape" in comparison.about:
            title = f"Shape of the sweep on {comparison.dataset}"
            yield output.facts_table(title, comparison.about["shape"])
    if (published := published_table(results)) is not None:
        yield published


def _reproduce_analysis(
    datasets: list[str] | None, budget: str, out: Path | None, answer: output.Answer
) -> None:
    from transcf.paper.reproduction import PLANS, reproduce

    names = list(PLANS) if datasets is None else datasets
    for name in names:
        check_word("datasets", name, PLANS)
    output.check_folder(out)
    if out is not None:
        advise("the same command continues")
    kept = None if out is None else out / "models"
    found = []
    with output.Steps(len(names), "datasets") as steps:
        for name in steps.counted(names):
            done = reproduce(name, budget, models=kept, on_progress=steps.report)
            found.append(done)
            if out is not None:
                done.write(out)
    tables = [
        table for each in found for table in (each.table, *(one.table for one in each.analyses))
    ]
    answer.show({"datasets": [each.to_dict() for each in found]}, *tables)
