"""The network of SASRec."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import (
    cross_entropy,
    dropout,
    layer_norm,
    scaled_dot_product_attention,
    softplus,
)

from transcf.data.csr import Histories
from transcf.kernels import Array
from transcf.models.torch.common import NEGATIVES, ORDER, generator
from transcf.models.torch.networks import Network, Sums
from transcf.models.torch.sasrec import EPSILON, SASRecSettings

#: Batches whose sequences are sorted by length together, so that little is padded.
_BATCHES_IN_POOL = 16


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
            losses = cross_entropy(logits, first, reduction="none")
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
            means = scaled_dot_product_attention(
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
        return layer_norm(x, (self.settings.dim,), gain, bias, EPSILON)


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
