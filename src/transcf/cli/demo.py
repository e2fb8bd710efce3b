"""`transcf demo`: made-up data, a table of models, and recommendations for one user."""

from __future__ import annotations

import time

import typer

from transcf.cli._output import JsonFlag, print_json, print_table
from transcf.cli._runs import Judging, run
from transcf.cli.compare import paired_tests, print_runs

#: Models that are shown, where they are registered.
_SHOWN = ("popularity", "inverse-popularity", "random", "itemknn", "ease", "transcf")
_METRIC = "N@10"


def demo(as_json: JsonFlag = False) -> None:
    """Make up data, compare models on it, and recommend something to somebody."""
    from transcf.data.splits import leave_one_out
    from transcf.data.synthetic import synthesize
    from transcf.models.registry import available

    started = time.perf_counter()
    log = synthesize(seed=0)
    split = leave_one_out(log, "time")
    judging = Judging.read("strict", "pessimistic", "test", "10,20")
    names = [name for name in _SHOWN if name in available()]
    runs = [run(name, {}, split, judging, [0]) for name in names]
    best = max(runs, key=lambda done: done.averaged().metrics[_METRIC].mean)
    user = split.train.users.series[0]
    table = best.model.recommend(user, k=5)
    if as_json:
        print_json(
            {
                "models": [done.to_dict() for done in runs],
                "recommendations": table.to_dicts(),
                "seconds": round(time.perf_counter() - started, 3),
            }
        )
        return
    typer.echo(f"Made up a log: {log!r}\n")
    title = "Full ranking, newest event of each user held out"
    print_runs(title, runs, _METRIC, paired_tests(runs, _METRIC))
    rows = [(row["rank"], row["item_id"], f"{row['score']:.4f}") for row in table.to_dicts()]
    typer.echo()
    print_table(f"{best.name} recommends to {user}", ("rank", "item_id", "score"), rows)
    typer.echo(f"Done in {time.perf_counter() - started:.1f} s.")
