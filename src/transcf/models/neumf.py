"""NeuMF: matrix factorization and a multi-layer perceptron, alone or fused."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from transcf.data.ids import Rows
from transcf.data.interactions import Interactions
from transcf.models._neural.library import DEVICES, Device, find_device
from transcf.models._neural.tower import (
    Form,
    Hyper,
    first_layer_of_items,
    first_layer_of_users,
    served,
    upper_layers,
)
from transcf.models._tensors import checked
from transcf.models.base import State
from transcf.models.iterative import ITERATION_RULES
from transcf.models.rules import Choice, Number, Rule
from transcf.models.vectors import VectorRecommender
from transcf.retrieval.forms import dot_form
from transcf.retrieval.scorer import LinearForm, Scorer, Scores
from transcf.retrieval.views import BlockView
from transcf.training.trainable import Tensors, Trainable

#: Pairs that go through the tower at once: few enough to stay in the cache.
_PAIRS_AT_ONCE = 1024


class NeuMF(VectorRecommender):
    """Neural matrix factorization: a weighted inner product and a tower of layers, added up.

    Every user has two vectors p and p', every item q and q'. With `x_1 = relu(W_1 [p'; q'] + b_1)`
    and `x_l = relu(W_l x_(l-1) + b_l)`, each layer half as wide as the one before and the last
    one of length `dim`, the score of a user u and an item i is

        s(u, i) = h . (p_u * q_i) + h' . x_L + c

    which is GMF without its second term and MLP without its first. Learned from pairs of a user
    and an item, of theirs (t = 1) or one of `negatives` drawn for each of theirs (t = 0), by

        -t log sigmoid(s) - (1 - t) log(1 - sigmoid(s))
            + regularization (|p|^2 + |p'|^2 + |q|^2 + |q'|^2)

    with Adam. For the first `pretrain` epochs GMF and MLP learn apart; they are then joined with
    half of the say each, and trained as one model. (Scores of an epoch before that are the mixed
    ones.) A step moves the vectors of its batch only, each with its own moments and its own count
    of steps; after a pre-training the moments start anew.

    GMF is ranked by the exact top-k engine. The others send every user through the tower with
    every item, without torch and in little memory; it takes its time where items are many.

    Args:
        form: "neumf", or one of its parts: "gmf", "mlp".
        dim: Length of p, q and of the last hidden layer.
        layers: Hidden layers; p' and q' have the length `dim * 2^(layers - 1)`, and so has the
            first layer.
        pretrain: Epochs in which GMF and MLP learn apart, before the others ("neumf" only).
        learning_rate: Step size of Adam.
        regularization: L2 weight of the vectors of a pair.
        negatives: Items drawn anew in every epoch for each interaction.
        batch_size: Pairs in a batch, negatives included.
        init_scale: Standard deviation of the first vectors.
        device: "cpu", "cuda", or "auto" for CUDA where there is some. Scores need no torch.
        epochs: Most epochs to train, pre-training included.
        validate_every: Epochs between validations.
        patience: Validations without a new best before stopping; None never stops early.
        random_state: Seed; on a CPU the same seed gives the same bits.
        n_threads: Changes nothing: training uses one thread, so that the bits hold.

    Attributes (after `fit`):
        user_vectors_: [p, p'], (n_users, width) float32.
        item_vectors_: [q, q'], (n_items, width) float32.
        weights_: The other weights by name, float32.

    Reference: He, Liao, Zhang, Nie, Hu and Chua, "Neural collaborative filtering" (WWW 2017).

    Example:
        >>> from transcf import NeuMF, synthesize
        >>> log = synthesize(users=200, items=80, interactions=3000, seed=0)
        >>> model = NeuMF(dim=8, epochs=3).fit(log)
        >>> model.recommend(log.users.series[0], k=3).shape
        (3, 4)
    """

    name = "NeuMF"
    rules: ClassVar[dict[str, Rule]] = {
        "form": Choice(("neumf", "gmf", "mlp")),
        "dim": Number(low=1, high=1024, whole=True),
        "layers": Number(low=1, high=8, whole=True),
        "pretrain": Number(low=0, whole=True),
        "learning_rate": Number(low=0, above=True),
        "regularization": Number(low=0),
        "negatives": Number(low=1, high=1000, whole=True),
        "batch_size": Number(low=1, whole=True),
        "init_scale": Number(low=0, above=True),
        "device": DEVICES,
        **ITERATION_RULES,
    }

    weights_: dict[str, Scores]

    _sums: tuple[Scores, Scores] | None = None

    def __init__(
        self,
        *,
        form: Form = "neumf",
        dim: int = 16,
        layers: int = 3,
        pretrain: int = 0,
        learning_rate: float = 0.002,
        regularization: float = 0.0,
        negatives: int = 4,
        batch_size: int = 2048,
        init_scale: float = 0.01,
        device: Device = "auto",
        epochs: int = 10,
        validate_every: int = 1,
        patience: int | None = None,
        random_state: int = 0,
        n_threads: int | None = None,
    ) -> None:
        """Store the hyper-parameters."""
        self.form = form
        self.dim = dim
        self.layers = layers
        self.pretrain = pretrain
        self.learning_rate = learning_rate
        self.regularization = regularization
        self.negatives = negatives
        self.batch_size = batch_size
        self.init_scale = init_scale
        self.device = device
        self.epochs = epochs
        self.validate_every = validate_every
        self.patience = patience
        self.random_state = random_state
        self.n_threads = n_threads

    # -- learning ----------------------------------------------------------------------------

    def _hyper(self) -> Hyper:
        return Hyper(
            form=self.form,
            dim=self.dim,
            layers=self.layers,
            pretrain=self.pretrain,
            learning_rate=self.learning_rate,
            regularization=self.regularization,
            negatives=self.negatives,
            batch_size=self.batch_size,
            init_scale=self.init_scale,
            seed=self.random_state,
        )

    def _trainable(self, train: Interactions) -> Trainable:
        device = find_device("NeuMF", self.device)
        from transcf.models._neural.neumf import NeuMFTraining

        return NeuMFTraining(train.by_user, self._hyper(), device)

    def _adopt(self, tensors: Tensors) -> None:
        self._restore(served(self._hyper(), tensors))

    # -- scoring -----------------------------------------------------------------------------

    def linear_form(self) -> LinearForm | None:
        """Return the inner products of GMF; the other forms have none."""
        if self.form != "gmf":
            return None
        if self._linear is None:
            self._linear = self._form_for(self.user_vectors_)
        return self._linear

    def _form_for(self, users: Scores) -> LinearForm:
        bias = np.repeat(self.weights_["gmf_bias"], len(self.items_))
        return dot_form(users, self.item_vectors_ * self.weights_["gmf_head"], bias)

    def score_block(self, users: Rows) -> Scores:
        """Score all items for some user rows: (n, n_items)."""
        if self.form == "gmf":
            return super().score_block(users)
        return self._through_tower(self.user_vectors_[users], self._first_layer()[0][users])

    def score_pairs(self, users: Rows, items: Rows) -> Scores:
        """Score pairs of rows by the direct formula: (n,)."""
        weights, cut = self.weights_, self._hyper().gmf_width
        scores = np.empty(len(users), np.float32)
        for start in range(0, len(users), _PAIRS_AT_ONCE):
            u, i = users[start : start + _PAIRS_AT_ONCE], items[start : start + _PAIRS_AT_ONCE]
            some: Scores = np.zeros(len(u), self.user_vectors_.dtype)
            if self.form != "mlp":
                products = self.user_vectors_[u, :cut] * self.item_vectors_[i, :cut]
                some += products @ weights["gmf_head"] + weights["gmf_bias"]
            if self.form != "gmf":
                of_users, of_items = self._first_layer()
                some += upper_layers(weights, of_users[u] + of_items[i])
            scores[start : start + _PAIRS_AT_ONCE] = some
        return scores

    def _first_layer(self) -> tuple[Scores, Scores]:
        """What users and items add to the first layer, (n_users, d) and (n_items, d); kept."""
        if self._sums is None:
            cut = self._hyper().gmf_width
            self._sums = (
                first_layer_of_users(self.weights_, self.user_vectors_[:, cut:]),
                first_layer_of_items(self.weights_, self.item_vectors_[:, cut:]),
            )
        return self._sums

    def _through_tower(self, vectors: Scores, of_users: Scores) -> Scores:
        """Score all items for users with these vectors and parts of the first layer."""
        weights, cut, of_items = self.weights_, self._hyper().gmf_width, self._first_layer()[1]
        block = np.empty((len(vectors), len(of_items)), np.float32)
        # One user at a time: a score must not depend on who else was asked for.
        for row, (vector, of_user) in enumerate(zip(vectors, of_users, strict=True)):
            for start in range(0, len(of_items), _PAIRS_AT_ONCE):
                some = slice(start, start + _PAIRS_AT_ONCE)
                block[row, some] = upper_layers(weights, of_items[some] + of_user)
                if self.form == "neumf":
                    weighted = vector[:cut] * weights["gmf_head"]
                    block[row, some] += self.item_vectors_[some, :cut] @ weighted
                    block[row, some] += weights["gmf_bias"]
        return block

    def _guests(self, histories: list[Rows]) -> Scorer:
        if self.form == "gmf":
            return super()._guests(histories)
        vectors = self._fold_in(self._matrix_of(histories))
        of_users = first_layer_of_users(self.weights_, vectors[:, self._hyper().gmf_width :])
        return BlockView(
            self.name,
            self.rankable,
            lambda rows: self._through_tower(vectors[rows], of_users[rows]),
        )

    # -- files -------------------------------------------------------------------------------

    def _state(self) -> State:
        vectors = {"user_vectors": self.user_vectors_, "item_vectors": self.item_vectors_}
        return vectors | self.weights_

    def _restore(self, state: State) -> None:
        hyper = self._hyper()
        users, items = (len(self.users_), hyper.width), (len(self.items_), hyper.width)
        self.user_vectors_ = checked(state, "user_vectors", np.float32, users)
        self.item_vectors_ = checked(state, "item_vectors", np.float32, items)
        self.weights_ = {
            name: checked(state, name, np.float32, shape) for name, shape in hyper.shapes().items()
        }
        self._linear = self._history_map = self._sums = None
