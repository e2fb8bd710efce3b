"""LightGCN: vectors of users and items, smoothed over the graph of who has what."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import scipy.sparse as sp

from transcf.data.interactions import Interactions
from transcf.models._neural.graph import normalized, smooth
from transcf.models._neural.library import DEVICES, Device, find_device
from transcf.models._tensors import checked
from transcf.models.base import State
from transcf.models.iterative import ITERATION_RULES
from transcf.models.rules import Number, Rule
from transcf.models.vectors import VectorRecommender
from transcf.retrieval.scorer import Scores
from transcf.training.trainable import Tensors, Trainable


class LightGCN(VectorRecommender):
    """Graph convolution without weights: a user is the mean of what lies 0, 1, 2, ... steps away.

    With learned vectors e_u, e_i, N_u the items of u and N_i the users of i, layer k + 1 is

        e_u^(k+1) = sum of e_i^(k) / sqrt(|N_u| |N_i|) over i in N_u

    and the same for items; x_u and y_i are the means over the layers 0 to `layers`, and
    `score(u, i) = x_u . y_i`. Learned from triples of a user u, an item i of theirs and a random
    item j that is not, each interaction once in an epoch, by Adam on

        -log sigmoid(x_u . y_i - x_u . y_j) + regularization (|e_u|^2 + |e_i|^2 + |e_j|^2)

    Every batch goes through the whole graph, there and back: an epoch takes `interactions^2 /
    batch_size` work. Ranking needs neither torch nor the graph.

    People the model was not fitted on get what their items would send them, brought to the
    scale of the trained users (who also have a vector of their own) by least squares.

    Args:
        dim: Length of the vectors.
        layers: Steps over the graph.
        learning_rate: Step size of Adam.
        regularization: L2 weight of the three vectors of a triple, before smoothing.
        batch_size: Triples in a batch.
        init_scale: Standard deviation of the first vectors.
        device: "cpu", "cuda", or "auto" for CUDA where there is some.
        epochs: Most epochs to train.
        validate_every: Epochs between validations.
        patience: Validations without a new best before stopping; None never stops early.
        random_state: Seed; on a CPU the same seed gives the same bits.
        n_threads: Changes nothing: training uses one thread, so that the bits hold.

    Attributes (after `fit`):
        user_vectors_: x, (n_users, dim) float32.
        item_vectors_: y, (n_items, dim) float32.
        item_bias_: Zeros, (n_items,) float32.
        item_messages_: What an item sends to a user, over all layers, (n_items, dim) float32.

    Reference: He, Deng, Wang, Li, Zhang and Wang, "LightGCN: simplifying and powering graph
    convolution network for recommendation" (SIGIR 2020).

    Example:
        >>> from transcf import LightGCN, synthesize
        >>> log = synthesize(users=200, items=80, interactions=3000, seed=0)
        >>> model = LightGCN(dim=16, epochs=3).fit(log)
        >>> model.recommend(log.users.series[0], k=3).shape
        (3, 4)
    """

    name = "LightGCN"
    rules: ClassVar[dict[str, Rule]] = {
        "dim": Number(low=1, high=4096, whole=True),
        "layers": Number(low=1, high=20, whole=True),
        "learning_rate": Number(low=0, above=True),
        "regularization": Number(low=0),
        "batch_size": Number(low=1, whole=True),
        "init_scale": Number(low=0, above=True),
        "device": DEVICES,
        **ITERATION_RULES,
    }

    item_messages_: Scores

    def __init__(
        self,
        *,
        dim: int = 64,
        layers: int = 2,
        learning_rate: float = 0.005,
        regularization: float = 1e-3,
        batch_size: int = 2048,
        init_scale: float = 0.1,
        device: Device = "auto",
        epochs: int = 40,
        validate_every: int = 1,
        patience: int | None = None,
        random_state: int = 0,
        n_threads: int | None = None,
    ) -> None:
        """Store the hyper-parameters."""
        self.dim = dim
        self.layers = layers
        self.learning_rate = learning_rate
        self.regularization = regularization
        self.batch_size = batch_size
        self.init_scale = init_scale
        self.device = device
        self.epochs = epochs
        self.validate_every = validate_every
        self.patience = patience
        self.random_state = random_state
        self.n_threads = n_threads

    def _trainable(self, train: Interactions) -> Trainable:
        device = find_device("LightGCN", self.device)
        from transcf.models._neural.lightgcn import Hyper, LightGCNTraining

        hyper = Hyper(
            dim=self.dim,
            layers=self.layers,
            learning_rate=self.learning_rate,
            regularization=self.regularization,
            batch_size=self.batch_size,
            init_scale=self.init_scale,
            seed=self.random_state,
        )
        return LightGCNTraining(train.by_user, hyper, device)

    def _adopt(self, tensors: Tensors) -> None:
        graph = normalized(self.seen_)
        users, items, sent = smooth(graph, tensors["users"], tensors["items"], self.layers)
        counts = np.maximum(1, self.item_counts_)[:, None]
        self._restore(
            {
                "user_vectors": users,
                "item_vectors": items,
                "item_bias": np.zeros(len(items), np.float32),
                "item_messages": (sent / np.sqrt(counts)).astype(np.float32),
            }
        )

    def _history_means(self, histories: sp.csr_array) -> Scores:
        """What the items of people send them and a constant 1, (n, dim + 1)."""
        roots = np.sqrt(np.maximum(1, np.diff(histories.indptr)))[:, None]
        sums = (histories @ self.item_messages_) / roots
        return np.hstack([sums, np.ones_like(sums[:, :1])]).astype(np.float32)

    def _state(self) -> State:
        return super()._state() | {"item_messages": self.item_messages_}

    def _restore(self, state: State) -> None:
        super()._restore(state)
        shape = (len(self.items_), self.dim)
        self.item_messages_ = checked(state, "item_messages", np.float32, shape)
