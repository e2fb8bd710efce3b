"""What BPR, AoBPR and CML share: steps against written-out losses, draws, bits that hold."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
import scipy.sparse as sp
from tests.models.transcf_exact import problem_of

from transcf.data import leave_one_out, synthesize
from transcf.io.tensors import Arrays
from transcf.kernels import Array
from transcf.kernels.lanes import LANES
from transcf.models.base import Recommender
from transcf.models.bpr import (
    BPR,
    AdaptiveSolver,
    AoBPR,
    AoBPRSettings,
    BPRSettings,
    LogisticSolver,
)
from transcf.models.cml import CML, CMLSettings, HingeSolver, covariance_slope
from transcf.models.training import Epoch, FitOptions
from transcf.models.triples import PairwiseSolver, Problem
from transcf.parallel import use_threads

NAMES = ("user_vectors", "item_vectors", "item_bias")
RATE = 0.1
ONE = {"dim": 5, "samples_per_user": 1, "decay": "none"}
DECAYS = {"regularization": 0.3, "bias_regularization": 0.7}
LOGISTIC = BPRSettings(**ONE, **DECAYS, learning_rate=RATE)
HINGE = CMLSettings(**ONE, learning_rate=RATE)


def problem_of_pairs(pairs: list[tuple[int, int]], n_users: int, n_items: int) -> Problem:
    users, items = zip(*pairs, strict=True)
    matrix = sp.csr_array((np.ones(len(pairs)), (users, items)), shape=(n_users, n_items))
    return problem_of(matrix)


def one_triple() -> Problem:
    """Only (user 0, item 0, item 1) can be drawn: user 1 has all items; user 2, item 2 are idle."""
    return problem_of_pairs([(0, 0), (1, 0), (1, 1)], 3, 3)


def random_tensors(problem: Problem, dim: int, scale: float, seed: int = 3) -> Arrays:
    draw = np.random.default_rng(seed).standard_normal
    shapes = ((problem.n_users, dim), (problem.n_items, dim), (problem.n_items,))
    return {name: scale * draw(shape) for name, shape in zip(NAMES, shapes, strict=True)}


def numeric_gradient(loss: Callable[[Arrays], float], at: Arrays) -> Arrays:
    width, slopes = 1e-6, {}
    for name, values in at.items():
        slopes[name] = np.zeros_like(values)
        for index in np.ndindex(values.shape):
            sides = []
            for sign in (1, -1):
                moved = {other: array.copy() for other, array in at.items()}
                moved[name][index] += sign * width
                sides.append(loss(moved))
            slopes[name][index] = (sides[0] - sides[1]) / (2 * width)
    return slopes


def step_of(solver: PairwiseSolver, at: Arrays, samples: int = 1) -> Arrays:
    """How one epoch of so many triples moves the tensors."""
    solver.load_tensors({name: array.copy() for name, array in at.items()})
    assert solver.run_epoch(1).samples == samples
    return {name: array - at[name] for name, array in solver.tensors().items()}


def check_step(
    solver: PairwiseSolver, at: Arrays, loss: Callable[[Arrays], float], precision: float
) -> None:
    """The step is against the gradient of the loss, to the precision of the solver's numbers."""
    gradient, step = numeric_gradient(loss, at), step_of(solver, at)
    for name in NAMES:
        scale = max(1e-2, float(np.abs(gradient[name]).max()))
        error = np.abs(step[name] + RATE * gradient[name]).max()
        assert error < precision * RATE * scale, (name, step[name], gradient[name])


