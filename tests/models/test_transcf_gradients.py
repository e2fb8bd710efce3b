"""The exact solver against finite differences, and the fast solver against the exact one."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import scipy.sparse as sp
from tests.models.transcf_exact import (
    Averages,
    Parameters,
    Triples,
    gradient,
    look_up,
    losses,
    parameters_of,
    problem_of,
    tensors_of,
)

from transcf.kernels import Array
from transcf.kernels.lanes import LANES
from transcf.models.transcf import TransCFSettings
from transcf.models.transcf.model import BIAS_RATE, TransCFSolver
from transcf.models.transcf.score_functions import SCORE_FUNCTIONS
from transcf.models.triples import Problem

# "emb" has the score of "translation".
SCORES = [name for name in SCORE_FUNCTIONS if name != "emb"]


class Steep(TransCFSettings):
    """Biases that decay fast enough to be measured."""

    bias_decay = 0.4


PLAIN = Steep(
    dim=3,
    negatives=1,
    rank_weighting=False,
    item_bias=False,
    tie_neighbors=True,
    decay="none",
)
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
    return problem_of(sp.csr_array(dense))


def random_parameters(problem: Problem, dim: int, scale: float, seed: int = 1) -> Parameters:
    generator = np.random.default_rng(seed)
    return Parameters(
        scale * generator.standard_normal((problem.n_users, dim)),
        scale * generator.standard_normal((problem.n_items, dim)),
        scale * generator.standard_normal(problem.n_items),
    )


def items_of(problem: Problem, user: int) -> Array:
    return problem.by_user.indices[problem.user_indptr[user] : problem.user_indptr[user + 1]]


def with_weights(problem: Problem) -> Problem:
    """The same problem with random weights of mean 1 over each user."""
    weights = np.random.default_rng(5).uniform(0.2, 3.0, len(problem.by_user.indices))
    sums, sizes = np.add.reduceat(weights, problem.user_indptr[:-1]), np.diff(problem.user_indptr)
    even = weights * np.repeat(sizes / sums, sizes)
    return dataclasses.replace(problem, weights=even.astype(np.float32))


def weights_of(problem: Problem, user: int) -> Array:
    """How often each interaction of a user is drawn; the sum is 1."""
    own = slice(problem.user_indptr[user], problem.user_indptr[user + 1])
    weights = problem.weights[own] if len(problem.weights) else np.ones(own.stop - own.start)
    return weights / weights.sum()


def all_triples(problem: Problem, user: int) -> Triples:
    """Every (positive, negative) of one user."""
    own = items_of(problem, user)
    others = np.setdiff1d(problem.active_items, own)
    i, j = (part.ravel() for part in np.meshgrid(own, others, indexing="ij"))
    return Triples(np.full(len(i), user), i, j[:, None])


class TestExactGradient:
    @pytest.mark.parametrize("variant", SCORES)
    @pytest.mark.parametrize("term", TERMS)
    @pytest.mark.parametrize("extra", EXTRAS)
    def test_agrees_with_central_differences(self, variant: str, term: str, extra: str) -> None:
        settings = dataclasses.replace(PLAIN, variant=variant, **TERMS[term], **EXTRAS[extra])
        self.check(settings)

    def check(self, settings: TransCFSettings) -> None:
        problem = small_problem()
        averages, parameters = Averages(problem), random_parameters(problem, 3, 0.6)
        generator = np.random.default_rng(2)
        triples = [all_triples(problem, user) for user in range(problem.n_users)]
        few = Triples(
            np.concatenate([t.users[:4] for t in triples]),
            np.concatenate([t.positives[:4] for t in triples]),
            np.concatenate(
                [generator.choice(t.negatives[:, 0], (4, settings.negatives)) for t in triples]
            ),
        )

        def total(at: Parameters) -> float:
            return float(losses(look_up(at, averages, few, settings, 8), settings).sum())

        exact = gradient(look_up(parameters, averages, few, settings, 8), averages, settings)
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
            if name == "item_bias" and not settings.item_bias:
                assert not expected.any()
            else:
                np.testing.assert_allclose(expected, numeric, rtol=1e-5, atol=1e-6)
                assert np.abs(numeric).max() > 0.01 or name == "item_bias"


def expected_terms(
    problem: Problem,
    parameters: Parameters,
    settings: TransCFSettings,
) -> dict[str, tuple[Array, Array, Array]]:
    """What an epoch does on average, split by cause: gradients of (users, items, item_bias).

    All triples of every user are enumerated and weighted by how often they are drawn.
    """
    averages, n_active = Averages(problem), len(problem.active_items)
    terms: dict[str, tuple[Array, Array, Array]] = {}

    def term(name: str) -> tuple[Array, Array, Array]:
        empty = tuple(np.zeros_like(x) for x in vars(parameters).values())
        return terms.setdefault(name, empty)  # type: ignore[arg-type]

    def add(name: str, kind: int, rows: Array, values: Array) -> None:
        np.add.at(term(name)[kind], rows, values)

    def add_q(name: str, users: Array, values: Array) -> None:
        term(name)[1][:] += averages.by_user[users].T @ values

    def add_n(name: str, items: Array, values: Array) -> None:
        term(name)[0][:] += averages.by_item[items].T @ values

    for user in range(problem.n_users):
        own = items_of(problem, user)
        others = np.setdiff1d(problem.active_items, own)
        grid = np.meshgrid(own, *[others] * settings.negatives, indexing="ij")
        columns = np.stack([part.ravel() for part in grid], axis=1)
        triples = Triples(np.full(len(columns), user), columns[:, 0], columns[:, 1:])
        x = look_up(parameters, averages, triples, settings, n_active)
        weights = weights_of(problem, user)
        share = settings.samples_per_user * np.repeat(weights, len(columns) // len(own))
        share *= len(own) / len(columns)
        u, i, j = triples.users, triples.positives, x.hardest
        slope = SCORE_FUNCTIONS[settings.variant].pair_slope
        pull, push = share * (x.weight + settings.reg_distance), -share * x.weight
        da, dq, db, dn = slope(pull, x.a, x.q, x.b_i, x.n_i)
        add("a pulled", 0, u, da)
        add("b_i pulled", 1, i, db)
        add_q("q pulled", u, dq)
        add_n("n_i pulled", i, dn)
        da, dq, db, dn = slope(push, x.a, x.q, x.b_j, x.n_j)
        add("a pushed", 0, u, da)
        add("b_j pushed", 1, j, db)
        add_q("q pushed", u, dq)
        add_n("n_j pushed", j, dn)
        tie = 2 * settings.reg_neighborhood * share[:, None]
        add("a tied", 0, u, tie * (x.a - x.q))
        back = tie * settings.tie_neighbors
        add_q("q tied", u, -back * (x.a - x.q))
        add("b_i tied", 1, i, tie * (x.b_i - x.n_i))
        add_n("n_i tied", i, -back * (x.b_i - x.n_i))
        if settings.item_bias:
            decay = 2 * settings.bias_decay * parameters.item_bias
            add("bias pulled", 2, i, -share * x.weight)
            add("bias pushed", 2, j, share * x.weight)
            add("bias_i decayed", 2, i, share * decay[i])
            add("bias_j decayed", 2, j, share * decay[j])
    return terms


def flat(parts: tuple[Array, ...]) -> Array:
    return np.concatenate([np.ravel(part) for part in parts])


def after_epoch(solver: TransCFSolver, parameters: Parameters, number: int) -> Parameters:
    """Return what an epoch makes of parameters."""
    solver.load_tensors(tensors_of(parameters))
    solver.run_epoch(number)
    return parameters_of(solver.tensors())


def measured_shares(
    problem: Problem,
    parameters: Parameters,
    settings: TransCFSettings,
    epochs: int,
) -> tuple[list[str], Array]:
    """How much of every expected term each epoch of the fast solver shows, (epochs, terms)."""
    terms = expected_terms(problem, parameters, settings)
    names = [name for name, term in terms.items() if np.abs(flat(term)).max() > 0]
    expected = np.stack([flat(terms[name]) for name in names], axis=1)
    solver = TransCFSolver(problem, settings, np.float64)
    shares = []
    for epoch in range(epochs):
        after = after_epoch(solver, parameters, epoch)
        pairs = zip(vars(after).values(), vars(parameters).values(), strict=True)
        rates = [
            settings.learning_rate,
            settings.learning_rate,
            BIAS_RATE * settings.learning_rate,
        ]
        moved = flat(
            tuple((new - old) / -rate for (new, old), rate in zip(pairs, rates, strict=True))
        )
        shares.append(np.linalg.lstsq(expected, moved)[0])
    return names, np.array(shares)


class TestFastEqualsExact:
    """Tiny steps from one state: the mean of many epochs is the exact expected step.

    The movement is explained by the expected terms (who is pulled, pushed or tied, directly or
    through a mean); every term must be there exactly once. A push that is dropped shows a share of
    0, one with the wrong sign -1.
    """

    SETTINGS = dataclasses.replace(
        PLAIN,
        dim=13,
        learning_rate=1e-11,
        margin=1.0,
        reg_distance=0.7,
        reg_neighborhood=0.6,
        samples_per_user=10_000,
        norm_constraint="none",
    )

    @pytest.mark.parametrize("variant", SCORES)
    @pytest.mark.parametrize("extra", ["plain", "all"])
    def test_every_term_is_there_once(self, variant: str, extra: str) -> None:
        settings = dataclasses.replace(self.SETTINGS, variant=variant, **EXTRAS[extra])
        self.check(small_problem(), settings)

    def test_weighted_interactions_and_ties_that_leave_the_neighbours_alone(self) -> None:
        settings = dataclasses.replace(self.SETTINGS, tie_neighbors=False)
        self.check(with_weights(small_problem()), settings)

    @pytest.mark.parametrize("is_weighted", [False, True])
    def test_several_blocks_move_everybody_as_one_block_does(self, is_weighted: bool) -> None:
        """Items dealt into blocks: users move without bias, items nearly so.

        The step of a user's mean goes to an item of the same block, which is more often the
        positive itself than a uniform draw would be; `fast` states the bound that is held here.
        """
        problem = small_problem(n_users=12, n_items=41)
        problem = with_weights(problem) if is_weighted else problem
        settings = dataclasses.replace(self.SETTINGS, dim=3, samples_per_user=600)
        parameters = random_parameters(problem, 3, 0.6)
        terms = expected_terms(problem, parameters, settings)
        expected = [sum(term[kind] for term in terms.values()) for kind in (0, 1)]
        layout = TransCFSolver.layout(problem, settings, 12 * 3 * LANES * 4)
        solver = TransCFSolver(problem, settings, np.float64, layout)
        assert layout.n_blocks >= 3
        epochs = [after_epoch(solver, parameters, number) for number in range(250)]
        for name, right, bound in (("users", expected[0], 0.02), ("items", expected[1], 0.1)):
            start = getattr(parameters, name)
            moved = np.mean([getattr(after, name) - start for after in epochs], axis=0)
            error = np.linalg.norm(-moved / settings.learning_rate - right) / np.linalg.norm(right)
            assert error < bound, (name, error)

    def check(self, problem: Problem, settings: TransCFSettings) -> None:
        """Each share is 1 within 2.5 %: enough is drawn that one off by 5 % cannot pass."""
        parameters = random_parameters(problem, settings.dim, 0.8)
        names, shares = measured_shares(problem, parameters, settings, 100)
        mean, error = shares.mean(axis=0), shares.std(axis=0, ddof=1) / np.sqrt(len(shares))
        report = dict(zip(names, zip(mean.round(4), error.round(4), strict=True), strict=True))
        assert (error < 0.007).all(), report
        assert (np.abs(mean - 1) < 0.025).all(), report
