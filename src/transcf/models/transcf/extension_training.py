"""Training of TransCF's extensions: autograd on the published objective, with Adam."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import numpy as np
import scipy.sparse as sp
import torch
from torch.nn.functional import embedding_bag

from transcf.data.csr import Csr
from transcf.io.tensors import Arrays
from transcf.kernels import Array
from transcf.models.factors import first_vectors
from transcf.models.torch.common import (
    INIT,
    NEGATIVES,
    NOISE,
    ORDER,
    UnseenItems,
    generator,
    one_thread,
)
from transcf.models.training import EpochStats
from transcf.models.transcf.extensions import ExtensionSettings, NeighborMeans
from transcf.models.transcf.solver_exact import sample_positives
from transcf.models.transcf.solver_fast import BIAS_DECAY, BIAS_RATE
from transcf.models.triples import Problem, rank_weights

#: Neighbourhoods of T users with C items each: q, (T, C or 1, dim), and n, (T, C, dim).
Near: TypeAlias = tuple[torch.Tensor, torch.Tensor]

#: Logit of neighbours that are left out.
_MASKED = -1e30


class TorchParameters(NamedTuple):
    """What is trained: users (n_users, dim), items (n_items, dim), bias (n_items,), weights."""

    users: torch.Tensor
    items: torch.Tensor
    bias: torch.Tensor
    weights: dict[str, torch.Tensor]


def mean_neighborhoods(
    means: NeighborMeans, own: TorchParameters, users: Array, items: Array
) -> Near:
    """Return the neighbourhoods of users (T,) and of items (T, C) as weighted means."""
    q = _weighted_sums(means.user_items, users, own.items)
    flat = items.ravel()
    n = _weighted_sums(means.item_users, flat, own.users)
    if means.user_users is not None:
        q = q + _weighted_sums(means.user_users, users, own.users)
    if means.item_categories is not None and means.members is not None and means.own is not None:
        centres = _weighted_sums(means.members, np.arange(means.members.shape[0]), own.items)
        itself = torch.as_tensor(means.own[flat, None]).to(own.items)
        n = n + _weighted_sums(means.item_categories, flat, centres)
        n = n - itself * _rows(own.items, torch.as_tensor(flat).to(own.items.device))
    return q[:, None], n.view(*items.shape, -1)


def _weighted_sums(matrix: sp.csr_array, rows: Array, table: torch.Tensor) -> torch.Tensor:
    """Return some rows of matrix @ table, (n, dim)."""
    rows, places = np.unique(rows, return_inverse=True)
    some, device = matrix[rows], table.device
    weights = torch.as_tensor(some.data).to(table)
    indices = torch.as_tensor(some.indices.astype(np.int64)).to(device)
    starts = torch.as_tensor(some.indptr[:-1].astype(np.int64)).to(device)
    sums = embedding_bag(indices, table, starts, per_sample_weights=weights, mode="sum")
    return _rows(sums, torch.as_tensor(places).to(device))


def _rows(table: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """Return rows of a table; the backward pass of index_select is faster than that of brackets."""
    return table.index_select(0, rows.flatten()).view(*rows.shape, *table.shape[1:])


class SampledNeighbors:
    """At most `limit` neighbours of each row of a CSR matrix: a random window of a random order."""

    def __init__(self, indptr: Array, indices: Array, limit: int, rng: np.random.Generator) -> None:
        counts = np.diff(indptr)
        order = np.lexsort((rng.random(len(indices)), np.repeat(np.arange(len(counts)), counts)))
        self._indptr, self._indices, self._limit = indptr, indices[order].astype(np.int64), limit
        self._rng = rng

    def of(self, rows: Array) -> tuple[torch.Tensor, torch.Tensor]:
        """Return neighbours of rows (n,), and which of them do not exist, (n, limit) each."""
        counts = np.diff(self._indptr)[rows]
        places = np.arange(self._limit)
        first = (self._rng.random(len(rows)) * counts).astype(np.int64)
        window = (first[:, None] + places) % np.maximum(counts, 1)[:, None]
        found = self._indices[np.minimum(self._indptr[rows, None] + window, len(self._indices) - 1)]
        return torch.as_tensor(found), torch.as_tensor(places >= counts[:, None])


def attended_neighborhoods(
    own: TorchParameters, users: torch.Tensor, items: torch.Tensor,
    history: tuple[torch.Tensor, torch.Tensor], owners: tuple[torch.Tensor, torch.Tensor],
) -> Near:  # fmt: skip
    """Return neighbourhoods weighted by attention; a pair's own item and user are left out.

    Args:
        own: Vectors and weights.
        users: (T,).
        items: (T, C).
        history: Items of the users, and which do not exist, (T, L) each.
        owners: Users of the items, and which do not exist, (T, C, S) each.
    """
    scales = own.weights["temperatures"].exp()
    past, owner_vectors = _rows(own.items, history[0]), _rows(own.users, owners[0])
    a, b = _rows(own.users, users), _rows(own.items, items)
    logits = (b * own.weights["item_attention"] * scales[0]) @ past.transpose(1, 2)
    absent = history[1][:, None] | (history[0][:, None] == items[:, :, None])
    q = _shares(logits, absent) @ past
    query = a * own.weights["user_attention"] * scales[1]
    logits = (owner_vectors * query[:, None, None]).sum(-1)
    absent = owners[1] | (owners[0] == users[:, None, None])
    n = (_shares(logits, absent)[..., None] * owner_vectors).sum(2)
    return q, n


def _shares(logits: torch.Tensor, absent: torch.Tensor) -> torch.Tensor:
    """Softmax over the neighbours that exist; zeros where there are none."""
    return torch.softmax(logits.masked_fill(absent, _MASKED), dim=-1) * ~absent


def pair_costs(
    settings: ExtensionSettings, own: TorchParameters, near: Near,
    users: torch.Tensor, items: torch.Tensor,
) -> torch.Tensor:  # fmt: skip
    """Return minus the scores of pairs without bias, (T, C)."""
    q, n = near
    r = q * n
    if settings.extension == "map":
        sums = q @ own.weights["map_q"] + n @ own.weights["map_n"] + own.weights["map_bias"]
        r = r + torch.tanh(sums) @ own.weights["map_out"]
    a, b = _rows(own.users, users)[:, None], _rows(own.items, items)
    difference = b + r - a if settings.extension == "swapped" else a + r - b
    return difference.square().sum(-1)


def triple_losses(
    settings: ExtensionSettings, own: TorchParameters, near: Near,
    users: torch.Tensor, items: torch.Tensor, hinge_weights: torch.Tensor,
) -> torch.Tensor:  # fmt: skip
    """Return the loss of triples, (T,).

    Args:
        settings: Those of the model.
        own: What is trained.
        near: Neighbourhoods of the pairs.
        users: (T,).
        items: The positive and the hardest negative of each, (T, 2).
        hinge_weights: 0 where the margin is kept, else by the rank of the positive, (T,).
    """
    costs = pair_costs(settings, own, near, users, items)
    bias = _rows(own.bias, items)
    above = costs - bias
    hinge = hinge_weights * (settings.margin + above[:, 0] - above[:, 1])
    spread = _spread(_rows(own.users, users), near[0][:, 0])
    spread = spread + _spread(_rows(own.items, items[:, 0]), near[1][:, 0])
    loss = hinge + settings.reg_distance * costs[:, 0] + settings.reg_neighborhood * spread
    return loss + BIAS_DECAY * bias.square().sum(1)


def _spread(vectors: torch.Tensor, means: torch.Tensor) -> torch.Tensor:
    """Squared distances of vectors from constant means, 0 where there are no neighbours: (T,)."""
    fixed = means.detach()
    return (vectors - fixed).square().sum(1) * (fixed != 0).any(1)


class ExtensionTraining:
    """Vectors, biases and weights, and an epoch of Adam's steps on triples."""

    def __init__(
        self, problem: Problem, settings: ExtensionSettings, means: NeighborMeans, device: Any
    ) -> None:
        self._problem, self._settings, self._means, self._device = problem, settings, means, device
        self._unseen = UnseenItems(Csr(problem.user_indptr, problem.user_indices, problem.n_items))
        ranks = rank_weights(settings.negatives, len(problem.active_items))
        self._rank_weights = torch.as_tensor(ranks.astype(np.float32)).to(device)
        rng = generator(settings.random_state, 0, INIT)
        sizes = (problem.n_users, problem.n_items)
        users, items = first_vectors(sizes, settings.dim, settings.init_scale, rng, np.float32)
        first = {"user_vectors": users, "item_vectors": items}
        first["item_bias"] = np.zeros(problem.n_items, np.float32)
        for name, shape in settings.weight_shapes().items():
            drawn = rng.standard_normal(shape) if name in ("map_q", "map_n") else np.zeros(shape)
            first[name] = drawn.astype(np.float32)
        self.load_tensors(first)

    def run_epoch(self, number: int) -> EpochStats:
        """Train on the triples of an epoch, batch by batch."""
        settings, problem, seed = self._settings, self._problem, self._settings.random_state
        noise, drawing = generator(seed, number, NOISE), generator(seed, number, NEGATIVES)
        users, positives = sample_positives(problem, None, generator(seed, number, ORDER))
        limit = settings.max_neighbors
        self._history = SampledNeighbors(problem.user_indptr, problem.user_indices, limit, noise)
        self._owners = SampledNeighbors(problem.item_indptr, problem.item_indices, limit, noise)
        total = 0.0
        with one_thread():
            for start in range(0, len(users), settings.batch_size):
                some = slice(start, start + settings.batch_size)
                rate = settings.rate_at(number + start / len(users))
                others = self._unseen.draw(users[some], settings.negatives, drawing)
                candidates = np.hstack([positives[some, None], others]).astype(np.int64)
                total += self._step(users[some].astype(np.int64), candidates, rate)
        return EpochStats(total / max(1, len(users)), len(users))

    def _near(self, users: Array, items: Array) -> Near:
        own = self._own
        if self._settings.extension != "attention":
            return mean_neighborhoods(self._means, own, users, items)
        history = tuple(part.to(self._device) for part in self._history.of(users))
        shape = (*items.shape, self._settings.max_neighbors)
        owners = tuple(p.view(shape).to(self._device) for p in self._owners.of(items.ravel()))
        rows, columns = self._put(users), self._put(items)
        return attended_neighborhoods(own, rows, columns, history, owners)  # type: ignore[arg-type]

    def _put(self, rows: Array) -> torch.Tensor:
        return torch.as_tensor(rows).to(self._device)

    def _step(self, users: Array, candidates: Array, rate: float) -> float:
        """Take a step on the hardest negative of each user; returns the sum of the losses."""
        settings, own, rows = self._settings, self._own, self._put(users)
        with torch.no_grad():
            near, columns = self._near(users, candidates), self._put(candidates)
            above = pair_costs(settings, own, near, rows, columns) - own.bias[columns]
            gaps = settings.margin + above[:, :1] - above[:, 1:]
            weights = self._rank_weights[(gaps > 0).sum(1)]
            hardest = 1 + gaps.argmax(1).cpu().numpy()
        items = np.stack([candidates[:, 0], candidates[np.arange(len(users)), hardest]], axis=1)
        near, columns = self._near(users, items), self._put(items)
        loss = triple_losses(settings, own, near, rows, columns, weights).sum()
        self._optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        for group, multiple in zip(self._optimizer.param_groups, (1, BIAS_RATE), strict=True):
            group["lr"] = multiple * rate
        self._optimizer.step()
        with torch.no_grad():
            for vectors in (own.users, own.items):
                vectors.div_(vectors.norm(dim=1, keepdim=True).clamp(min=1))
        return float(loss.detach())

    def tensors(self) -> Arrays:
        """Return the parameters, and Adam's moments of each once there are any."""
        found: Arrays = {}
        for name, values in self._named.items():
            found[name] = values.detach().cpu().numpy()
            for part, moment in self._optimizer.state.get(values, {}).items():
                found[f"{name}.{part}"] = moment.cpu().numpy()
        return found

    def load_tensors(self, tensors: Arrays) -> None:
        """Put back what `tensors` returned."""
        names = ["user_vectors", "item_vectors", "item_bias", *self._settings.weight_shapes()]
        self._named = {
            name: torch.tensor(tensors[name], device=self._device, requires_grad=True)
            for name in names
        }
        others = [values for name, values in self._named.items() if name != "item_bias"]
        groups = [{"params": others}, {"params": [self._named["item_bias"]]}]
        self._optimizer = torch.optim.Adam(groups, lr=self._settings.learning_rate)
        for name, values in self._named.items():
            if f"{name}.step" in tensors:
                self._optimizer.state[values] = {
                    part: torch.tensor(tensors[f"{name}.{part}"], device=self._device)
                    for part in ("step", "exp_avg", "exp_avg_sq")
                }
        users, items, bias = (self._named[name] for name in names[:3])
        self._own = TorchParameters(users, items, bias, {n: self._named[n] for n in names[3:]})
