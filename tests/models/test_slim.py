"""SLIM against scikit-learn's elastic net, and against the conditions that a minimum meets."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from transcf.data.interactions import Interactions
from transcf.kernels.elastic import elastic_weights
from transcf.models import slim
from transcf.models.slim import SLIM
from transcf.models.training import FitOptions

PENALTIES = [(0.5, 1.0), (2.0, 5.0), (0.1, 3.0), (1.0, 0.0)]


def solve(X: np.ndarray, l1: float, l2: float) -> np.ndarray:
    """Weights of the kernel at a tolerance where only rounding is left, (n_items, n_items)."""
    by_user, by_item = sp.csr_array(X), sp.csr_array(X.T)
    rows = [
        (matrix.indptr.astype(np.int64), matrix.indices.astype(np.int32))
        for matrix in (by_item, by_user)
    ]
    out, done = np.empty((X.shape[1], X.shape[1])), np.zeros(X.shape[1], np.bool_)
    even = np.empty(0)
    elastic_weights(0, X.shape[1], *rows, even, l1, l2, 1e-12, 100_000, out, done)
    assert done.all()
    return out.T


@pytest.mark.parametrize(("l1", "l2"), PENALTIES)
def test_columns_equal_scikit_learn(random_log: Interactions, l1: float, l2: float) -> None:
    linear_model = pytest.importorskip("sklearn.linear_model")
    X = random_log.by_user.to_scipy(np.float64).toarray()
    n_users, n_items = X.shape
    model = SLIM(l1=l1, l2=l2).fit(random_log)
    assert model.report_["unsolved"] == 0
    # Their objective is ours divided by the number of users.
    net = linear_model.ElasticNet(
        alpha=(l1 + l2) / n_users, l1_ratio=l1 / (l1 + l2), positive=True, fit_intercept=False,
        tol=1e-10, max_iter=10_000,
    )  # fmt: skip
    for target in range(0, n_items, 7):
        others = X.copy()
        others[:, target] = 0.0
        expected = net.fit(others, X[:, target]).coef_
        learned = model.weights_[:, [target]].toarray().ravel()
        np.testing.assert_allclose(learned, expected, atol=2e-3)


@given(
    X=hnp.arrays(np.bool_, st.tuples(st.integers(1, 9), st.integers(1, 7))),
    l1=st.sampled_from([0.0, 0.3, 1.0, 2.5]),
    l2=st.sampled_from([0.1, 1.0, 10.0]),
)
@settings(max_examples=60)
def test_weights_meet_the_conditions_of_a_minimum(X: np.ndarray, l1: float, l2: float) -> None:
    X = X.astype(np.float64)
    weights = solve(X, l1, l2)
    assert (weights >= 0).all()
    assert (weights.diagonal() == 0).all()
    slope = X.T @ (X @ weights - X) + l1 + l2 * weights
    np.fill_diagonal(slope, 0.0)
    # No weight of zero wants to grow, and the others are where their slope is zero.
    assert (slope >= -1e-8).all()
    assert np.abs(slope[weights > 0]).max(initial=0.0) < 1e-8


def test_scores_and_neighbors_are_the_weights(random_log: Interactions) -> None:
    model = SLIM(l1=1.0, l2=2.0).fit(random_log)
    X = random_log.by_user.to_scipy(np.float64).toarray()
    weights = solve(X, 1.0, 2.0)
    assert model.report_["weights"] == model.weights_.nnz
    np.testing.assert_allclose(model.weights_.toarray(), weights, atol=2e-3)
    users = np.arange(random_log.n_users, dtype=np.int32)
    np.testing.assert_allclose(model.scores(users), X @ weights, atol=2e-2)
    for item in np.argsort(-np.count_nonzero(weights, axis=1))[:3]:
        table = model.similar_items(random_log.items.series[int(item)], k=2)
        best = np.argsort(-weights[item])[:2]
        assert table["neighbor_id"].to_list() == random_log.items.series.gather(best).to_list()
        np.testing.assert_allclose(table["score"], weights[item, best], atol=2e-3)


def test_blocks_do_not_change_the_weights(
    random_log: Interactions, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = SLIM().fit(random_log)
    monkeypatch.setattr(slim, "block_length", lambda n_items: 7)
    parts = SLIM().fit(random_log)
    assert (whole.weights_ != parts.weights_).nnz == 0


def test_columns_short_of_the_tolerance_are_counted_and_told(
    random_log: Interactions, monkeypatch: pytest.MonkeyPatch
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        SLIM(l1=2.0, l2=5.0).fit(random_log)
    monkeypatch.setattr(slim, "_MOST_SWEEPS", 1)
    with pytest.warns(UserWarning, match=r"\d+ of 56 items .*raise l2=0.1 or l1=0.2") as told:
        model = SLIM(l1=0.2, l2=0.1).fit(random_log)
    assert model.report_["unsolved"] > 0
    assert f" {model.report_['unsolved']} of 56" in str(told[0].message)
    assert told[0].filename == __file__


def test_progress_is_shown_when_asked_for(
    random_log: Interactions, capsys: pytest.CaptureFixture[str]
) -> None:
    SLIM().fit(random_log, options=FitOptions(progress=False))
    assert capsys.readouterr().err == ""
    SLIM().fit(random_log, options=FitOptions(progress=True))
    assert "56/56 items" in capsys.readouterr().err
