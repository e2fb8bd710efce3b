"""iALS against the normal equations, its own loss over all pairs, and `implicit`."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st
from tests.models.als_dense import Dense, dense_ials

from transcf.data.csr import Csr
from transcf.data.interactions import Interactions
from transcf.errors import DivergenceError
from transcf.kernels.als import conjugate_gradient, solve_rows
from transcf.models.alternation import ALSProblem, Alternation
from transcf.models.ials import IALS, objective
from transcf.models.training import FitOptions


def matrix(log: Interactions) -> np.ndarray:
    return log.by_user.to_scipy(np.float64).toarray()


def csr(R: np.ndarray) -> Csr:
    indptr = np.concatenate([[0], np.cumsum(R.astype(bool).sum(axis=1))])
    return Csr(indptr, np.nonzero(R)[1].astype(np.int32), R.shape[1])


def dense_of(model: IALS, R: np.ndarray) -> Dense:
    settings = model.settings_ if model.is_fitted else model.settings
    return dense_ials(R, settings.unobserved_weight, settings.regularization, settings.nu)


def alternation(model: IALS, R: np.ndarray, start: list[np.ndarray]) -> Alternation:
    goal = objective(model.settings, R.sum(axis=0), R.sum(axis=1))
    conjugate = partial(conjugate_gradient, steps=model.cg_steps)
    solver = solve_rows if model.solver == "cholesky" else conjugate
    return Alternation(ALSProblem(csr(R), csr(R.T), goal), solver, *start)


def random_start(R: np.ndarray, dim: int, seed: int = 0) -> list[np.ndarray]:
    """In float64, which tells rounding from mistakes."""
    rng = np.random.default_rng(seed)
    return [0.3 * rng.standard_normal((n, dim)) for n in R.shape]


def vectors(state: Alternation) -> tuple[np.ndarray, np.ndarray]:
    tensors = state.tensors()
    return tensors["user_vectors"].copy(), tensors["item_vectors"].copy()


@pytest.mark.parametrize("dim", [1, 16, 37])
@pytest.mark.parametrize("nu", [0.0, 1.0, 0.5])
def test_a_cholesky_step_solves_the_normal_equations(
    random_log: Interactions, dim: int, nu: float
) -> None:
    R = matrix(random_log)
    R[7], R[:, 3] = 0, 0  # a user and an item without interactions
    model = IALS(dim=dim, solver="cholesky", nu=nu, unobserved_weight=0.3, regularization=0.05)
    state, dense = alternation(model, R, random_start(R, dim)), dense_of(model, R)
    _, items = vectors(state)
    assert not items[3].any()
    loss = state.solve_users()
    users, _ = vectors(state)
    np.testing.assert_allclose(users, dense.best_users(items), atol=1e-10)
    assert loss == pytest.approx(dense.loss(users, items))
    state.solve_items()
    _, items = vectors(state)
    np.testing.assert_allclose(items, dense.best_items(users), atol=1e-10)


def test_the_fitted_items_are_the_best_for_the_fitted_users(random_log: Interactions) -> None:
    model = IALS(dim=24, solver="cholesky", epochs=6).fit(random_log)
    dense = dense_of(model, matrix(random_log))
    best = dense.best_items(model.user_vectors_)
    np.testing.assert_allclose(model.item_vectors_, best, atol=1e-4 * np.abs(best).max())
    mean = dense.loss(model.user_vectors_, model.item_vectors_) / len(random_log)
    assert model.history_["loss"][-1] == pytest.approx(mean, rel=1e-5)


@given(
    shape=st.tuples(st.integers(1, 14), st.integers(1, 11)),
    density=st.floats(0.05, 1.0),
    dim=st.integers(1, 20),
    weight=st.floats(0.01, 2.0),
    regularization=st.floats(1e-3, 1.0),
    nu=st.floats(0.0, 1.5),
    solver=st.sampled_from(["cg", "cholesky"]),
    seed=st.integers(0, 1000),
)
@examples(max_examples=50)
def test_no_half_step_raises_the_loss(
    shape: tuple[int, int], density: float, dim: int, weight: float, regularization: float,
    nu: float, solver: str, seed: int,
) -> None:  # fmt: skip
    R = (np.random.default_rng(seed).random(shape) < density).astype(np.float64)
    model = IALS(
        dim=dim, unobserved_weight=weight, regularization=regularization, nu=nu, solver=solver
    )
    state, dense = alternation(model, R, random_start(R, dim, seed)), dense_of(model, R)
    before = dense.loss(*vectors(state))
    for _ in range(3):
        for half_step in (state.solve_users, state.solve_items):
            told = half_step()
            after = dense.loss(*vectors(state))
            assert told == pytest.approx(after, rel=1e-9, abs=1e-9)
            assert after <= before * (1 + 1e-12) + 1e-12
            before = after


def test_many_steps_of_conjugate_gradient_are_exact(random_log: Interactions) -> None:
    R = matrix(random_log)
    model = IALS(dim=20, unobserved_weight=0.15)
    goal = objective(model.settings, R.sum(axis=0), R.sum(axis=1))
    start = random_start(R, 20)
    exact = Alternation(ALSProblem(csr(R), csr(R.T), goal), solve_rows, *start)
    many = partial(conjugate_gradient, steps=40)
    patient = Alternation(ALSProblem(csr(R), csr(R.T), goal), many, *start)
    for state in (exact, patient):
        state.run_epoch(1)
    for found, expected in zip(vectors(patient), vectors(exact), strict=True):
        np.testing.assert_allclose(found, expected, atol=1e-8)


@pytest.mark.parametrize("solver", ["cg", "cholesky"])
def test_implicit_finds_the_same_vectors(random_log: Interactions, solver: str) -> None:
    """Implicit minimises c (p - s)^2 with c = alpha where p = 1 and c = 1 where p = 0.

    With a = unobserved_weight, alpha = (1 + a) / a and L2 weight regularization (1 + a) / a, its
    loss is (1 + a)^2 / a times ours for vectors sqrt(1 + a) times as long, up to a constant.
    """
    als = pytest.importorskip("implicit.cpu.als")
    a, R = 0.4, matrix(random_log)
    model = IALS(dim=16, unobserved_weight=a, regularization=0.2, nu=0.0, solver=solver)
    start = [vectors.astype(np.float32) for vectors in random_start(R, 16)]
    state = alternation(model, R, start)
    scale = np.float32(np.sqrt(1 + a))
    peer = als.AlternatingLeastSquares(
        factors=16, regularization=0.2 * (1 + a) / a, alpha=(1 + a) / a, use_cg=solver == "cg",
        iterations=4, num_threads=1,
    )  # fmt: skip
    peer.user_factors, peer.item_factors = (scale * vectors for vectors in start)
    peer.fit(sp.csr_matrix(R), show_progress=False)
    for epoch in range(4):
        state.run_epoch(epoch + 1)
    users, items = vectors(state)
    np.testing.assert_allclose(scale * users, peer.user_factors, atol=2e-4)
    np.testing.assert_allclose(scale * items, peer.item_factors, atol=2e-4)


def test_a_history_is_solved_exactly(random_log: Interactions) -> None:
    model = IALS(dim=10, epochs=4).fit(random_log)
    R = matrix(random_log)
    guest = np.zeros((1, R.shape[1]))
    guest[0, [2, 5, 30]] = 1
    dense = dense_of(model, R)
    weight = model.settings_.unobserved_weight
    ridge = model.regularization * (3 + weight * R.shape[1]) ** model.nu
    weights, targets = weight + guest, guest / (1 + weight)
    alone = Dense(weights, targets, 0.0, np.array([ridge]), dense.item_ridges)
    expected = model.item_vectors_ @ alone.best_users(model.item_vectors_)[0]
    history = model.items_.ids(np.array([2, 5, 30])).to_list()
    table = model.recommend_for(history, k=100, exclude_seen=False)
    found = model.items_.rows(table["item_id"])
    np.testing.assert_allclose(table["score"], expected[found], atol=1e-4)


@pytest.mark.parametrize("solver", ["cg", "cholesky"])
def test_bits_hold_for_threads_and_resumption(
    random_log: Interactions, solver: str, tmp_path: Path
) -> None:
    def fit(epochs: int, threads: int, folder: Path | None = None) -> bytes:
        options = FitOptions(checkpoint=folder, resume=True, threads=threads)
        model = IALS(dim=20, solver=solver, epochs=epochs).fit(random_log, options=options)
        return model.user_vectors_.tobytes() + model.item_vectors_.tobytes()

    whole = fit(5, 1)
    assert fit(5, 2) == fit(5, 3) == whole
    assert fit(2, 1, tmp_path) != whole
    assert fit(5, 2, tmp_path) == whole


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_singular_matrix_names_the_cure(random_log: Interactions) -> None:
    model = IALS(dim=100, solver="cholesky", regularization=1e-30, nu=0.0)
    with pytest.raises(DivergenceError, match="lower dim, or raise regularization"):
        model.fit(random_log)