class TestOneStep:
    def test_bpr_descends_its_loss(self) -> None:
        def loss(t: Arrays) -> float:
            (x, *_), (i, j, _), (c_i, c_j, _) = (t[name] for name in NAMES)
            margin = x @ i + c_i - x @ j - c_j
            vectors = x @ x + i @ i + j @ j
            return float(
                -np.log(1 / (1 + np.exp(-margin))) + 0.3 / 2 * vectors + 0.7 / 2 * (c_i**2 + c_j**2)
            )

        problem = one_triple()
        at = random_tensors(problem, 5, 0.6)
        solver = LogisticSolver(problem, LOGISTIC, dtype=np.float64)
        check_step(solver, at, loss, 1e-7)
        ranked = AoBPRSettings(**ONE, **DECAYS, learning_rate=RATE, rank_share=0.5)
        adaptive = step_of(AdaptiveSolver(problem, ranked), at)
        for name, step in step_of(solver, at).items():
            np.testing.assert_allclose(adaptive[name], step, atol=1e-6)

    def test_a_hopeless_triple_has_a_finite_loss(self) -> None:
        """At s(u, i) - s(u, j) = -200 an exponential is beyond float32; the loss is 200."""
        solver = LogisticSolver(one_triple(), LOGISTIC)
        at = {name: values.astype(np.float32) for name, values in solver.tensors().items()}
        at["item_bias"][1] = at["item_bias"][0] + 200
        solver.load_tensors(at)
        assert solver.run_epoch(0).loss == pytest.approx(200, rel=1e-3)

    def test_without_biases_they_stay(self) -> None:
        unbiased = replace(LOGISTIC, item_bias=False)
        solver = LogisticSolver(one_triple(), unbiased, dtype=np.float64)
        at = random_tensors(one_triple(), 5, 0.6)
        assert not step_of(solver, at)["item_bias"].any()

    @pytest.mark.parametrize("margin", [0.0, 0.5])
    def test_cml_descends_its_loss(self, margin: float) -> None:
        def loss(t: Arrays) -> float:
            (x, *_), (i, j, _), _ = (t[name] for name in NAMES)
            hinge = max(0.0, margin + (x - i) @ (x - i) - (x - j) @ (x - j))
            return float(hinge + 0.15 * (x @ x + i @ i + j @ j))

        problem = one_triple()
        at = random_tensors(problem, 5, 0.2)
        at["item_vectors"][0] = at["user_vectors"][0] + 0.01  # satisfied at a margin of 0
        at["item_vectors"][1] = at["user_vectors"][0] - 0.2
        settings = replace(HINGE, regularization=0.3, margin=margin, negatives=2)
        check_step(HingeSolver(problem, settings), at, loss, 1e-4)

    def test_cml_descends_the_covariance_term(self) -> None:
        def loss(t: Arrays) -> float:
            vectors = np.concatenate([t["user_vectors"][:2], t["item_vectors"][:2]])
            covariance = np.cov(vectors.T, bias=True)
            outside = (covariance**2).sum() - (np.diag(covariance) ** 2).sum()
            return float(0.9 * outside / len(vectors))

        problem = one_triple()
        at = random_tensors(problem, 5, 0.2)
        at["item_vectors"][0] = at["user_vectors"][0]
        settings = replace(HINGE, margin=0.0, negatives=1, rank_weighting=False, covariance=0.9)
        check_step(HingeSolver(problem, settings), at, loss, 1e-4)

    @pytest.mark.parametrize("bound_after", ["step", "epoch"])
    def test_cml_comes_back_into_the_ball(self, bound_after: Literal["step", "epoch"]) -> None:
        """Two steps on one triple, written out."""

        def in_ball(vectors: Array) -> Array:
            return vectors / np.maximum(1.0, np.linalg.norm(vectors, axis=1, keepdims=True))

        problem = one_triple()
        at = random_tensors(problem, 5, 1.0)
        for name in NAMES[:2]:
            at[name] *= 0.95 / np.linalg.norm(at[name], axis=1, keepdims=True)
        settings = CMLSettings(
            dim=5, samples_per_user=2, learning_rate=0.2, decay="none", margin=9.0, negatives=1,
            rank_weighting=False, bound_after=bound_after,
        )  # fmt: skip
        step = step_of(HingeSolver(problem, settings), at, samples=2)

        moved = np.array([at["user_vectors"][0], *at["item_vectors"][:2]])
        for _ in range(2):
            x, i, j = moved
            moved = moved + 0.4 * np.array([i - j, x - i, j - x])
            assert np.linalg.norm(moved, axis=1).max() > 1
            moved = in_ball(moved) if bound_after == "step" else moved
        rows = (("user_vectors", 0), ("item_vectors", 0), ("item_vectors", 1))
        for (name, row), expected in zip(rows, in_ball(moved), strict=True):
            np.testing.assert_allclose(at[name][row] + step[name][row], expected, rtol=1e-5)

    def test_cml_takes_the_nearest_and_weighs_by_the_estimated_rank(self) -> None:
        """User 0 has item 0; of the others, two in four come within the margin, item 2 nearest."""
        pairs = [(0, 0)] + [(1, item) for item in range(5)]
        problem = problem_of_pairs(pairs, 2, 5)
        at = random_tensors(problem, 1, 0.0)
        at["item_vectors"][:, 0] = [0.1, 0.3, 0.2, 0.8, 0.9]
        settings = replace(HINGE, dim=1, margin=0.2, negatives=1000)
        step = step_of(HingeSolver(problem, settings), at)
        weight = np.log(1 + 5 * 2 / 4) / np.log(1 + 5)
        expected = np.array([-0.1, 0, 0.2, 0, 0]) * 2 * RATE * weight
        np.testing.assert_allclose(step["item_vectors"][:, 0], expected, rtol=0.03, atol=1e-7)


