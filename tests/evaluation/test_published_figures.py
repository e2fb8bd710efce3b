"""Figures that an independent computation gave for the authors' Delicious split."""

from __future__ import annotations

import pytest

from transcf.data.datasets.parsers import read_prepared_split
from transcf.evaluation import evaluate
from transcf.models.registry import create

CASES = [
    ("popularity", {}, "pessimistic", [0.0422, 0.0739, 0.0204, 0.0286]),
    ("inverse-popularity", {}, "pessimistic", [0.1755, 0.3773, 0.0568, 0.1070]),
    ("inverse-popularity", {}, "realistic", [0.2612, 0.4789, 0.1015, 0.1564]),
    ("ease", {"regularization": 300.0}, "pessimistic", [0.2005, 0.3021, 0.1089, 0.1344]),
]


@pytest.mark.parametrize(("name", "params", "ties", "figures"), CASES)
def test_delicious_by_the_paper_protocol(real_data, name, params, ties, figures) -> None:
    split = read_prepared_split(real_data("delicious"))
    found = evaluate(create(name, **params).fit(split.train), split, "paper", ties=ties)
    assert found.users == 758
    assert sum(found.skipped.values()) == 292
    metrics = [found.metrics[m].mean for m in ("HitRate@10", "HitRate@20", "NDCG@10", "NDCG@20")]
    assert [round(value, 4) for value in metrics] == figures
