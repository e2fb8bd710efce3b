"""EASE against the closed form written down naively, and against its own objective."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from transcf.data.interactions import Interactions
from transcf.data.readers import read_interactions
from transcf.errors import NotFittedError, OutOfMemoryError, ParameterError
from transcf.models import ease
from transcf.models.ease import EASE
from transcf.models.families import check_memory


def naive_weights(log: Interactions, regularization: float) -> np.ndarray:
    X = log.by_user.to_scipy().toarray().astype(np.float64)
    P = np.linalg.inv(X.T @ X + regularization * np.eye(X.shape[1]))
    B = P / -np.diag(P)
    np.fill_diagonal(B, 0.0)
    return B


@pytest.mark.parametrize(("precision", "tolerance"), [("float64", 1e-7), ("float32", 1e-5)])
@pytest.mark.parametrize("block_bytes", [None, 4 * 60 * 7])
def test_weights_equal_the_closed_form(
    random_log: Interactions, precision: str, tolerance: float, block_bytes: int | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    if block_bytes is not None:
        length = ease.block_length
        monkeypatch.setattr(ease, "block_length", lambda n_items: length(n_items, block_bytes))
    model = EASE(regularization=3.0, precision=precision).fit(random_log)
    expected = naive_weights(random_log, 3.0)
    np.testing.assert_allclose(model.weights_, expected, atol=tolerance)
    users = np.array([4, 0], dtype=np.int32)
    X = random_log.by_user.to_scipy().toarray()
    np.testing.assert_allclose(model.scores(users), X[users] @ expected, atol=1e-5)


def test_the_weights_minimise_the_objective(random_log: Interactions) -> None:
    X = random_log.by_user.to_scipy().toarray().astype(np.float64)
    B = EASE(regularization=5.0).fit(random_log).weights_.astype(np.float64)

    def objective(weights: np.ndarray) -> float:
        return float(((X - X @ weights) ** 2).sum() + 5.0 * (weights**2).sum())

    rng = np.random.default_rng(0)
    for _ in range(20):
        step = 1e-2 * rng.standard_normal(B.shape)
        np.fill_diagonal(step, 0.0)
        assert objective(B + step) > objective(B)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize(("regularization", "precision"), [(1e-30, "float64"), (1e39, "float32")])
def test_a_matrix_without_an_inverse_leaves_nothing_behind(
    regularization: float, precision: str
) -> None:
    """Everybody has both items: without regularization the matrix is singular."""
    pairs = pl.DataFrame({"user": [1, 1, 2, 2, 3, 3], "item": ["x", "y"] * 3})
    model = EASE(regularization=regularization, precision=precision)
    with pytest.raises(ParameterError, match=r"no inverse in float.*: choose a value nearer"):
        model.fit(read_interactions(pairs))
    with pytest.raises(NotFittedError):
        model.recommend(k=1)


def test_too_many_items_are_refused_before_memory_runs_out() -> None:
    with (
        pytest.raises(OutOfMemoryError, match=r"5,000,000 items .* use ItemKNN"),
        check_memory("ease", EASE().settings, 10, 5_000_000),
    ):
        pass
