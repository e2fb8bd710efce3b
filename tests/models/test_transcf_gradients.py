"""The exact solver against finite differences, and the fast solver against the exact one."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from transcf.kernels import Array
from transcf.models._transcf import FastSolver, Hyper, Parameters, Problem
from transcf.models._transcf.exact import (
    Averages,
    Triples,
    evaluate,
    gradient,
    losses,
    pair_slope,
)

FORMS = ["translation", "still", "alt", "dot"]
EXTRAS = {
    "plain": {},
    "hard": {"negatives": 3},
    "ranked": {"negatives": 3, "rank_weighting": True},
    "bias": {"item_bias": True},
    "all": {"negatives": 3, "rank_weighting": True, "item_bias": True},
}
TERMS = {
    "hinge": {"margin": 1.0, "reg_distance": 0.0, "reg_neighborhood": 0.0},
    "distance": {"margin": -1e9, "reg_distance": 0.7, "reg_neighborhood": 0.0},
    "neighborhood": {"margin": -1e9, "reg_distance": 0.0, "reg_neighborhood": 0.6},
    "together": {"margin": 1.0, "reg_distance": 0.7, "reg_neighborhood": 0.6},
}


def small_problem(seed: int = 0, n_users: int = 7, n_items: int = 9) -> Problem:
    """Seven users, nine items, of which the last has no interaction."""
    generator = np.random.default_rng(seed)
    dense = generator.random((n_users, n_items)) < 0.4
    dense[:, -1] = False
    dense[np.arange(n_users), np.arange(n_users) % (n_items - 1)] = True
    dense[np.arange(n_items - 1) % n_users, np.arange(n_items - 1)] = True
    matrix = sp.csr_array(dense)
    return Problem.from_csr(matrix.indptr, matrix.indices, n_items)


def random_parameters(problem: Problem, dim: int, scale: float, seed: int = 1) -> Parameters:
    generator = np.random.default_rng(seed)
    return Parameters(
        scale * generator.standard_normal((problem.n_users, dim)),
        scale * generator.standard_normal((problem.n_items, dim)),
        scale * generator.standard_normal(problem.n_items),
    )


def items_of(problem: Problem, user: int) -> Array:
    return problem.user_indices[problem.user_indptr[user] : problem.user_indptr[user + 1]]


def all_triples(problem: Problem, user: int) -> Triples:
    """Every (positive, negative) of one user."""
    own = items_of(problem, user)
    others = np.setdiff1d(problem.active_items, own)
    i, j = (part.ravel() for part in np.meshgrid(own, others, indexing="ij"))
    return Triples(np.full(len(i), user), i, j[:, None])


class TestExactGradient:
    @pytest.mark.parametrize("form", FORMS)
    @pytest.mark.parametrize("term", TERMS)
    @pytest.mark.parametrize("extra", EXTRAS)
    def test_agrees_with_central_differences(self, form: str, term: str, extra: str) -> None:
        hyper = Hyper(form=form, dim=3, **TERMS[term], **EXTRAS[extra])  # type: ignore[arg-type]
        problem = small_problem()
        averages, parameters = Averages(problem), random_parameters(problem, 3, 0.6)
        generator = np.random.default_rng(2)
        triples = [all_triples(problem, user) for user in range(problem.n_users)]
        few = Triples(
            np.concatenate([t.users[:4] for t in triples]),
            np.concatenate([t.positives[:4] for t in triples]),
            np.concatenate(
                [generator.choice(t.negatives[:, 0], (4, hyper.negatives)) for t in triples]
            ),
        )

        def total(at: Parameters) -> float:
            return float(losses(evaluate(at, averages, few, hyper, 8), hyper).sum())

        exact = gradient(evaluate(parameters, averages, few, hyper, 8), averages, hyper)
        for name in ("users", "items", "item_bias"):
            values, expected = getattr(parameters, name), getattr(exact, name)
            numeric = np.zeros_like(values)
            for index in np.ndindex(values.shape):
                kept, width = values[index], 1e-6
                values[index] = kept + width
                above = total(parameters)
                values[index] = kept - width
                below = total(parameters)
                values[index] = kept
                numeric[index] = (above - below) / (2 * width)
            if name == "item_bias" and not hyper.item_bias:
                assert not expected.any()
            else:
                np.testing.assert_allclose(expected, numeric, rtol=1e-5, atol=1e-6)
                assert np.abs(numeric).max() > 0.01 or name == "item_bias"
