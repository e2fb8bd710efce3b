"""`transcf reproduce`: what TransCF's paper prints, run again, with its figures beside ours."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from transcf.cli._options import (
    ClusterAddress,
    ReportFile,
    ResultsFile,
    StorePath,
    Threads,
    check_files,
    command_line,
    open_store,
)
from transcf.cli._output import JsonFlag, print_facts, print_json, print_table, write_results
from transcf.cli._progress import show_steps
from transcf.cli._sharing import Jobs, RunWorkers, parse_sharing
from transcf.cli.analyze import print_analyses
from transcf.errors import ParameterError
from transcf.interrupts import INTERRUPTED
from transcf.legend import ERROR, help_text

if TYPE_CHECKING:
    from transcf.experiments.comparison import Comparison
    from transcf.experiments.study import Study

#: Below the options in `--help`.
EPILOG = "\n\n".join(
    [
        "Each table is a study (`transcf study reproduce-performance` runs it as it is), with as "
        "many settings tried for every model by the same sampler on validation data, never on "
        "test. Budgets: quick tries 4 settings and runs 2 seeds, full 20 and 5.",
        "Pinterest, Tradesy and Flixster are there as copies that differ from the paper's data, "
        "and never stand beside its figures.",
        help_text(ERROR),
    ]
)


def reproduce(
    context: typer.Context,
    table: Annotated[
        str,
        typer.Argument(
            help="performance, regularizers, ablations, or analysis: what translations encode.",
            show_default=False,
        ),
    ],
    datasets: Annotated[
        str | None, typer.Option(help="Only these of its datasets, with commas between them.")
    ] = None,
    models: Annotated[
        str | None, typer.Option(help="Only these of its models, by the names in its table.")
    ] = None,
    budget: Annotated[str, typer.Option(help="quick or full.")] = "full",
    protocols: Annotated[
        str | None,
        typer.Option(
            help="By which protocols, with commas between them, such as "
            "paper,strict,paper-as-published; those of the study unless given."
        ),
    ] = None,
    seeds: Annotated[
        int | None, typer.Option(help="Runs of every model; as many as the budget says.", min=1)
    ] = None,
    jobs: Jobs = 1,
    workers: RunWorkers = None,
    cluster: ClusterAddress = None,
    threads: Threads = None,
    store: StorePath = None,
    report: ReportFile = None,
    results: ResultsFile = None,
    pairs: Annotated[
        int, typer.Option(min=10, help="Most pairs that random forests look at (analysis).")
    ] = 2000,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Write JSON and figures here (analysis)."),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of models and draws (analysis).")] = 0,
    as_json: JsonFlag = False,
) -> None:
    """Run what TransCF's paper prints again, with the printed figures beside ours.

    Every fit of a table is kept in the store of runs: a table that was ended in any way goes on
    where it was, and what is there is not run again. With --workers, processes of a Ray cluster
    help; the store has to be a folder that all of them reach. `analysis` has options of its own.
    """
    if table == "analysis":
        _reproduce_analysis(_listed(datasets), pairs=pairs, out=out, seed=seed, as_json=as_json)
        return
    from transcf.experiments.results import Results
    from transcf.experiments.study import run_study, study_workers
    from transcf.paper.reproduction import load_table

    check_files(report, results)
    plan = load_table(
        table,
        budget,
        datasets=_listed(datasets),
        models=_listed(models),
        protocols=_listed(protocols),
        seeds=seeds,
    )
    kept = open_store(store)
    sharing = study_workers(plan, kept, jobs, parse_sharing(jobs, workers, cluster))
    total = sum(len(plan.under(protocol, data)) for data, protocol in plan.tables())
    with show_steps(total, "models") as steps, sharing:
        found = list(run_study(plan, steps.report, steps.counted, kept))
    if not any(comparison.runs for comparison in found):
        raise next(iter(found[0].failures.values()))
    beside = ("report", "results", "store", "jobs", "workers", "cluster", "threads", "as_json")
    tables = [_facts(plan, comparison) for comparison in found]
    command = command_line(context, leave_out=beside)
    outcome = Results.of(
        f"reproduce-{table}", plan.title, plan.metrics, tables, command, budget=budget
    )
    if as_json:
        print_json(outcome.content)
    else:
        for comparison in found:
            _print(plan, comparison)
    write_results(outcome, report, results)
    if any(comparison.is_interrupted for comparison in found):
        typer.echo("transcf: interrupted: the same command goes on.", err=True)
        raise typer.Exit(INTERRUPTED)


def _listed(names: str | None) -> list[str] | None:
    return None if names is None else [name.strip() for name in names.split(",")]


def _facts(plan: Study, comparison: Comparison) -> dict[str, Any]:
    """Return the JSON form of a table, with printed figures and the shape of a sweep."""
    from transcf.experiments.results import facts_of
    from transcf.paper.reproduction import compare_shape

    shape = compare_shape(plan, comparison)
    return facts_of(comparison, plan) | ({} if shape is None else {"shape": shape})


def _print(plan: Study, comparison: Comparison) -> None:
    from transcf.paper.reproduction import compare_shape, table_beside

    table = table_beside(plan, comparison)
    print_table(table.title, table.columns, table.rows, notes=table.notes)
    if (shape := compare_shape(plan, comparison)) is not None:
        print_facts(f"Shape of the sweep on {comparison.dataset}", shape)


def _reproduce_analysis(
    datasets: list[str] | None, *, pairs: int, out: Path | None, seed: int, as_json: bool
) -> None:
    """Run the analyses of some datasets, or of all, and the example in two dimensions."""
    from transcf.paper.reproduction import PLANS, check_datasets, reproduce
    from transcf.paper.tastes import toy

    names = check_datasets(PLANS if datasets is None else datasets)
    if out is not None and out.exists() and not out.is_dir():
        raise ParameterError(f"--out {out} is a file: name a folder.")
    found = []
    with show_steps(len(names), "datasets") as steps:
        for name in steps.counted(names):
            done = reproduce(name, number=pairs, random_state=seed, on_progress=steps.report)
            found.append(done)
            if out is not None:
                done.write(out)
    picture = toy(random_state=seed)
    if out is not None:
        picture.write(out)
    if as_json:
        datasets_found = [each.to_dict() for each in found]
        print_json({"datasets": datasets_found, "toy": picture.to_dict()})
        return
    for each in found:
        print_analyses(each.analyses, {})
        if len(beside := each.beside()):
            rows = [(*row[:2], *map(_rounded, row[2:])) for row in beside.iter_rows()]
            print_table(f"{each.dataset}: beside the paper, in per cent", beside.columns, rows)
    print_analyses([picture], {})


def _rounded(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
