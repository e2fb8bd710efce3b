"""CDAE: an autoencoder of what people have, with a node of their own for each."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np
import scipy.sparse as sp
from scipy.special import expit

from transcf.data.interactions import Interactions
from transcf.models._neural.library import DEVICES, Device, find_device
from transcf.models._tensors import checked
from transcf.models.base import State
from transcf.models.iterative import ITERATION_RULES
from transcf.models.rules import Choice, Number, Rule
from transcf.models.vectors import VectorRecommender
from transcf.retrieval.scorer import Scores
from transcf.training.trainable import Tensors, Trainable

if TYPE_CHECKING:
    from transcf.models._neural.cdae import Loss


class CDAE(VectorRecommender):
    """Collaborative denoising autoencoder: rebuilds what a user has from a part of it.

    With N_u the items of u, W_i and W'_i vectors of an item, V_u a vector of the user,

        h_u = sigmoid(sum of W_i over i in N_u + V_u + b)
        score(u, i) = W'_i . h_u + b'_i

    While training, every item of the sum is dropped with the probability `dropout` and the others
    count 1 / (1 - dropout) times; the loss is over the user's items i (t = 1) and over `negatives`
    drawn for each of them (t = 0), dropped or not,

        -t log sigmoid(s) - (1 - t) log(1 - sigmoid(s))       or       (s - t)^2

    plus `regularization` times the squares of V_u once, of every W_i in the sum, and of W'_i and
    b'_i of every pair, by Adam. A step moves the rows of its batch only, each with its own moments
    and its own count of steps.

    The score is an inner product with h_u, so ranking is exact and needs no torch. People the
    model was not fitted on get an h of their own items, with the mean V_u of all users
    with interactions.

    Args:
        dim: Length of the hidden layer.
        learning_rate: Step size of Adam.
        regularization: L2 weight.
        dropout: Share of a user's items that the input lacks, the corruption ratio.
        loss: "logistic" or "square", as above.
        negatives: Items drawn anew in every epoch for each interaction.
        batch_size: Users in a batch.
        init_scale: Standard deviation of the first vectors.
        device: "cpu", "cuda", or "auto" for CUDA where there is some.
        epochs: Most epochs to train.
        validate_every: Epochs between validations.
        patience: Validations without a new best before stopping; None never stops early.
        random_state: Seed; on a CPU the same seed gives the same bits.
        n_threads: Changes nothing: training uses one thread, so that the bits hold.

    Attributes (after `fit`):
        user_vectors_: h, (n_users, dim) float32.
        item_vectors_: W', (n_items, dim) float32.
        item_bias_: b', (n_items,) float32.
        input_vectors_: W, (n_items, dim) float32.
        guest_bias_: b and that mean V_u, (dim,) float32.

    Reference: Wu, DuBois, Zheng and Ester, "Collaborative denoising auto-encoders for top-N
    recommender systems" (WSDM 2016).

    Example:
        >>> from transcf import CDAE, synthesize
        >>> log = synthesize(users=200, items=80, interactions=3000, seed=0)
        >>> model = CDAE(dim=16, epochs=3).fit(log)
        >>> model.recommend(log.users.series[0], k=3).shape
        (3, 4)
    """

    name = "CDAE"
    rules: ClassVar[dict[str, Rule]] = {
        "dim": Number(low=1, high=4096, whole=True),
        "learning_rate": Number(low=0, above=True),
        "regularization": Number(low=0),
        "dropout": Number(low=0, high=0.99),
        "loss": Choice(("logistic", "square")),
        "negatives": Number(low=1, high=1000, whole=True),
        "batch_size": Number(low=1, whole=True),
        "init_scale": Number(low=0, above=True),
        "device": DEVICES,
        **ITERATION_RULES,
    }

    input_vectors_: Scores
    guest_bias_: Scores

    def __init__(
        self,
        *,
        dim: int = 64,
        learning_rate: float = 0.01,
        regularization: float = 0.0,
        dropout: float = 0.5,
        loss: Loss = "logistic",
        negatives: int = 5,
        batch_size: int = 64,
        init_scale: float = 0.1,
        device: Device = "auto",
        epochs: int = 30,
        validate_every: int = 1,
        patience: int | None = None,
        random_state: int = 0,
        n_threads: int | None = None,
    ) -> None:
        """Store the hyper-parameters."""
        self.dim = dim
        self.learning_rate = learning_rate
        self.regularization = regularization
        self.dropout = dropout
        self.loss = loss
        self.negatives = negatives
        self.batch_size = batch_size
        self.init_scale = init_scale
        self.device = device
        self.epochs = epochs
        self.validate_every = validate_every
        self.patience = patience
        self.random_state = random_state
        self.n_threads = n_threads

    def _trainable(self, train: Interactions) -> Trainable:
        device = find_device("CDAE", self.device)
        from transcf.models._neural.cdae import CDAETraining, Hyper

        hyper = Hyper(
            dim=self.dim,
            learning_rate=self.learning_rate,
            regularization=self.regularization,
            dropout=self.dropout,
            loss=self.loss,
            negatives=self.negatives,
            batch_size=self.batch_size,
            init_scale=self.init_scale,
            seed=self.random_state,
        )
        return CDAETraining(train.by_user, hyper, device)

    def _adopt(self, tensors: Tensors) -> None:
        # The tables have Adam's moments beside the values.
        nodes, inputs = (tensors[f"{name}.rows"][:, : self.dim] for name in ("nodes", "inputs"))
        outputs, bias = tensors["outputs.rows"], tensors["bias"]
        sums = self.seen_.to_scipy() @ inputs + nodes + bias
        self._restore(
            {
                "user_vectors": expit(sums),
                "item_vectors": np.array(outputs[:, : self.dim]),
                "item_bias": np.array(outputs[:, self.dim]),
                "input_vectors": np.array(inputs),
                "guest_bias": bias + nodes[self.seen_.counts > 0].mean(axis=0),
            }
        )

    def _fold_in(self, histories: sp.csr_array) -> Scores:
        vectors: Scores = expit(histories @ self.input_vectors_ + self.guest_bias_)
        return vectors

    def _state(self) -> State:
        return super()._state() | {
            "input_vectors": self.input_vectors_,
            "guest_bias": self.guest_bias_,
        }

    def _restore(self, state: State) -> None:
        super()._restore(state)
        shape = (len(self.items_), self.dim)
        self.input_vectors_ = checked(state, "input_vectors", np.float32, shape)
        self.guest_bias_ = checked(state, "guest_bias", np.float32, shape[1:])
