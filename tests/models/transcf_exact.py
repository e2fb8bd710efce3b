"""The exact solver: the training of the paper in plain numpy, the reference for the fast solver.

Mini-batches of 1,000 triples, gradients through all neighbours, summed over the batch.
"""

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from transcf.data.csr import Csr
from transcf.io.tensors import Arrays
from transcf.kernels import Array
from transcf.kernels.translation import MAX_NORM
from transcf.models.factors import NORM_POWERS
from transcf.models.training import EpochStats
from transcf.models.transcf.model import BIAS_RATE, TransCFSettings
from transcf.models.transcf.score_functions import SCORE_FUNCTIONS
from transcf.models.triples import Problem, first_tensors

BATCH = 1000


@dataclass(frozen=True)
class Parameters:
    """The learned arrays: users (n_users, dim), items (n_items, dim), item_bias (n_items,)."""

    users: Array
    items: Array
    item_bias: Array


def parameters_of(tensors: Arrays) -> Parameters:
    """Take the learned arrays from the tensors of a solver."""
    return Parameters(tensors["user_vectors"], tensors["item_vectors"], tensors["item_bias"])


def tensors_of(own: Parameters) -> Arrays:
    """Return the learned arrays as the tensors of a solver."""
    return {"user_vectors": own.users, "item_vectors": own.items, "item_bias": own.item_bias}


@dataclass(frozen=True)
class Triples:
    """Users (T,), one item of each (T,), and items that they do not have (T, negatives)."""

    users: Array
    positives: Array
    negatives: Array

    def __getitem__(self, which: slice | Array) -> "Triples":
        """Return some of the triples."""
        return Triples(self.users[which], self.positives[which], self.negatives[which])


def problem_of(matrix: sp.csr_array) -> Problem:
    """Return the interactions of a matrix, users by items."""
    matrix.sort_indices()
    indptr, indices = matrix.indptr.astype(np.int64), matrix.indices.astype(np.int32)
    by_user = Csr(indptr, indices, matrix.shape[1])
    return Problem(by_user, by_user.transposed().counts)


class Averages:
    """The neighbourhoods: Q = by_user @ items and N = by_item @ users."""

    def __init__(self, problem: Problem) -> None:
        self.by_user = _averaging(problem.by_user)
        self.by_item = _averaging(problem.by_user.transposed())


def _averaging(rows: Csr) -> sp.csr_array:
    """Return the matrix that averages the neighbours of every row."""
    return rows.to_scipy(np.float64, np.repeat(1 / np.maximum(1, rows.counts), rows.counts))


@dataclass(frozen=True)
class TripleBatch:
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


def look_up(
    parameters: Parameters,
    averages: Averages,
    triples: Triples,
    settings: TransCFSettings,
    n_active: int,
) -> TripleBatch:
    """Gather what loss and gradient have in common."""
    form = SCORE_FUNCTIONS[settings.variant]
    users, items, bias = parameters.users, parameters.items, parameters.item_bias
    a, q = users[triples.users], averages.by_user[triples.users] @ items
    b_i, n_i = items[triples.positives], averages.by_item[triples.positives] @ users
    near = form.pair_cost(a, q, b_i, n_i)
    others = triples.negatives
    n_others = (averages.by_item[others.ravel()] @ users).reshape(*others.shape, -1)
    far = form.pair_cost(a[:, None], q[:, None], items[others], n_others) - bias[others]
    gaps = (settings.margin + near - bias[triples.positives])[:, None] - far
    hardest = np.arange(len(near)), gaps.argmax(axis=1)
    return TripleBatch(
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
        weight=settings.rank_weights(n_active)[(gaps > 0).sum(axis=1)],
    )


def losses(batch: TripleBatch, settings: TransCFSettings) -> Array:
    """Return the loss of every triple, (T,)."""
    x = batch
    spread = ((x.a - x.q) ** 2).sum(1) + ((x.b_i - x.n_i) ** 2).sum(1)
    loss = x.weight * x.gap + settings.reg_distance * x.near + settings.reg_neighborhood * spread
    if settings.item_bias:
        bias = x.parameters.item_bias
        loss = loss + settings.bias_decay * (bias[x.triples.positives] ** 2 + bias[x.hardest] ** 2)
    return np.asarray(loss)


def gradient(batch: TripleBatch, averages: Averages, settings: TransCFSettings) -> Parameters:
    """Return the gradient of the summed loss through all neighbours; rank weights are constants."""
    x, triples = batch, batch.triples
    form, pull = SCORE_FUNCTIONS[settings.variant], x.weight + settings.reg_distance
    da_i, dq_i, db_i, dn_i = form.pair_slope(pull, x.a, x.q, x.b_i, x.n_i)
    da_j, dq_j, db_j, dn_j = form.pair_slope(-x.weight, x.a, x.q, x.b_j, x.n_j)
    apart = 2 * settings.reg_neighborhood * (x.a - x.q)
    off = 2 * settings.reg_neighborhood * (x.b_i - x.n_i)
    back = 1.0 if settings.tie_neighbors else 0.0
    own = x.parameters
    users, items, bias = np.zeros(own.users.shape), np.zeros(own.items.shape), 0 * own.item_bias
    users += averages.by_item[triples.positives].T @ (dn_i - back * off)
    users += averages.by_item[x.hardest].T @ dn_j
    items += averages.by_user[triples.users].T @ (dq_i + dq_j - back * apart)
    np.add.at(users, triples.users, da_i + da_j + apart)
    np.add.at(items, triples.positives, db_i + off)
    np.add.at(items, x.hardest, db_j)
    if settings.item_bias:
        decay = 2 * settings.bias_decay * x.parameters.item_bias
        np.add.at(bias, triples.positives, decay[triples.positives] - x.weight)
        np.add.at(bias, x.hardest, decay[x.hardest] + x.weight)
    return Parameters(users, items, bias)


