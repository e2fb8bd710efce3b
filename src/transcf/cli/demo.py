"""`transcf demo`: made-up data, a table of models, recommendations and why they are made."""

from __future__ import annotations

import time

import typer

from transcf.cli._output import JsonFlag, print_json
from transcf.cli._runs import Judging, run
from transcf.cli.compare import paired_tests, print_runs
from transcf.cli.recommend import show

#: Models that are shown; the last one serves the recommendations.
_SHOWN = ("popularity", "inverse-popularity", "random", "itemknn", "ease", "transcf")
_METRIC = "N@10"


def demo(as_json: JsonFlag = False) -> None:
    """Make up data, compare models on it, recommend, explain, and welcome somebody new."""
    from transcf.data.splits import leave_one_out
    from transcf.data.synthetic import synthesize
    from transcf.models.transcf import TransCF

    started = time.perf_counter()
    log = synthesize(seed=0)
    split = leave_one_out(log, "time")
    judging = Judging.read("strict", "pessimistic", "test", "10,20")
    runs = [run(name, {}, split, judging, [0]) for name in _SHOWN]
    user = split.train.users.series[0]
    served = runs[-1].model
    assert isinstance(served, TransCF), "the last of those shown"
    table = served.recommend(user, k=5)
    explanation = served.explain(user, table["item_id"][0], top=3)
    history = split.train.items.ids(split.train.by_user.row(1)).to_list()[:5]
    folded = served.recommend_for(history, k=5)
    if as_json:
        print_json(
            {
                "models": [done.to_dict() for done in runs],
                "recommendations": table.to_dicts(),
                "explanation": explanation.to_dict(),
                "history": history,
                "folded_in": folded.to_dicts(),
                "seconds": round(time.perf_counter() - started, 3),
            }
        )
        return
    typer.echo(f"Made up a log: {log!r}\n")
    title = "Full ranking, newest event of each user held out"
    print_runs(title, runs, _METRIC, paired_tests(runs, _METRIC))
    typer.echo()
    show(f"{served.name} recommends to {user}", table, as_json=False)
    typer.echo(f"\nWhy?\n{explanation}\n")
    listed = ", ".join(map(str, history))
    show(f"{served.name} recommends to somebody new who has {listed}", folded, as_json=False)
    typer.echo(f"Done in {time.perf_counter() - started:.1f} s.")
