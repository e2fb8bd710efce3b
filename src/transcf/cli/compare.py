"""`transcf compare`: several models on one split, in one table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from transcf.cli._options import (
    Columns,
    Data,
    Lengths,
    Part,
    Protocol,
    Ratings,
    Seed,
    Seeds,
    Threads,
    Ties,
    limit_threads,
    read_params,
    read_reading,
)
from transcf.cli._output import JsonFlag, print_json, print_table
from transcf.cli._runs import Judging, Run, run
from transcf.errors import ParameterError

if TYPE_CHECKING:
    import polars as pl

#: Always in the table: what a figure is worth shows only beside these.
_FLOOR = ("popularity", "inverse-popularity", "random")
#: Below this, a difference is called one.
_LEVEL = 0.05


def compare(
    data: Data,
    models: Annotated[
        str, typer.Option(help="Names with commas between them, or 'all'; the floor joins them.")
    ] = "itemknn,ease",
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="MODEL.NAME=VALUE", help="A parameter of one model; repeatable."
        ),
    ] = None,
    protocol: Protocol = "strict",
    ties: Ties = "pessimistic",
    part: Part = "test",
    at: Lengths = "10,20",
    metric: Annotated[str, typer.Option(help="What the paired test looks at.")] = "N@10",
    columns: Columns = None,
    ratings: Ratings = None,
    seeds: Seeds = 1,
    seed: Seed = 0,
    threads: Threads = None,
    as_json: JsonFlag = False,
) -> None:
    """Fit and judge several models on the same split, and test their differences."""
    from transcf.data.sources import open_split

    limit_threads(threads)
    names = _names(models)
    params = _params_of(names, settings)
    judging = Judging.read(protocol, ties, part, at)
    _check_metric(metric, judging)
    split = open_split(data, protocol, seed=seed, **read_reading(columns, ratings))
    numbers = range(seed, seed + seeds)
    runs = [run(name, params[name], split, judging, numbers, threads) for name in names]
    tests = paired_tests(runs, metric)
    if as_json:
        print_json(
            {
                "dataset": data,
                "metric": metric,
                "models": [done.to_dict() for done in runs],
                "tests": tests.to_dicts(),
            }
        )
        return
    first = runs[0].evaluations[0]
    title = f"{data}: {protocol} protocol, {part}, {first.users:,} users, {ties} ties"
    print_runs(title, runs, metric, tests)


def _names(models: str) -> list[str]:
    from transcf.models.registry import available

    asked = available() if models == "all" else map(_registered_name, models.split(","))
    return list(dict.fromkeys((*_FLOOR, *asked)))


def _registered_name(name: str) -> str:
    """Return the name that a model is registered by, whatever capitals it was asked for with."""
    from transcf.models.registry import available, create

    asked = repr(create(name))
    return next(known for known in available() if repr(create(known)) == asked)


def _check_metric(metric: str, judging: Judging) -> None:
    from transcf.evaluation.metrics import metric_names

    judged = metric_names(judging.at)
    if metric not in judged:
        raise ParameterError(
            f"--metric {metric} is not among what is judged ({', '.join(judged)}): choose one of "
            "them, or other lengths with --at."
        )


def _params_of(names: Sequence[str], settings: list[str] | None) -> dict[str, dict[str, Any]]:
    """Deal out `MODEL.NAME=VALUE` to the models."""
    dealt: dict[str, list[str]] = {name: [] for name in names}
    for setting in settings or ():
        model, dot, rest = setting.partition(".")
        model = _registered_name(model) if dot else model
        if not dot or model not in dealt:
            raise ParameterError(
                f"--set {setting} names none of the models: write MODEL.NAME=VALUE, with one of "
                f"{', '.join(names)}."
            )
        dealt[model].append(rest)
    return {name: read_params(name, own) for name, own in dealt.items()}


def paired_tests(runs: Sequence[Run], metric: str) -> pl.DataFrame:
    """Test all pairs of models on the figures of single users, averaged over seeds."""
    from transcf.evaluation import compare as test_pairs

    return test_pairs([done.averaged() for done in runs], metric)


def print_runs(title: str, runs: Sequence[Run], metric: str, tests: pl.DataFrame) -> None:
    """Print one line per model: metrics with standard errors, the best marked, and the test."""
    summaries = {done.name: done.summary() for done in runs}
    shown = [name for name in summaries[runs[0].name] if name.startswith(("H@", "N@"))]
    shown += [] if metric in shown else [metric]
    best = {
        name: max((found[name]["mean"], model) for model, found in summaries.items())[1]
        for name in shown
    }
    p_values = _against(best[metric], tests)
    rows = []
    for done in runs:
        cells = []
        for name in shown:
            entry = summaries[done.name][name]
            cells.append(_cell(entry["mean"], entry["se"], "*" if best[name] == done.name else " "))
        if done.full is not None:
            full = done.full.metrics[metric]
            cells.append(_cell(full.mean, full.se))
        rows.append((done.name, *cells, p_values.get(done.name), f"{done.seconds:.1f}"))
    beside = [f"{metric} in full ranking"] if runs[0].full is not None else []
    columns = ("model", *shown, *beside, f"p ({metric})", "seconds")
    print_table(title, columns, rows, notes=_notes(runs, metric, best[metric], p_values))


def _cell(mean: float, error: float, mark: str = " ") -> str:
    return f"{mean:.4f}{mark} ± {error:.4f}"


def _notes(runs: Sequence[Run], metric: str, best: str, p_values: dict[str, float]) -> list[str]:
    tied = [name for name, p in p_values.items() if p >= _LEVEL]
    legend = (
        f"* best; ± standard error over users; p: {metric} against {best}, Wilcoxon signed-rank "
        "with Holm's correction."
    )
    if tied:
        legend += f" Not told apart from the best at {_LEVEL}: {', '.join(tied)}."
    warnings = dict.fromkeys(note for done in runs for note in done.notes())
    return [legend, *warnings]


def _against(winner: str, tests: pl.DataFrame) -> dict[str, float]:
    """Corrected p-value of each other model's difference from the best one."""
    found = {}
    for row in tests.iter_rows(named=True):
        if winner in (row["model_a"], row["model_b"]):
            other = row["model_b"] if row["model_a"] == winner else row["model_a"]
            found[other] = float(row["p_holm"])
    return found
