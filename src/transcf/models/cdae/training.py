"""How CDAE is trained: users in batches, each with what is left of their items."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from torch.nn.functional import binary_cross_entropy_with_logits, mse_loss

from transcf.data.csr import Csr
from transcf.io.tensors import Arrays
from transcf.kernels import Array
from transcf.models.cdae.settings import CDAESettings, Loss
from transcf.models.event_weights import EVEN
from transcf.models.torch.draws import (
    INIT,
    NEGATIVES,
    NOISE,
    ORDER,
    UnseenItems,
    generator,
)
from transcf.models.torch.library import one_thread
from transcf.models.torch.products import pair_products
from transcf.models.torch.rows import DenseParameters, RowTable, Taken, distinct, pull, put
from transcf.models.training import EpochStats
from transcf.models.vectors import first_vectors


class Batch(NamedTuple):
    """Some users and what they are shown.

    Attributes:
        users: (n,) rows.
        places: (m,) of each interaction of theirs, the place of its user in `users`.
        items: (m, 1 + negatives) item rows, the user's own first.
        kept: (m,) interactions that the input has.
        counts: (m,) how much each interaction counts; empty where all count 1.
    """

    users: torch.Tensor
    places: torch.Tensor
    items: torch.Tensor
    kept: torch.Tensor
    counts: torch.Tensor


class Gradients(NamedTuple):
    """The loss of a batch, and what it and the regularization ask of rows and of the bias."""

    loss: torch.Tensor
    nodes: tuple[Taken, torch.Tensor]
    inputs: tuple[Taken, torch.Tensor]
    outputs: tuple[Taken, torch.Tensor]
    bias: torch.Tensor


def hidden(
    nodes: torch.Tensor,
    bias: torch.Tensor,
    inputs: torch.Tensor,
    places: torch.Tensor,
    scale: float,
) -> torch.Tensor:
    """`sigmoid(scale * sum of W_i + V_u + b)`.

    Args:
        nodes: V of the users, (n, d).
        bias: b, (d,).
        inputs: W of every item that an input has, (k, d).
        places: (k,) whose it is.
        scale: Makes up for what was dropped.
    """
    sums = torch.zeros_like(nodes).index_add(0, places, inputs)
    return torch.sigmoid(sums * scale + nodes + bias)


def pair_loss(
    loss: Loss,
    states: torch.Tensor,
    outputs: torch.Tensor,
    places: torch.Tensor,
    items: torch.Tensor,
    counts: torch.Tensor | None = None,
) -> torch.Tensor:
    """Loss of all pairs, for each user.

    Args:
        loss: Which one.
        states: h of the users, (n, d).
        outputs: [W', b'] of items, (n_outputs, d + 1).
        places: (m,) whose the interactions are, rows of `states`.
        items: (m, 1 + negatives) the interaction's item and its negatives, rows of `outputs`.
        counts: (m,) how much the interactions count; all 1 if None.
    """
    biases = outputs[:, -1].index_select(0, items.flatten()).view(items.shape)
    scores = pair_products(states, outputs[:, :-1], places, items) + biases
    truth = torch.zeros_like(scores)
    truth[:, 0] = 1
    compare = binary_cross_entropy_with_logits if loss == "logistic" else mse_loss
    if counts is None:
        return compare(scores, truth, reduction="sum") / len(states)
    losses = compare(scores, truth, reduction="none")
    return (torch.dot(losses[:, 0], counts) + losses[:, 1:].sum()) / len(states)


class CDAETraining:
    """The autoencoder's parameters, as the loop wants them.

    Args:
        by_user: The interactions.
        settings: The model's.
        device: Where to train.
        counts: How much each interaction counts, (nnz,) float32; empty where all count 1.
    """

    def __init__(
        self, by_user: Csr, settings: CDAESettings, device: torch.device, counts: Array = EVEN
    ) -> None:
        """Draw the first values."""
        self._settings, self._device, self._by_user = settings, device, by_user
        self._counts = counts
        self._unseen = UnseenItems(by_user)
        # Who has nothing or everything gives no pairs to tell apart.
        self._useful = np.flatnonzero((by_user.counts > 0) & (self._unseen.lacking > 0))
        dim, rate = settings.dim, settings.learning_rate
        first = partial(
            first_vectors,
            scale=settings.init_scale,
            generator=generator(settings.random_state, 0, INIT),
            drawn_in=np.float32,
        )
        (outputs,) = first([by_user.n_columns], dim + 1)
        outputs[:, dim] = 0
        inputs, nodes = first([by_user.n_columns, by_user.n_rows], dim)
        self._inputs = RowTable(inputs, rate, device)
        self._nodes = RowTable(nodes, rate, device)
        self._outputs = RowTable(outputs, rate, device)
        self._bias = DenseParameters({"bias": np.zeros(dim, np.float32)}, rate, device)

    def run_epoch(self, number: int) -> EpochStats:
        """Show every user once, in random order."""
        loss, pairs = torch.zeros((), device=self._device), 0
        with one_thread():
            for batch in self._batches(number):
                loss += self._step(batch) * len(batch.users)
                pairs += batch.items.numel()
        return EpochStats(float(loss) / max(1, pairs), pairs)

    def _batches(self, number: int) -> Iterator[Batch]:
        """Draw what the epoch shows, and cut it."""
        settings, by_user = self._settings, self._by_user
        drawing = partial(generator, settings.random_state, number)
        users = self._useful[drawing(ORDER).permutation(len(self._useful))]
        counts = by_user.counts[users]
        ends = np.cumsum(counts)
        entries = np.arange(ends[-1] if len(ends) else 0) + np.repeat(
            by_user.indptr[users] - ends + counts, counts
        )
        rng = drawing(NEGATIVES)
        negatives = self._unseen.draw(np.repeat(users, counts), settings.negatives, rng)
        items = np.hstack([by_user.indices[entries][:, None], negatives])
        kept = drawing(NOISE).random(len(entries)) >= settings.dropout
        weights = self._counts[entries] if len(self._counts) else self._counts
        for start in range(0, len(users), settings.batch_size):
            stop = min(start + settings.batch_size, len(users))
            some = slice(ends[start] - counts[start], ends[stop - 1])
            places = np.repeat(np.arange(stop - start), counts[start:stop])
            shown = items[some].astype(np.int64)
            parts = (users[start:stop], places, shown, kept[some], weights[some])
            yield Batch(*(put(part, self._device) for part in parts))

    def _step(self, batch: Batch) -> torch.Tensor:
        """Learn from a batch; returns its loss."""
        found = self.gradients(batch)
        self._nodes.step(*found.nodes)
        self._inputs.step(*found.inputs)
        self._outputs.step(*found.outputs)
        self._bias.step({"bias": found.bias})
        return found.loss

    def gradients(self, batch: Batch) -> Gradients:
        """Return the loss of a batch for each user, and what it asks for."""
        settings, users = self._settings, len(batch.users)
        in_rows, in_places, in_counts = distinct(batch.items[batch.kept, 0])
        out_rows, out_places, out_counts = distinct(batch.items.flatten())
        nodes, inputs = self._nodes.take(batch.users), self._inputs.take(in_rows)
        outputs = self._outputs.take(out_rows)
        bias = self._bias.values["bias"]
        states = hidden(
            nodes.values,
            bias,
            inputs.values.index_select(0, in_places),
            batch.places[batch.kept],
            1 / (1 - settings.dropout),
        )
        places = out_places.view(batch.items.shape)
        counts = batch.counts if len(batch.counts) else None
        loss = pair_loss(settings.loss, states, outputs.values, batch.places, places, counts)
        leaves = [nodes.values, inputs.values, outputs.values, bias]
        to_nodes, to_inputs, to_outputs, to_bias = torch.autograd.grad(loss, leaves)
        weight = settings.regularization / users
        return Gradients(
            loss=loss.detach(),
            nodes=(nodes, pull(to_nodes, nodes, torch.ones_like(batch.users), weight)),
            inputs=(inputs, pull(to_inputs, inputs, in_counts, weight)),
            outputs=(outputs, pull(to_outputs, outputs, out_counts, weight)),
            bias=to_bias,
        )

    def tensors(self) -> Arrays:
        """Return all that the next epoch depends on."""
        return {
            **self._nodes.tensors("nodes"),
            **self._inputs.tensors("inputs"),
            **self._outputs.tensors("outputs"),
            **self._bias.tensors(),
        }

    def load_tensors(self, tensors: Arrays) -> None:
        """Put back what `tensors` returned."""
        self._nodes.load("nodes", tensors)
        self._inputs.load("inputs", tensors)
        self._outputs.load("outputs", tensors)
        self._bias.load(tensors)