def test_on_average_an_epoch_takes_the_expected_step() -> None:
    """BPR in several blocks against all triples, written out: everybody moves as they should."""
    generator = np.random.default_rng(0)
    dense = generator.random((12, 60)) < 0.3
    dense[np.arange(60) % 12, np.arange(60)] = True
    problem = problem_of(sp.csr_array(dense))
    at = random_tensors(problem, 4, 0.6)
    x, y, c = (at[name] for name in NAMES)
    expected = {name: np.zeros_like(values) for name, values in at.items()}
    for u in range(12):
        own, others = np.flatnonzero(dense[u]), np.flatnonzero(~dense[u])
        i, j = (part.ravel() for part in np.meshgrid(own, others, indexing="ij"))
        doubt = 200 / len(i) / (1 + np.exp((y[i] - y[j]) @ x[u] + c[i] - c[j]))
        expected["user_vectors"][u] = doubt @ (y[i] - y[j])
        np.add.at(expected["item_vectors"], i, np.outer(doubt, x[u]))
        np.add.at(expected["item_vectors"], j, -np.outer(doubt, x[u]))
        np.add.at(expected["item_bias"], i, doubt)
        np.add.at(expected["item_bias"], j, -doubt)
    settings = BPRSettings(
        dim=4,
        samples_per_user=200,
        learning_rate=1e-9,
        decay="none",
        regularization=0,
        bias_regularization=0,
    )
    solver = LogisticSolver(
        problem, settings, np.float64, LogisticSolver.layout(problem, settings, 20 * LANES * 4)
    )
    assert len(solver._builder.strata.starts) - 1 >= 3
    moved = {name: np.zeros_like(values) for name, values in at.items()}
    for epoch in range(150):
        solver.load_tensors(at)
        solver.run_epoch(epoch)
        for name in NAMES:
            moved[name] += (solver.tensors()[name] - at[name]) / 1e-9 / 150
    for name in NAMES:
        error = np.linalg.norm(moved[name] - expected[name]) / np.linalg.norm(expected[name])
        assert error < 0.04, (name, error)


MODELS: dict[str, Callable[..., Recommender]] = {"BPR": BPR, "AoBPR": AoBPR, "CML": CML}
EACH = pytest.mark.parametrize("name", MODELS)


