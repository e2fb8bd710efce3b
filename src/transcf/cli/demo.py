"""`transcf demo`: made-up data, a table of models, recommendations and why they are made."""

from __future__ import annotations

import time

import typer

from transcf.cli._output import JsonFlag, print_json
from transcf.cli.compare import print_comparison
from transcf.cli.recommend import print_lists

#: Models that are shown; the last one serves the recommendations.
_SHOWN = ("popularity", "inverse-popularity", "random", "itemknn", "ease", "transcf-mixture")
_METRIC = "NDCG@10"
#: What real logs have: items that come out and fade, events that follow the one before.
_DRIFT, _SEQUENCES = 4.0, 0.5


def demo(as_json: JsonFlag = False) -> None:
    """Make up data, compare models on it, recommend, explain, and welcome somebody new."""
    from transcf.data.splitters import split_log
    from transcf.data.synthetic import synthesize
    from transcf.evaluation import Validation
    from transcf.experiments.comparison import compare_models
    from transcf.experiments.experiment import Candidate, Experiment
    from transcf.experiments.run import EvalConfig

    started = time.perf_counter()
    log = synthesize(drift=_DRIFT, sequences=_SEQUENCES, seed=0)
    split = split_log(log)
    candidates = [Candidate(name, name) for name in _SHOWN]
    found = compare_models("made-up data", candidates, Experiment(split, EvalConfig()), _METRIC)
    user = split.train.users.series[0]
    served = candidates[-1].make(0).fit(split.train, Validation.of(split)).refit(split.before_test)
    table = served.recommend(user, k=5)
    explanation = served.explain(user, table["item_id"][0], top=3)
    history = split.train.items.ids(split.train.by_user.row(1)).to_list()[:5]
    folded = served.recommend_for(history, k=5)
    if as_json:
        print_json(
            {
                "models": [done.to_dict() for done in found.runs],
                "recommendations": table.to_dicts(),
                "explanation": explanation.to_dict(),
                "history": history,
                "folded_in": folded.to_dicts(),
                "seconds": round(time.perf_counter() - started, 3),
            }
        )
        return
    typer.echo(f"Made up a log: {log!r}\n")
    print_comparison(found)
    typer.echo()
    print_lists(f"{served.name} recommends to {user}", [table])
    typer.echo(f"\nWhy?\n{explanation}\n")
    listed = ", ".join(map(str, history))
    print_lists(f"{served.name} recommends to somebody new who has {listed}", [folded])
    typer.echo(f"Done in {time.perf_counter() - started:.1f} s.")
