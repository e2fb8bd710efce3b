"""The networks of CDAE, NeuMF, LightGCN and SASRec, and their training by Adam.

A network draws its own minibatches and maps each to the sum of its losses and an L2 penalty.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.functional import dropout, softplus

from transcf.data.csr import Csr, Histories
from transcf.io.tensors import Arrays
from transcf.kernels import Array
from transcf.models.torch.cdae import CDAESettings
from transcf.models.torch.common import NEGATIVES, NOISE, ORDER, UnseenItems, generator
from transcf.models.torch.lightgcn import LightGCNSettings, normalized
from transcf.models.torch.neumf import NeuMFSettings
from transcf.models.torch.sasrec import EPSILON, SASRecSettings
from transcf.models.training import EpochStats

Sums: TypeAlias = tuple[Tensor, Tensor | float]

#: Batches whose sequences are sorted by length together, so that little is padded.
_BATCHES_IN_POOL = 16


class Network(nn.Module):
    """Base of the networks: interactions in minibatches, each with negative samples.

    `weights` are those of the interactions, (nnz,), or empty if all are 1.
    """

    def __init__(self, by_user: Csr, weights: Array, settings: Any) -> None:
        super().__init__()
        self.by_user, self.settings, self.unseen = by_user, settings, UnseenItems(by_user)
        self.event_users = by_user.entry_rows
        self.weights = weights if len(weights) else np.ones(len(by_user.indices), np.float32)
        self.batch_size, self.negatives = settings.batch_size, getattr(settings, "negatives", 1)

    def embedding(self, rows: int, dim: int) -> nn.Embedding:
        """Return a table of normally distributed vectors."""
        table = nn.Embedding(rows, dim, dtype=torch.float32)
        nn.init.normal_(table.weight, std=self.settings.init_scale)
        return table

    def batches(self, epoch: int) -> Iterator[tuple[Array, ...]]:
        """Yield users (n,), items (n, 1 + negatives) with the user's own first, and weights (n,).

        An epoch has every interaction once, in random order, without users who have every item.
        """
        users, seed = self.event_users, self.settings.random_state
        useful = np.flatnonzero(self.unseen.lacking[users] > 0)
        order = generator(seed, epoch, ORDER).permutation(useful)
        rng = generator(seed, epoch, NEGATIVES)
        for start in range(0, len(order), self.batch_size):
            some = order[start : start + self.batch_size]
            yield users[some], self.with_negatives(some, rng), self.weights[some]

    def with_negatives(self, events: Array, rng: np.random.Generator) -> Array:
        """Return the items of interactions followed by negative samples, (n, 1 + negatives)."""
        drawn = self.unseen.draw(self.event_users[events], self.negatives, rng)
        return np.hstack([self.by_user.indices[events, None], drawn])

    def prepare(self, epoch: int) -> bool:
        """Prepare an epoch; return whether weights have changed and the optimizer starts again."""
        return False

    def penalty(self, *tensors: Tensor) -> Tensor | float:
        """Return `regularization` times the squares of all numbers."""
        weight = self.settings.regularization
        return weight * sum(tensor.square().sum() for tensor in tensors) if weight else 0.0


def binary_cross_entropy(logits: Tensor, weights: Tensor) -> Tensor:
    """Return the summed cross entropy of (n, 1 + negatives) pairs, the first of which is true."""
    target, each = torch.zeros_like(logits), torch.ones_like(logits)
    target[:, 0], each[:, 0] = 1, weights
    return functional.binary_cross_entropy_with_logits(logits, target, each, reduction="sum")


class CDAENetwork(Network):
    """Denoising autoencoder with a vector for each user."""

    settings: CDAESettings

    def __init__(self, by_user: Csr, weights: Array, settings: CDAESettings) -> None:
        super().__init__(by_user, weights, settings)
        self.users = self.embedding(by_user.n_rows, settings.dim)
        self.inputs, self.outputs = (
            self.embedding(by_user.n_columns, settings.dim) for _ in range(2)
        )
        self.output_bias = nn.Embedding(by_user.n_columns, 1, dtype=torch.float32)
        nn.init.zeros_(self.output_bias.weight)
        self.bias = nn.Parameter(torch.zeros(settings.dim, dtype=torch.float32))

    def batches(self, epoch: int) -> Iterator[tuple[Array, ...]]:
        """Yield users (n,), and four arrays about their m interactions.

        These are the places of their users (m,), whether the input keeps an interaction (m,), items
        (m, 1 + negatives) and weights (m,).
        """
        by_user, seed = self.by_user, self.settings.random_state
        rng, noise = generator(seed, epoch, NEGATIVES), generator(seed, epoch, NOISE)
        useful = np.flatnonzero((by_user.counts > 0) & (self.unseen.lacking > 0))
        order = generator(seed, epoch, ORDER).permutation(useful)
        for start in range(0, len(order), self.batch_size):
            users = order[start : start + self.batch_size]
            counts = by_user.counts[users]
            places = np.repeat(np.arange(len(users)), counts)
            first = by_user.indptr[users] - np.cumsum(counts) + counts
            events = np.arange(len(places)) + first[places]
            kept = noise.random(len(events)) >= self.settings.dropout
            yield users, places, kept, self.with_negatives(events, rng), self.weights[events]

    def forward(
        self, users: Tensor, places: Tensor, kept: Tensor, items: Tensor, weights: Tensor
    ) -> Sums:
        """Return the sums of a batch."""
        own, inputs = self.users(users), self.inputs(items[kept, 0])
        sums = torch.zeros_like(own).index_add(0, places[kept], inputs)
        hidden = torch.sigmoid(sums / (1 - self.settings.dropout) + own + self.bias)
        outputs, bias = self.outputs(items), self.output_bias(items)
        scores = (outputs @ hidden.index_select(0, places)[..., None] + bias)[..., 0]
        return binary_cross_entropy(scores, weights), self.penalty(own, inputs, outputs, bias)


class NeuMFNetwork(Network):
    """GMF, MLP, or their sum."""

    settings: NeuMFSettings
    joined: Tensor

    def __init__(self, by_user: Csr, weights: Array, settings: NeuMFSettings) -> None:
        super().__init__(by_user, weights, settings)
        self.batch_size = max(1, settings.batch_size // (1 + settings.negatives))
        self.users = self.embedding(by_user.n_rows, settings.width)
        self.items = self.embedding(by_user.n_columns, settings.width)
        wide = settings.mlp_width
        widths = [2 * wide, *(wide // 2**layer for layer in range(settings.layers))]
        has_gmf, has_mlp = settings.form != "mlp", settings.form != "gmf"
        self.gmf_head = _linear(settings.dim, 1) if has_gmf else None
        self.layers = nn.ModuleList(_linear(*pair) for pair in pairwise(widths) if has_mlp)
        self.mlp_head = _linear(settings.dim, 1) if has_mlp else None
        is_joined = settings.form != "neumf" or not settings.pretrain
        self.register_buffer("joined", torch.tensor([is_joined]))

    def forward(self, users: Tensor, items: Tensor, weights: Tensor) -> Sums:
        """Return the sums of a batch. Parts that are not joined have losses of their own."""
        user, item = self.users(users), self.items(items)
        logits = self.logits(user[:, None].expand_as(item), item)
        if self.joined:
            logits = [torch.stack(logits).sum(dim=0)]
        losses = torch.stack([binary_cross_entropy(part, weights) for part in logits]).sum()
        return losses, items.shape[1] * self.penalty(user) + self.penalty(item)

    def logits(self, user: Tensor, item: Tensor) -> list[Tensor]:
        """Return the logits of the parts that the model has, GMF before MLP."""
        found, cut = [], self.settings.gmf_width
        if self.gmf_head is not None:
            found.append(self.gmf_head(user[..., :cut] * item[..., :cut])[..., 0])
        if self.mlp_head is not None:
            x = torch.cat([user[..., cut:], item[..., cut:]], dim=-1)
            for layer in self.layers:
                x = torch.relu(layer(x))
            found.append(self.mlp_head(x)[..., 0])
        return found

    def prepare(self, epoch: int) -> bool:
        """After pretraining, make one model of both parts, whose logit is the mean of theirs."""
        if self.joined or epoch <= self.settings.pretrain:
            return False
        with torch.no_grad():
            for name, values in self.named_parameters():
                if "_head." in name:
                    values.mul_(0.5)
            self.joined.fill_(True)
        return True


def _linear(inputs: int, outputs: int) -> nn.Linear:
    """Return a layer whose outputs have the variance of its inputs at first."""
    layer = nn.Linear(inputs, outputs, dtype=torch.float32)
    edge = (3 / inputs) ** 0.5
    nn.init.uniform_(layer.weight, -edge, edge)
    nn.init.zeros_(layer.bias)
    return layer


class LightGCNNetwork(Network):
    """Vectors of users, then of items, averaged over the layers of the interaction graph."""

    settings: LightGCNSettings
    graph: Tensor

    def __init__(self, by_user: Csr, weights: Array, settings: LightGCNSettings) -> None:
        super().__init__(by_user, weights, settings)
        self.vectors = self.embedding(by_user.n_rows + by_user.n_columns, settings.dim)
        half: Any = normalized(by_user)
        both = sp.csr_array(sp.block_array([[None, half], [half.T, None]]))
        indptr, indices = both.indptr.astype(np.int32), both.indices.astype(np.int32)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # torch calls CSR matrices a beta feature
            starts, columns, values = map(torch.from_numpy, (indptr, indices, both.data))
            graph = torch.sparse_csr_tensor(starts, columns, values, size=both.shape)
        self.register_buffer("graph", graph, persistent=False)

    def forward(self, users: Tensor, items: Tensor, weights: Tensor) -> Sums:
        """Return the sums of a batch."""
        smoothed = self.smoothed()
        rows = torch.cat([users[:, None], items + self.by_user.n_rows], dim=1)
        chosen = smoothed.index_select(0, rows.flatten()).view(*rows.shape, -1)
        user, own, other = chosen.unbind(dim=1)
        losses = torch.dot(softplus((user * (other - own)).sum(dim=1)), weights)
        return losses, self.penalty(self.vectors(rows))

    def smoothed(self) -> Tensor:
        """Return the means over the layers of all vectors."""
        product: Any = _SymmetricProduct.apply  # has no types
        vectors = sums = self.vectors.weight
        for _ in range(self.settings.layers):
            sums = vectors + product(self.graph, sums)
        return sums / (1 + self.settings.layers)


class _SymmetricProduct(torch.autograd.Function):
    """`matrix @ vectors` for a symmetric sparse matrix: the gradient needs no slow transpose."""

    @staticmethod
    def forward(ctx: Any, matrix: Tensor, vectors: Tensor) -> Tensor:
        ctx.matrix = matrix
        return matrix @ vectors

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, Tensor]:
        return None, ctx.matrix @ gradients[0]


class SASRecNetwork(Network):
    """Transformer over sequences of items; weights are those of the events of histories."""

    settings: SASRecSettings

    def __init__(self, histories: Histories, weights: Array, settings: SASRecSettings) -> None:
        super().__init__(histories.matrix, weights, settings)
        self.events, self.trained = histories.items, np.unique(histories.items)
        self.firsts, self.lengths = sequences(histories, settings.max_length)
        self.items = self.embedding(histories.n_items, settings.dim)
        shapes = {
            name: torch.zeros(shape, dtype=torch.float32)
            for name, shape in settings.shapes().items()
        }
        for name in ("attention", "feed_forward"):
            for matrix in shapes[name].flatten(0, 1):
                nn.init.xavier_uniform_(matrix)
        nn.init.normal_(shapes["position_vectors"], std=settings.init_scale)
        shapes["norms"][:, 0] = 1
        self.position_vectors = nn.Parameter(shapes["position_vectors"])
        self.attention = nn.Parameter(shapes["attention"])
        self.feed_forward = nn.Parameter(shapes["feed_forward"])
        self.feed_forward_bias = nn.Parameter(shapes["feed_forward_bias"])
        self.norms = nn.Parameter(shapes["norms"])

    def batches(self, epoch: int) -> Iterator[tuple[Array, ...]]:
        """Yield batches of sequences of similar length, in random order.

        These are items (n, length), the number of those that are no padding (n,), the next items
        (m,) of all inputs that are none, drawn items (negatives,), and weights (m,).
        """
        seed = self.settings.random_state
        order, draws = generator(seed, epoch, ORDER), generator(seed, epoch, NEGATIVES)
        rows = order.permutation(len(self.lengths))
        pools = np.cumsum(self.lengths[rows]) // (_BATCHES_IN_POOL * self.batch_size)
        rows = rows[np.lexsort((self.lengths[rows], pools))]
        numbers = np.cumsum(self.lengths[rows]) // self.batch_size
        batches = np.split(rows, np.flatnonzero(np.diff(numbers)) + 1) if len(rows) else []
        for place in order.permutation(len(batches)):
            some = batches[place]
            lengths = self.lengths[some]
            steps = np.arange(lengths.max())
            places = np.minimum(self.firsts[some, None] + steps, len(self.events) - 1)
            targets = places[steps < lengths[:, None]] + 1
            drawn = draws.choice(self.trained, self.negatives)
            yield self.events[places], lengths, self.events[targets], drawn, self.weights[targets]

    def forward(
        self, items: Tensor, lengths: Tensor, targets: Tensor, drawn: Tensor, weights: Tensor
    ) -> Sums:
        """Return the sums of a batch."""
        steps = torch.arange(items.shape[1], device=items.device)
        outputs = self.outputs(items, lengths)[steps < lengths[:, None]]
        own, others = self.items(targets), self.items(drawn)
        positive, negative = (outputs * own).sum(dim=1), outputs @ others.T
        negative = negative.masked_fill(targets[:, None] == drawn, -torch.inf)
        if self.settings.loss == "softmax":
            logits = torch.cat([positive[:, None], negative], dim=1)
            first = torch.zeros_like(targets)
            losses = functional.cross_entropy(logits, first, reduction="none")
        else:
            share = min(1.0, self.negatives / max(1, len(self.trained) - 1))
            beta = 1 - self.settings.calibration * (1 - share)
            losses = beta * softplus(-positive) + softplus(negative).sum(dim=1)
        return torch.dot(losses, weights), self.penalty(own, others)

    def outputs(self, items: Tensor, lengths: Tensor) -> Tensor:
        """Return the outputs of sequences, (n, length, dim); padding comes last in a sequence."""
        settings, rate = self.settings, self.settings.dropout
        n, length = items.shape
        heads = (n, length, settings.heads, settings.dim // settings.heads)
        ago = lengths[:, None] - 1 - torch.arange(length, device=items.device)
        positions = self.position_vectors[ago.clamp(min=0)]
        x = dropout(self.items(items) * math.sqrt(settings.dim) + positions, rate, self.training)
        for layer in range(settings.layers):
            q = self.normalized(x, 2 * layer)
            query, key, value = (
                (inputs @ matrix).view(heads).transpose(1, 2)
                for inputs, matrix in zip((q, x, x), self.attention[layer], strict=True)
            )
            # No mask of the padding is needed: it comes after all items that are looked at.
            means = functional.scaled_dot_product_attention(
                query, key, value, dropout_p=rate if self.training else 0.0, is_causal=True
            )
            means = means.transpose(1, 2).reshape(n, length, settings.dim)
            z = self.normalized(q + dropout(means, rate, self.training), 2 * layer + 1)
            inner, outer = self.feed_forward[layer]
            inner_bias, outer_bias = self.feed_forward_bias[layer]
            hidden = dropout(torch.relu(z @ inner + inner_bias), rate, self.training)
            x = z + dropout(hidden @ outer + outer_bias, rate, self.training)
        return self.normalized(x, -1)

    def normalized(self, x: Tensor, number: int) -> Tensor:
        """Return the layer normalization of vectors."""
        gain, bias = self.norms[number]
        return functional.layer_norm(x, (self.settings.dim,), gain, bias, EPSILON)


def sequences(histories: Histories, most: int) -> tuple[Array, Array]:
    """Cut histories into sequences of at most `most` inputs: first events, and lengths, (n,) each.

    They are cut from the end. All events but the first are the next item of one input.
    """
    firsts, lengths = [], []
    inputs = np.maximum(histories.counts - 1, 0)
    for number in range(-(-int(inputs.max(initial=0)) // most)):
        stop = inputs - number * most
        rows = np.flatnonzero(stop > 0)
        length = np.minimum(stop[rows], most)
        firsts.append(histories.indptr[rows] + stop[rows] - length)
        lengths.append(length)
    empty = np.empty(0, np.int64)
    return np.concatenate([empty, *firsts]), np.concatenate([empty, *lengths])


@contextmanager
def isolated(seed: int) -> Iterator[None]:
    """Run torch on one thread, on which the order of sums depends, with a generator of its own."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.enable_grad(), torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            yield
    finally:
        torch.set_num_threads(before)


