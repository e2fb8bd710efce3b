"""`transcf reproduce`: the tables of TransCF's paper, run again, with its figures beside ours."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from transcf.cli._options import INTERRUPTED, StorePath, Threads, open_store
from transcf.cli._output import JsonFlag, print_json, print_table
from transcf.cli._progress import show_steps
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
    table: Annotated[
        str, typer.Argument(help="performance, regularizers or ablations.", show_default=False)
    ],
    datasets: Annotated[
        str | None, typer.Option(help="Only these of its datasets, with commas between them.")
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
    jobs: Annotated[
        int, typer.Option(help="Processes that share the work, and the threads.", min=1)
    ] = 1,
    threads: Threads = None,
    store: StorePath = None,
    as_json: JsonFlag = False,
) -> None:
    """Run a table of TransCF's paper again, with the printed figures beside ours.

    Every fit is kept in the store of runs: a table that was ended in any way goes on where it was,
    and what is there is not run again.
    """
    from transcf.experiments.helpers import helped
    from transcf.experiments.reproduction import load_table
    from transcf.experiments.runner import run_study

    plan = load_table(
        table, budget, datasets=_listed(datasets), protocols=_listed(protocols), seeds=seeds
    )
    kept = open_store(store)
    total = sum(len(plan.under(by, data)) for data in plan.datasets for by in plan.by(data))
    with show_steps(total, "models") as steps, helped(plan, kept, jobs):
        found = list(run_study(plan, steps.report, steps.counted, kept))
    if not any(comparison.runs for comparison in found):
        raise next(iter(found[0].failures.values()))
    if as_json:
        tables = [_facts(plan, comparison) for comparison in found]
        print_json({"study": f"reproduce-{table}", "budget": budget, "datasets": tables})
    else:
        for comparison in found:
            _print(plan, comparison)
    if any(comparison.is_interrupted for comparison in found):
        raise typer.Exit(INTERRUPTED)


def _listed(names: str | None) -> list[str] | None:
    return None if names is None else [name.strip() for name in names.split(",")]


def _facts(plan: Study, comparison: Comparison) -> dict[str, Any]:
    """JSON form of a table, with what was printed, and what is said of its shape."""
    from transcf.experiments.reproduction import Shape

    shape = Shape.of(plan, comparison)
    beside = {
        "protocol": comparison.judging.protocol,
        "published": plan.published(comparison.dataset, comparison.judging.protocol),
    }
    return comparison.to_dict() | beside | ({} if shape is None else {"shape": str(shape)})


def _print(plan: Study, comparison: Comparison) -> None:
    from transcf.experiments.reproduction import Shape, table_beside

    table = table_beside(plan, comparison)
    print_table(table.title, table.columns, table.rows, notes=table.notes)
    if (shape := Shape.of(plan, comparison)) is not None:
        typer.echo(shape)
