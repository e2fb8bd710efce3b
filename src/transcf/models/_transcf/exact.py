"""The exact solver: the paper to the letter, in plain numpy; the oracle of every other path.

Mini-batches of 1,000 triples, gradients through all neighbours, sums over the batch.
"""

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from transcf.kernels import Array
from transcf.models._triples import Problem

from .forms import FORMS
from .parameters import EpochStats, Form, Hyper, Parameters, bound

BATCH = 1000


@dataclass(frozen=True)
class Triples:
    """Users (T,), one item of each (T,), and items that they do not have (T, negatives)."""

    users: Array
    positives: Array
    negatives: Array

    def __getitem__(self, which: slice | Array) -> "Triples":
        """Some of the triples."""
        return Triples(self.users[which], self.positives[which], self.negatives[which])


class Averages:
    """The two averaging matrices: Q = by_user @ items and N = by_item @ users."""

    def __init__(self, problem: Problem) -> None:
        """Spread weight one evenly over the neighbours of every row."""
        self.by_user = _averaging(problem.user_indptr, problem.user_indices, problem.n_items)
        self.by_item = _averaging(problem.item_indptr, problem.item_indices, problem.n_users)


def _averaging(indptr: Array, indices: Array, n_columns: int) -> sp.csr_array:
    sizes = np.diff(indptr)
    weights = np.repeat(1 / np.maximum(1, sizes), sizes)
    return sp.csr_array((weights, indices, indptr), shape=(len(sizes), n_columns))


def pair_cost(form: Form, a: Array, q: Array, b: Array, n: Array) -> Array:
    """-s(u, i) of vectors in the last axis, bias left out."""
    return np.asarray(FORMS[form].cost(a, q, b, n).sum(-1))


def pair_slope(
    form: Form, g: Array, a: Array, q: Array, b: Array, n: Array
) -> tuple[Array, Array, Array, Array]:
    """Return g times the gradient of -s(u, i) by a, q, b and n."""
    return FORMS[form].slope(g[..., None], a, q, b, n)


@dataclass(frozen=True)
class State:
    """A batch at one point of the parameters; vectors are (T, dim), numbers (T,).

    Each user's hardest negative is j; `gap` is margin - s(u, i) + s(u, j).
    """

    parameters: Parameters
    triples: Triples
    hardest: Array
    a: Array
    q: Array
    b_i: Array
    n_i: Array
    b_j: Array
    n_j: Array
    near: Array
    gap: Array
    weight: Array


def evaluate(
    parameters: Parameters, averages: Averages, triples: Triples, hyper: Hyper, n_active: int
) -> State:
    """Look everything up that loss and gradient have in common."""
    users, items, bias = parameters.users, parameters.items, parameters.item_bias
    a, q = users[triples.users], averages.by_user[triples.users] @ items
    b_i, n_i = items[triples.positives], averages.by_item[triples.positives] @ users
    near = pair_cost(hyper.form, a, q, b_i, n_i)
    others = triples.negatives
    n_others = (averages.by_item[others.ravel()] @ users).reshape(*others.shape, -1)
    far = pair_cost(hyper.form, a[:, None], q[:, None], items[others], n_others) - bias[others]
    gaps = (hyper.margin + near - bias[triples.positives])[:, None] - far
    hardest = np.arange(len(near)), gaps.argmax(axis=1)
    return State(
        parameters=parameters,
        triples=triples,
        hardest=others[hardest],
        a=a,
        q=q,
        b_i=b_i,
        n_i=n_i,
        b_j=items[others[hardest]],
        n_j=n_others[hardest],
        near=near,
        gap=gaps[hardest],
        weight=hyper.rank_weights(n_active)[(gaps > 0).sum(axis=1)],
    )


def losses(state: State, hyper: Hyper) -> Array:
    """The loss of every triple, (T,)."""
    x = state
    spread = ((x.a - x.q) ** 2).sum(1) + ((x.b_i - x.n_i) ** 2).sum(1)
    loss = x.weight * x.gap + hyper.reg_distance * x.near + hyper.reg_neighborhood * spread
    if hyper.item_bias:
        bias = x.parameters.item_bias
        loss = loss + hyper.bias_decay * (bias[x.triples.positives] ** 2 + bias[x.hardest] ** 2)
    return np.asarray(loss)


