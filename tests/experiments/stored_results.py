"""Results as a study keeps them, small and made up, with all that a report can show."""

from __future__ import annotations

from dataclasses import fields
from itertools import combinations
from typing import Any

import polars as pl

from transcf.experiments.results import CandidateResult, Comparison, Results, RunResult
from transcf.experiments.run import EvalConfig

_METRICS = ("HitRate@10", "NDCG@10")


def _model(name: str, kind: str, mean: float, **more: Any) -> dict[str, Any]:
    figures = {metric: {"mean": mean, "se": 0.01, "sd": 0.002} for metric in _METRICS}
    return {
        "model": name, "class": kind, "parameters": {"dim": 4}, "chosen": {}, "tried": 1,
        "validation": mean + 0.01, "subset": "test", "runs": 2, "users": 90, "metrics": figures,
        "seconds": 1.5, "notes": [], "full_ranking": {"NDCG@10": {"mean": 0.01, "se": 0.001}},
    } | more  # fmt: skip


_GRID = [
    {"parameters": {"reg_a": a, "reg_b": b}, "validation": 0.3 + a - b}
    for a in (0.0, 0.1)
    for b in (0.0, 0.1)
]
_CURVE = [
    {"epoch": epoch, "loss": 1.0, "metric": None if epoch == 2 else 0.2 + 0.01 * epoch}
    for epoch in range(1, 6)
]
MODELS = [
    _model("popularity", "Popularity", 0.05, runs=1),
    _model("inverse-popularity", "InversePopularity", 0.2, runs=1),
    _model("bpr", "BPR", 0.19, curve=_CURVE, spent_seconds=90.0),
    _model("cml", "CML", 0.28),
    _model("transcf", "TransCF", 0.3, tried=4, trials=_GRID, chosen={"reg_a": 0.1}, curve=_CURVE),
]
#: Only bpr and the trivial ones are told apart from the best.
_P = {"popularity": 1e-9, "inverse-popularity": 0.001, "bpr": 0.01, "cml": 0.4}


def _table(dataset: str, models: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "dataset": dataset,
        "protocol": "paper",
        "split": "the newest event",
        "metric": "NDCG@10",
        "models": models,
        "failures": {"neumf": "it did not train."},
        "tests": [
            {
                "model_a": a["model"], "model_b": b["model"],
                "difference": a["metrics"]["NDCG@10"]["mean"] - b["metrics"]["NDCG@10"]["mean"],
                "ci_low": -0.3, "ci_high": 0.1, "p_holm": _P[a["model"]],
            }
            for a, b in combinations(models, 2)
        ],
        "published": {
            "transcf": {"HitRate@10": 0.29, "NDCG@10": 0.31},
            "bpr": {"NDCG@10": 0.25},
            "neumf": {"NDCG@10": 0.1},
        },
    }  # fmt: skip


RESULTS: dict[str, Any] = {
    "format": 1,
    "study": "small",
    "title": "A small study",
    "command": "transcf study small",
    "version": "0.1.0",
    "metrics": list(_METRICS),
    "datasets": [_table("one", MODELS), _table("two", MODELS[2:])],
}


def results_of(content: dict[str, Any]) -> Results:
    """Return the results that have a JSON form."""
    tables = [_comparison(table) for table in content["datasets"]]
    return Results(
        content["study"], content["title"], content["metrics"], tables, content["command"]
    )


def _comparison(table: dict[str, Any]) -> Comparison:
    found = Comparison(
        table["dataset"],
        EvalConfig(table["protocol"]),
        table["metric"],
        [_candidate(model) for model in table["models"]],
        table["failures"],
        table["split"],
        {"published": table["published"]},
    )
    # The figures of users, which tests are made of, are not in the JSON form.
    vars(found)["tests"] = pl.DataFrame(table["tests"])
    return found


def _candidate(model: dict[str, Any]) -> CandidateResult:
    names = {"model": "name", "class": "kind", "bytes": "size", "spent_seconds": "spent"}
    values = {names.get(key, key): value for key, value in model.items()}
    values["trials"] = [
        RunResult(model["class"], trial["parameters"], validation=trial["validation"])
        for trial in model.get("trials", ())
    ]
    assert values.keys() <= {one.name for one in fields(CandidateResult)}
    return CandidateResult(**values)
