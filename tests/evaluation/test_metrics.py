"""Metrics against plain Python, one user at a time."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from transcf.errors import ParameterError
from transcf.evaluation.metrics import Ranks, compute


def plain(name: str, ranks: list[float], n: int) -> float:
    within = [r for r in ranks if r < n + 1]
    if name == "HitRate":
        return float(bool(within))
    if name == "Recall":
        return len(within) / len(ranks)
    if name == "Precision":
        return len(within) / n
    if name == "MRR":
        return 1 / within[0] if within else 0.0
    if name == "NDCG":
        ideal = sum(1 / math.log2(place + 1) for place in range(1, min(n, len(ranks)) + 1))
        return sum(1 / math.log2(r + 1) for r in within) / ideal
    precisions = [(place + 1) / r for place, r in enumerate(ranks) if r < n + 1]
    return sum(precisions) / min(n, len(ranks))


user_ranks = st.lists(
    st.lists(st.integers(2, 120), min_size=1, max_size=6, unique=True), min_size=1, max_size=8
)


@given(
    user_ranks,
    st.integers(1, 30),
    st.sampled_from(["HitRate", "NDCG", "MRR", "Recall", "Precision", "MAP"]),
)
def test_metrics_equal_plain_python(half_ranks, n, name) -> None:
    # Halves of distinct integers: ranks as realistic ties give them.
    users = [sorted(rank / 2 for rank in ranks) for ranks in half_ranks]
    indptr = np.concatenate([[0], np.cumsum([len(ranks) for ranks in users])])
    ranks = Ranks(np.arange(len(users), dtype=np.int32), indptr, np.concatenate(users))
    expected = [plain(name, list(one), n) for one in users]
    np.testing.assert_allclose(compute(ranks, f"{name}@{n}"), expected)


@pytest.mark.parametrize("name", ["X@10", "NDCG@0", "N10", "N@-1", "@10"])
def test_unknown_metrics_are_refused(name: str) -> None:
    ranks = Ranks(np.array([0], np.int32), np.array([0, 1]), np.array([1.0]))
    with pytest.raises(ParameterError, match="There is no metric"):
        compute(ranks, name)