class AdamTraining:
    """Trains a network of some kind by Adam, one epoch of minibatches at a time."""

    def __init__(
        self, kind: Callable[[Any, Array, Any], Network], data: Any, weights: Array, settings: Any,
        device: torch.device,
    ) -> None:  # fmt: skip
        with isolated(settings.random_state):
            self.network = kind(data, weights, settings).to(device)
        self._settings, self._device = settings, device
        self._adam = self._new_adam()

    def _new_adam(self) -> torch.optim.Adam:
        rate = self._settings.learning_rate
        return torch.optim.Adam(self.network.parameters(), lr=rate, fused=True)

    def run_epoch(self, number: int) -> EpochStats:
        """Train on the minibatches of an epoch; the loss is the mean over interactions."""
        network = self.network
        if network.prepare(number):
            self._adam = self._new_adam()
        total, samples = torch.zeros((), device=self._device), 0
        # Dropout depends on the epoch, not on those before: a run can be resumed.
        seed = generator(self._settings.random_state, number, NOISE).integers(2**63)
        with isolated(int(seed)):
            for batch in network.batches(number):
                losses, penalty = network(*map(self._put, batch))
                self._adam.zero_grad()
                (losses + penalty).backward()
                self._adam.step()
                total += losses.detach()
                samples += len(batch[-1])
        return EpochStats(float(total) / max(1, samples), samples)

    def _put(self, array: Array) -> Tensor:
        wide = array.astype(np.int64) if array.dtype == np.int32 else array
        return torch.from_numpy(wide).to(self._device)

    def tensors(self) -> Arrays:
        """Return the state of the network, and Adam's moments once there are any."""
        found = dict(self.network.state_dict())
        for name, values in self.network.named_parameters():
            moments = self._adam.state.get(values, {})
            found |= {f"{name}.{part}": moment for part, moment in moments.items()}
        return {name: values.cpu().numpy() for name, values in found.items()}

    def load_tensors(self, tensors: Arrays) -> None:
        """Restore what `tensors` returned."""
        found = {name: torch.tensor(array) for name, array in tensors.items()}
        self.network.load_state_dict({name: found[name] for name in self.network.state_dict()})
        self._adam = self._new_adam()
        for name, values in self.network.named_parameters():
            if f"{name}.step" in found:
                parts = ("step", "exp_avg", "exp_avg_sq")
                moments = {part: found[f"{name}.{part}"].to(self._device) for part in parts}
                self._adam.state[values] = moments
