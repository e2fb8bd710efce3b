"""`transcf study`: run a study that comes with the library, or one of your own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from transcf.cli._output import JsonFlag, print_json, print_table
from transcf.cli._progress import show_steps

if TYPE_CHECKING:
    from transcf.experiments import Row, Study


def study(
    name: Annotated[str, typer.Argument(help="Name of a study, or a TOML file.")],
    datasets: Annotated[
        str | None, typer.Option(help="Only these of its datasets, with commas between them.")
    ] = None,
    models: Annotated[
        str | None, typer.Option(help="Only these of its models, by the names in its table.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Run a study: settings chosen on validation data, then test, over several seeds."""
    from transcf.experiments import load_study, run_study
    from transcf.experiments.runner import paired_tests

    plan = load_study(name).only(_listed(datasets), _listed(models))
    with show_steps(len(plan.datasets) * len(plan.models)) as steps:
        rows = list(steps.counted(run_study(plan, say=steps.say)))
    tests = paired_tests(rows, plan.compare) if plan.compare else None
    if as_json:
        pairs = [] if tests is None else tests.to_dicts()
        print_json({"study": name, "rows": [row.to_dict() for row in rows], "tests": pairs})
        return
    _print_rows(plan, rows)
    if tests is not None and len(tests):
        print_table(f"Paired tests of {plan.compare}", tests.columns, tests.rows())


def _listed(names: str | None) -> list[str] | None:
    return None if names is None else [name.strip() for name in names.split(",")]


def _print_rows(plan: Study, rows: list[Row]) -> None:
    columns = [
        "dataset",
        "model",
        "users",
        "runs",
        "validation",
        *plan.metrics,
        *([] if plan.protocol == "strict" else [f"{plan.metrics[0]} in full ranking"]),
        "seconds",
        "chosen",
    ]
    lines: list[list[Any]] = []
    for row in rows:
        figures = [_figure(row.metrics[metric]) for metric in plan.metrics]
        chosen = ", ".join(f"{name}={value}" for name, value in row.chosen.items())
        about = [row.dataset, row.model, row.users, row.runs, f"{row.validation:.4f}"]
        full = [f"{value:.4f}" for value in list(row.full_ranking.values())[:1]]
        lines.append([*about, *figures, *full, row.seconds, chosen])
        if row.published:
            known = row.published
            printed = [f"{known[name]:.4f}" if name in known else None for name in plan.metrics]
            blank = [None] * (len(full) + 1)
            lines.append([row.dataset, "  as published", None, None, None, *printed, *blank, ""])
    note = (
        f"Figures of the {plan.part} part: mean over users and seeds, ± spread of the seeds "
        "(± standard error over users). validation: the metric that chose epochs and settings."
    )
    print_table(f"{plan.title} ({plan.protocol})", columns, lines, notes=[note])


def _figure(metric: dict[str, float]) -> str:
    return f"{metric['mean']:.4f} ± {metric['sd']:.4f} (± {metric['se']:.4f})"
