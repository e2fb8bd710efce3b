"""How LightGCN is trained: triples through vectors that are smoothed over the graph."""

from __future__ import annotations

import warnings

import numpy as np
import scipy.sparse as sp
import torch
from torch.nn.functional import softplus

from transcf.data.csr import Csr
from transcf.io.tensors import Arrays
from transcf.kernels import Array
from transcf.models.event_weights import EVEN
from transcf.models.lightgcn.settings import LightGCNSettings
from transcf.models.torch.draws import INIT, SampledInteractions, generator
from transcf.models.torch.graph import normalized
from transcf.models.torch.library import one_thread
from transcf.models.torch.rows import DenseParameters, put
from transcf.models.training import EpochStats
from transcf.models.vectors import first_vectors


class Graph:
    """The mean over layers of vectors sent along the edges, and its gradient.

    With A the symmetric matrix of the graph, `mean of A^k E over k = 0..layers`, computed from
    the inside, `E + A (E + A (...))`. It is linear and A is symmetric, so gradients go back by
    the very same map.
    """

    def __init__(self, by_user: Csr, layers: int, device: torch.device) -> None:
        """Put both halves of the matrix on the device."""
        matrix = normalized(by_user)
        self._layers = layers
        self._to_users = _sparse(matrix, device)
        self._to_items = _sparse(sp.csr_array(matrix.T), device)

    def smooth(self, users: torch.Tensor, items: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Smooth vectors, (n_users, d) and (n_items, d); or send their gradients back."""
        u, i = users, items
        for _ in range(self._layers):
            u, i = torch.addmm(users, self._to_users, i), torch.addmm(items, self._to_items, u)
        share = 1 / (self._layers + 1)
        return u * share, i * share


def triple_loss(
    users: torch.Tensor,
    own: torch.Tensor,
    other: torch.Tensor,
    counts: torch.Tensor | None = None,
) -> torch.Tensor:
    """Mean of `-log sigmoid(x . y - x . z)` over smoothed vectors, all (n, d).

    Where there are `counts`, (n,), they say how much each triple counts.
    """
    losses = softplus((users * (other - own)).sum(dim=1))
    return losses.mean() if counts is None else (losses * counts).mean()


class LightGCNTraining:
    """The vectors before smoothing, as the loop wants them.

    Args:
        by_user: The interactions.
        settings: The model's.
        device: Where to train.
        counts: How much each interaction counts, (nnz,) float32; empty where all count 1.
    """

    def __init__(
        self, by_user: Csr, settings: LightGCNSettings, device: torch.device, counts: Array = EVEN
    ) -> None:
        """Draw the first values."""
        self._settings, self._device = settings, device
        self._graph = Graph(by_user, settings.layers, device)
        self._interactions = SampledInteractions(by_user, counts)
        users, items = first_vectors(
            (by_user.n_rows, by_user.n_columns),
            settings.dim,
            settings.init_scale,
            generator(settings.random_state, 0, INIT),
            drawn_in=np.float32,
        )
        values = {"users": users, "items": items}
        self._vectors = DenseParameters(values, settings.learning_rate, device)

    def run_epoch(self, number: int) -> EpochStats:
        """Show every interaction once, with one item that its user does not have."""
        users, items, weights = self._interactions.draw(self._settings.random_state, number, 1)
        parts = [put(values, self._device) for values in (users, *items.T, weights)]
        loss, length = torch.zeros((), device=self._device), self._settings.batch_size
        with one_thread():
            for start in range(0, len(users), length):
                who, own, other, counts = (values[start : start + length] for values in parts)
                loss += self._step(who.long(), own.long(), other.long(), counts) * len(who)
        return EpochStats(float(loss) / max(1, len(users)), len(users))

    def _step(
        self, users: torch.Tensor, own: torch.Tensor, other: torch.Tensor, counts: torch.Tensor
    ) -> torch.Tensor:
        """Learn from triples of rows; returns their loss."""
        loss, gradients = self.gradients(users, own, other, counts if len(counts) else None)
        self._vectors.step(gradients)
        return loss

    def gradients(
        self,
        users: torch.Tensor,
        own: torch.Tensor,
        other: torch.Tensor,
        counts: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        """Return the loss of triples of rows, and what it and the regularization ask for."""
        values = self._vectors.values
        with torch.no_grad():
            smooth_users, smooth_items = self._graph.smooth(values["users"], values["items"])
        pairs = [(smooth_users, users), (smooth_items, own), (smooth_items, other)]
        leaves = [table.index_select(0, rows).requires_grad_() for table, rows in pairs]
        loss = triple_loss(leaves[0], leaves[1], leaves[2], counts)
        to_users, to_own, to_other = torch.autograd.grad(loss, leaves)
        with torch.no_grad():
            at_users = torch.zeros_like(smooth_users).index_add_(0, users, to_users)
            at_items = torch.zeros_like(smooth_items).index_add_(0, own, to_own)
            at_items.index_add_(0, other, to_other)
            back = dict(zip(values, self._graph.smooth(at_users, at_items), strict=True))
            weight = 2 * self._settings.regularization / len(users)
            for name, rows in (("users", users), ("items", own), ("items", other)):
                back[name].index_add_(0, rows, values[name].index_select(0, rows), alpha=weight)
        return loss.detach(), back

    def tensors(self) -> Arrays:
        """Return all that the next epoch depends on."""
        return self._vectors.tensors()

    def load_tensors(self, tensors: Arrays) -> None:
        """Put back what `tensors` returned."""
        self._vectors.load(tensors)


def _sparse(matrix: sp.csr_array, device: torch.device) -> torch.Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # torch calls its sparse matrices a beta
        made: torch.Tensor = torch.sparse_csr_tensor(
            torch.from_numpy(matrix.indptr.astype(np.int32)),
            torch.from_numpy(matrix.indices.astype(np.int32)),
            torch.from_numpy(matrix.data),
            size=matrix.shape,
            device=device,
            check_invariants=False,
        )
    return made