def bits(model: Recommender) -> list[bytes]:
    return [array.tobytes() for array in model.learned_.arrays().values()]


@EACH
def test_the_bits_are_the_same_for_one_two_and_three_threads(name: str) -> None:
    log = synthesize(users=400, items=700, interactions=8000, seed=3)
    more = {"covariance": 50.0} if name == "CML" else {}
    first, *rest = (
        bits(MODELS[name](dim=24, epochs=3, **more).fit(log, options=FitOptions(threads=threads)))
        for threads in (1, 2, 3)
    )
    assert all(other == first for other in rest)


def test_the_covariance_term_has_the_same_bits_for_any_threads() -> None:
    """Also for those of BLAS, whose blocks depend on how many there are."""
    vectors = np.random.default_rng(0).standard_normal((5000, 60)).astype(np.float32)
    found = []
    for threads in (1, 3, 4):
        with use_threads(threads):
            found.append(covariance_slope(vectors))
    assert all(other.tobytes() == found[0].tobytes() for other in found)
    between = np.cov(vectors.T.astype(np.float64), bias=True)
    np.fill_diagonal(between, 0)
    expected = 4 / len(vectors) * (vectors - vectors.mean(axis=0, dtype=np.float64)) @ between
    np.testing.assert_allclose(found[0] * len(vectors), expected, rtol=1e-9, atol=1e-15)


@EACH
def test_a_resumed_run_ends_with_the_same_bits(name: str, tmp_path: Path) -> None:
    split = leave_one_out(synthesize(users=300, items=150, interactions=5000, seed=3))
    make = MODELS[name]
    whole = make(dim=24, epochs=6).fit(split.train, split.validation)
    options = FitOptions(checkpoint=tmp_path, resume=True, checkpoint_seconds=0.0)

    def stop(epoch: Epoch) -> None:
        if epoch.number == 4:
            raise RuntimeError("stopped")

    with pytest.raises(RuntimeError, match="stopped"):
        make(dim=24, epochs=6).fit(split.train, split.validation, replace(options, on_epoch=stop))
    resumed = make(dim=24, epochs=6).fit(split.train, split.validation, options)
    assert resumed.history_["loss"].equals(whole.history_["loss"])
    assert bits(resumed) == bits(whole)


@EACH
def test_idle_users_and_items_stay_as_they_were(name: str) -> None:
    log = synthesize(users=100, items=60, interactions=900, seed=1)
    kept = log.select((log.user_rows != 7) & (log.item_rows != 5))
    first, later = (MODELS[name](dim=8, epochs=n, init_scale=0.05).fit(kept) for n in (1, 4))
    assert (first.user_vectors_[7] == later.user_vectors_[7]).all()
    assert (first.item_vectors_[5] == later.item_vectors_[5]).all()
    assert (first.item_vectors_ != later.item_vectors_).any(axis=1).sum() >= 50


def test_everything_is_padded_to_whole_lanes() -> None:
    problem = one_triple()
    solver = LogisticSolver(problem, replace(LOGISTIC, dim=3))
    solver.run_epoch(1)
    padding: Array = solver._rows.items.reshape(-1, LANES)[:, 3:]
    assert not padding.any()


def test_the_rate_decays_to_nothing_over_the_epochs() -> None:
    settings = BPRSettings(learning_rate=0.1, epochs=4)
    assert [settings.rate_at(epoch) for epoch in (1, 3, 5)] == [0.1, 0.05, 0.0]
    problem, at = one_triple(), random_tensors(one_triple(), 5, 0.6)
    solver = LogisticSolver(problem, replace(LOGISTIC, decay="linear", epochs=2), dtype=np.float64)
    first = step_of(solver, at)["user_vectors"]
    solver.load_tensors({name: array.copy() for name, array in at.items()})
    solver.run_epoch(2)
    second = solver.tensors()["user_vectors"] - at["user_vectors"]
    np.testing.assert_allclose(second, first / 2, atol=1e-12)
