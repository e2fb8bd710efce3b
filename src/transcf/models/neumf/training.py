"""How NeuMF is trained: GMF, MLP, and both in one."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np
import torch
from torch.nn.functional import binary_cross_entropy_with_logits

from transcf.data.csr import Csr
from transcf.io.tensors import Arrays
from transcf.kernels import Array
from transcf.models.event_weights import EVEN
from transcf.models.neumf.settings import NeuMFSettings
from transcf.models.neumf.weights import initial_weights, mixed
from transcf.models.torch.draws import INIT, SampledInteractions, generator
from transcf.models.torch.library import one_thread
from transcf.models.torch.rows import DenseParameters, RowTable, Taken, distinct, pull, put
from transcf.models.training import EpochStats
from transcf.models.vectors import first_vectors

Weights: TypeAlias = dict[str, torch.Tensor]


class Gradients(NamedTuple):
    """The loss of a batch, and what it and the regularization ask of rows and of the weights."""

    loss: torch.Tensor
    users: tuple[Taken, torch.Tensor]
    items: tuple[Taken, torch.Tensor]
    weights: Weights


def gmf_logits(users: torch.Tensor, items: torch.Tensor, weights: Weights) -> torch.Tensor:
    """`h . (p * q) + c`: users (n, d) against items (n, m, d), (n, m)."""
    weighted = (users * weights["gmf_head"])[:, None]
    return (weighted * items).sum(dim=2) + weights["gmf_bias"]


def mlp_logits(users: torch.Tensor, items: torch.Tensor, weights: Weights) -> torch.Tensor:
    """The tower over `[p, q]`: users (n, d) against items (n, m, d), (n, m).

    The first layer is a sum of a user's and an item's part, so the user's is computed once.
    """
    of_users = users @ weights["user_weight"] + weights["bias_1"]
    x = torch.relu(of_users[:, None] + items @ weights["item_weight"])
    layer = 2
    while f"weight_{layer}" in weights:
        x = torch.relu(x @ weights[f"weight_{layer}"] + weights[f"bias_{layer}"])
        layer += 1
    return x @ weights["mlp_head"] + weights["mlp_bias"]


def batch_loss(
    settings: NeuMFSettings,
    users: torch.Tensor,
    items: torch.Tensor,
    weights: Weights,
    *,
    joined: bool,
    counts: torch.Tensor | None = None,
) -> torch.Tensor:
    """Mean cross entropy of pairs whose first item is the user's own.

    Args:
        settings: The model's.
        users: (n, width).
        items: (n, 1 + negatives, width).
        weights: All that is neither a user's nor an item's.
        joined: Whether both parts add up to one answer; else each has to answer alone, which
            trains two models at once that share nothing.
        counts: (n,) how much the pairs with the user's own item count; all 1 if None.
    """
    cut = settings.gmf_width
    answers = []
    if settings.form != "mlp":
        answers.append(gmf_logits(users[:, :cut], items[..., :cut], weights))
    if settings.form != "gmf":
        answers.append(mlp_logits(users[:, cut:], items[..., cut:], weights))
    if joined:
        answers = [torch.stack(answers).sum(dim=0)]
    truth = torch.zeros_like(answers[0])
    truth[:, 0] = 1
    each = None
    if counts is not None:
        each = torch.ones_like(truth)
        each[:, 0] = counts
    losses = [binary_cross_entropy_with_logits(answer, truth, each) for answer in answers]
    return torch.stack(losses).sum()


class NeuMFTraining:
    """Users, items and weights, as the loop wants them.

    Args:
        by_user: The interactions.
        settings: The model's.
        device: Where to train.
        counts: How much each interaction counts, (nnz,) float32; empty where all count 1.
    """

    def __init__(
        self, by_user: Csr, settings: NeuMFSettings, device: torch.device, counts: Array = EVEN
    ) -> None:
        """Draw the first values."""
        self._settings, self._device = settings, device
        self._interactions = SampledInteractions(by_user, counts)
        rng, rate = generator(settings.random_state, 0, INIT), settings.learning_rate
        sizes, width = (by_user.n_rows, by_user.n_columns), settings.width
        first = first_vectors(sizes, width, settings.init_scale, rng, drawn_in=np.float32)
        self._users, self._items = (RowTable(values, rate, device) for values in first)
        self._weights = DenseParameters(initial_weights(settings, rng), rate, device)
        self._joined = settings.form != "neumf" or not settings.pretrain

    def run_epoch(self, number: int) -> EpochStats:
        """Show every interaction once, with negatives of its user, in random order."""
        settings = self._settings
        if not self._joined and number > settings.pretrain:
            self._join()
        shown = self._interactions.draw(settings.random_state, number, settings.negatives)
        users, items, counts = (put(rows, self._device) for rows in shown)
        step = max(1, settings.batch_size // (1 + settings.negatives))
        loss = torch.zeros((), device=self._device)
        with one_thread():
            for start in range(0, len(users), step):
                some = slice(start, start + step)
                batch = users[some].long(), items[some].long(), counts[some]
                loss += self._step(*batch) * len(users[some])
        return EpochStats(float(loss) / max(1, len(users)), items.numel())

    def _step(self, users: torch.Tensor, items: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
        """Learn from users (n,) and their items (n, 1 + negatives); returns the loss."""
        found = self.gradients(users, items, counts if len(counts) else None)
        self._users.step(*found.users)
        self._items.step(*found.items)
        self._weights.step(found.weights)
        return found.loss

    def gradients(
        self, users: torch.Tensor, items: torch.Tensor, counts: torch.Tensor | None = None
    ) -> Gradients:
        """Return the mean loss of users (n,) with their items (n, 1 + negatives), and its pull."""
        user_rows, user_places, user_counts = distinct(users)
        item_rows, item_places, item_counts = distinct(items.flatten())
        taken_users, taken_items = self._users.take(user_rows), self._items.take(item_rows)
        # index_select has a quick backward pass, brackets have not.
        of_users = taken_users.values.index_select(0, user_places)
        of_items = taken_items.values.index_select(0, item_places).view(*items.shape, -1)
        weights = self._weights.values
        loss = batch_loss(
            self._settings, of_users, of_items, weights, joined=self._joined, counts=counts
        )
        leaves = [taken_users.values, taken_items.values, *weights.values()]
        to_users, to_items, *to_weights = torch.autograd.grad(loss, leaves)
        weight = self._settings.regularization / items.numel()
        user_counts *= items.shape[1]
        return Gradients(
            loss=loss.detach(),
            users=(taken_users, pull(to_users, taken_users, user_counts, weight)),
            items=(taken_items, pull(to_items, taken_items, item_counts, weight)),
            weights=dict(zip(weights, to_weights, strict=True)),
        )

    def _join(self) -> None:
        """Make one model of two: their mixed answers are its first ones; moments start anew."""
        self._weights.assign(mixed(self._weights.arrays()))
        for part in (self._users, self._items, self._weights):
            part.restart()
        self._joined = True

    def tensors(self) -> Arrays:
        """Return all that the next epoch depends on."""
        return {
            **self._users.tensors("users"),
            **self._items.tensors("items"),
            **self._weights.tensors(),
            "joined": np.array([self._joined]),
        }

    def load_tensors(self, tensors: Arrays) -> None:
        """Put back what `tensors` returned."""
        self._users.load("users", tensors)
        self._items.load("items", tensors)
        self._weights.load(tensors)
        self._joined = bool(tensors["joined"][0])