def sample_triples(
    problem: Problem, settings: TransCFSettings, generator: np.random.Generator
) -> Triples:
    """Draw the triples of an epoch, shuffled, for users with a positive and a negative."""
    users, positives = sample_positives(problem, settings.samples_per_user, generator)
    sizes, active = np.diff(problem.user_indptr), problem.active_items
    known = np.repeat(np.arange(problem.n_users), sizes) * problem.n_items + problem.by_user.indices
    negatives = generator.choice(active, (len(users), settings.negatives))
    while (taken := np.isin(users[:, None] * problem.n_items + negatives, known)).any():
        negatives[taken] = generator.choice(active, int(taken.sum()))
    return Triples(users, positives, negatives)


def sample_positives(
    problem: Problem, samples_per_user: int | None, generator: np.random.Generator
) -> tuple[Array, Array]:
    """Draw the users (T,) of an epoch's triples, shuffled, and one item of each (T,)."""
    sizes, active = np.diff(problem.user_indptr), problem.active_items
    eligible = np.flatnonzero((sizes > 0) & (sizes < len(active)))
    samples = problem.samples_of_users(samples_per_user)[eligible]
    users = np.repeat(eligible, samples.round().astype(np.int64))
    generator.shuffle(users)
    return users, problem.by_user.indices[_draw_interactions(problem, users, generator)]


def _draw_interactions(problem: Problem, users: Array, generator: np.random.Generator) -> Array:
    """Draw an interaction of each user by its weight, as an index into the entries."""
    starts, sizes = problem.user_indptr[:-1], np.diff(problem.user_indptr)
    if not len(problem.weights):
        return starts[users] + generator.integers(sizes[users])
    reach = np.concatenate([[0.0], np.cumsum(problem.weights, dtype=np.float64)])
    low, high = reach[starts[users]], reach[starts[users] + sizes[users]]
    found = np.searchsorted(reach, generator.uniform(low, high), side="right") - 1
    return np.clip(found, starts[users], starts[users] + sizes[users] - 1)


class ExactSolver:
    """Trains TransCF and its ablations with exact gradients; a `Trainable`."""

    def __init__(self, problem: Problem, settings: TransCFSettings) -> None:
        self._problem, self._settings, self._averages = problem, settings, Averages(problem)
        self.load_tensors(first_tensors(problem, settings))

    def tensors(self) -> Arrays:
        """Return `user_vectors`, `item_vectors` and `item_bias`."""
        return tensors_of(self._parameters)

    def load_tensors(self, tensors: Arrays) -> None:
        """Restore what `tensors` returned."""
        self._parameters = parameters_of({name: tensor.copy() for name, tensor in tensors.items()})

    def run_epoch(self, number: int) -> EpochStats:
        """Train one epoch in batches, gradients through all neighbours."""
        settings, n_active = self._settings, len(self._problem.active_items)
        generator = np.random.default_rng([settings.random_state, number])
        triples = sample_triples(self._problem, settings, generator)
        self.load_tensors(self.tensors())  # those that were returned before do not change
        own, loss, finite = self._parameters, 0.0, True
        for begin in range(0, len(triples.users), BATCH):
            some = triples[begin : begin + BATCH]
            batch = look_up(own, self._averages, some, settings, n_active)
            loss += float(losses(batch, settings).sum())
            rate, slopes = settings.rate_at(number), gradient(batch, self._averages, settings)
            for values, slope, share in (
                (own.users, slopes.users, 1.0),
                (own.items, slopes.items, 1.0),
                (own.item_bias, slopes.item_bias, BIAS_RATE),
            ):
                values -= share * rate * slope
            # Steps of a batch add up, so vectors of popular items can become very long.
            finite &= self._bound(MAX_NORM)
        finite &= self._bound(1.0)
        samples = len(triples.users)
        return EpochStats(loss / max(1, samples) if finite else np.nan, samples)

    def _bound(self, beyond: float) -> bool:
        """Project vectors longer than `beyond` into the ball; return whether all are finite."""
        own, power = self._parameters, NORM_POWERS[self._settings.norm_constraint]
        finite = True
        for matrix in (own.users, own.items):
            norms = np.linalg.norm(matrix, axis=1)
            is_long = norms > beyond
            matrix[is_long] /= norms[is_long, None] ** power
            finite &= bool(np.isfinite(norms).all())
        return finite