def gradient(state: State, averages: Averages, hyper: Hyper) -> Parameters:
    """The gradient of the summed loss, through all neighbours; rank weights count as constants."""
    x, triples = state, state.triples
    pull, push = x.weight + hyper.reg_distance, -x.weight
    da_i, dq_i, db_i, dn_i = pair_slope(hyper.form, pull, x.a, x.q, x.b_i, x.n_i)
    da_j, dq_j, db_j, dn_j = pair_slope(hyper.form, push, x.a, x.q, x.b_j, x.n_j)
    apart = 2 * hyper.reg_neighborhood * (x.a - x.q)
    off = 2 * hyper.reg_neighborhood * (x.b_i - x.n_i)
    back = 1.0 if hyper.tie_neighbors else 0.0
    users = averages.by_item[triples.positives].T @ (dn_i - back * off)
    users += averages.by_item[x.hardest].T @ dn_j
    items = averages.by_user[triples.users].T @ (dq_i + dq_j - back * apart)
    np.add.at(users, triples.users, da_i + da_j + apart)
    np.add.at(items, triples.positives, db_i + off)
    np.add.at(items, x.hardest, db_j)
    bias = np.zeros_like(x.parameters.item_bias)
    if hyper.item_bias:
        decay = 2 * hyper.bias_decay * x.parameters.item_bias
        np.add.at(bias, triples.positives, decay[triples.positives] - x.weight)
        np.add.at(bias, x.hardest, decay[x.hardest] + x.weight)
    return Parameters(users, items, bias)


def sample_triples(problem: Problem, hyper: Hyper, generator: np.random.Generator) -> Triples:
    """The triples of every user that has a positive and a negative, shuffled."""
    sizes, active = np.diff(problem.user_indptr), problem.active_items
    eligible = np.flatnonzero((sizes > 0) & (sizes < len(active)))
    samples = problem.samples_of_users(hyper.samples_per_user)[eligible]
    users = np.repeat(eligible, samples.round().astype(np.int64))
    generator.shuffle(users)
    positives = problem.user_indices[_draw_interactions(problem, users, generator)]
    known = np.repeat(np.arange(problem.n_users), sizes) * problem.n_items + problem.user_indices
    negatives = generator.choice(active, (len(users), hyper.negatives))
    while (taken := np.isin(users[:, None] * problem.n_items + negatives, known)).any():
        negatives[taken] = generator.choice(active, int(taken.sum()))
    return Triples(users, positives, negatives)


def _draw_interactions(problem: Problem, users: Array, generator: np.random.Generator) -> Array:
    """One interaction of each user by its weight, as a place in `user_indices`."""
    starts, sizes = problem.user_indptr[:-1], np.diff(problem.user_indptr)
    if not len(problem.weights):
        return starts[users] + generator.integers(sizes[users])
    reach = np.concatenate([[0.0], np.cumsum(problem.weights, dtype=np.float64)])
    low, high = reach[starts[users]], reach[starts[users] + sizes[users]]
    found = np.searchsorted(reach, generator.uniform(low, high), side="right") - 1
    return np.clip(found, starts[users], starts[users] + sizes[users] - 1)


class ExactSolver:
    """Trains TransCF and its ablations with exact gradients; slow, simple, certain."""

    def __init__(self, problem: Problem, hyper: Hyper) -> None:
        """Prepare the averaging matrices."""
        self.problem, self.hyper = problem, hyper
        self._averages = Averages(problem)

    def epoch(self, parameters: Parameters, number: int) -> tuple[Parameters, EpochStats]:
        """Train one epoch; `parameters` stay as they are, the result is new."""
        hyper, n_active = self.hyper, len(self.problem.active_items)
        generator = np.random.default_rng([hyper.seed, number])
        triples = sample_triples(self.problem, hyper, generator)
        result, loss, active = parameters.copy(), 0.0, 0
        for begin in range(0, len(triples.users), BATCH):
            batch = triples[begin : begin + BATCH]
            state = evaluate(result, self._averages, batch, hyper, n_active)
            loss += losses(state, hyper).sum()
            active += int((state.weight > 0).sum())
            steps = gradient(state, self._averages, hyper)
            result.descend(hyper.rate_at(number), steps)
        finite = bound(result.users, hyper.bound) & bound(result.items, hyper.bound)
        count = max(1, len(triples.users))
        return result, EpochStats(float(loss) / count, len(triples.users), active / count, finite)
