"""NeuMF: matrix factorization and a multi-layer perceptron, alone or fused."""

from __future__ import annotations

from functools import cached_property
from typing import Literal

import numpy as np

from transcf.data.csr import Histories
from transcf.data.ids import Rows
from transcf.io.tensors import Arrays
from transcf.models.explain import Contributions
from transcf.models.factors import Factors, HistoryMap, in_pieces, stored_factors
from transcf.models.families import MemoryEstimate, NeuralSettings, vectors
from transcf.models.fitted import FittedScorer, TrainingData
from transcf.models.params import init_from_params, setting, settings
from transcf.models.torch.common import NeuralModel, stored_weights
from transcf.retrieval.scorer import BlockView, FormView, Scorer, Scores, cosine_form

#: Pairs that are scored at once: few enough for their hidden layers to stay in the cache.
_PAIRS_AT_ONCE = 1024
#: Items that an explanation compares an item with.
_COMPARED = 64


@settings(epochs=10, learning_rate=0.002, init_scale=0.01)
class NeuMFSettings(NeuralSettings):
    """Hyper-parameters of NeuMF."""

    form: Literal["neumf", "gmf", "mlp"] = setting("neumf", "The whole, or one of its parts.")
    dim: int = setting(16, "Length of p, q and of the last hidden layer.", low=1, high=1024)
    layers: int = setting(
        3,
        "Hidden layers; p' and q' have the length `dim * 2^(layers - 1)`, and so has the first "
        "layer.",
        low=1,
        high=8,
    )
    pretrain: int = setting(
        0, 'Epochs in which GMF and MLP learn apart, before the others ("neumf" only).', low=0
    )
    regularization: float = setting(0.0, "L2 weight of the vectors of a pair.", low=0)
    negatives: int = setting(
        4, "Items drawn in every epoch for each interaction.", low=1, high=1000
    )
    batch_size: int = setting(2048, "Pairs in a batch, negatives included.", low=1)

    @property
    def gmf_width(self) -> int:
        """Length of the vectors of GMF."""
        return 0 if self.form == "mlp" else self.dim

    @property
    def mlp_width(self) -> int:
        """Length of the vectors of MLP and width of the first hidden layer."""
        return 0 if self.form == "gmf" else self.dim * 2 ** (self.layers - 1)

    @property
    def width(self) -> int:
        """Length of both together, as they are stored."""
        return self.gmf_width + self.mlp_width

    def memory_estimate(self, users: int, items: int) -> MemoryEstimate:
        """Return the least memory of the vectors."""
        what = f"dim={self.dim} and layers={self.layers}"
        return MemoryEstimate(vectors(users + items, self.width), what, "lower dim or layers")

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shapes of all stored weights but the vectors of users and items."""
        shapes: dict[str, tuple[int, ...]] = {}
        if self.form != "mlp":
            shapes |= {"gmf_head": (self.dim,), "gmf_bias": (1,)}
        if self.form != "gmf":
            wide = self.mlp_width
            shapes |= {"user_weight": (wide, wide), "item_weight": (wide, wide), "bias_1": (wide,)}
            for layer in range(2, self.layers + 1):
                wide //= 2
                shapes |= {f"weight_{layer}": (2 * wide, wide), f"bias_{layer}": (wide,)}
            shapes |= {"mlp_head": (wide,), "mlp_bias": (1,)}
        return shapes


class NeuMF(NeuralModel[NeuMFSettings]):
    """Neural matrix factorization: the sum of a weighted inner product and a perceptron.

    Every user has two vectors p and p', every item q and q'. With `x_1 = relu(W_1 [p'; q'] + b_1)`
    and `x_l = relu(W_l x_(l-1) + b_l)`, each layer half as wide as the one before and the last
    one of length `dim`, the score of a user u and an item i is

        s(u, i) = h . (p_u * q_i) + h' . x_L + c

    which is GMF without its second term and MLP without its first. Learned from pairs of a user
    and an item, one of the user's (t = 1) or one of `negatives` drawn for each of them (t = 0), by

        -t log sigmoid(s) - (1 - t) log(1 - sigmoid(s))
            + regularization (|p|^2 + |p'|^2 + |q|^2 + |q'|^2)

    with Adam. Where `recency`, `half_life` or `confidence` weigh events, the loss of a pair with
    t = 1 is multiplied by the weight of its event, 1 on average. For the first `pretrain` epochs
    GMF and MLP are trained separately. They are then combined, each with half of its logit, and
    trained as one model with new moments of Adam. (Scores of earlier epochs are those of the
    combined model.)

    GMF is ranked by the exact top-k engine. The others compute the perceptron for every user and
    item, without torch and in little memory, which is slow for large catalogues.

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
    __init__ = init_from_params(NeuMFSettings)

    @property
    def weights_(self) -> Arrays:
        """The weights that belong to no user or item, by name."""
        arrays = self._fitted().arrays()
        return {name: arrays[name] for name in self.settings_.shapes()}

    def _arrays(self, tensors: Arrays, known: TrainingData, settings: NeuMFSettings) -> Arrays:
        """Return the arrays of the model; parts that were trained apart are combined."""
        found = {f"{side}_vectors": tensors[f"{side}s.weight"].copy() for side in ("user", "item")}
        share = np.float32(1.0 if tensors["joined"][0] else 0.5)
        for part in ("gmf", "mlp") if settings.form == "neumf" else (settings.form,):
            found[f"{part}_head"] = tensors[f"{part}_head.weight"][0] * share
            found[f"{part}_bias"] = tensors[f"{part}_head.bias"] * share
        for layer in range(1, settings.layers + 1 if settings.form != "gmf" else 1):
            found[f"weight_{layer}"] = tensors[f"layers.{layer - 1}.weight"].T.copy()
            found[f"bias_{layer}"] = tensors[f"layers.{layer - 1}.bias"].copy()
        if settings.form != "gmf":
            found["user_weight"], found["item_weight"] = np.split(found.pop("weight_1"), 2)
        return found

    def _restore(
        self, arrays: Arrays, known: TrainingData, settings: NeuMFSettings
    ) -> FittedScorer:
        users, items = stored_factors(arrays, known, settings.width)
        weights = stored_weights(arrays, settings.shapes())
        if settings.form == "gmf":
            return GMF(known, self.name, users, items, weights)
        return Perceptron(known, self.name, users, items, weights, settings.gmf_width)


class GMF(Factors):
    """`score(u, i) = h . (p_u * q_i) + c`, an inner product with the item vectors `h * q_i`."""

    def __init__(
        self, known: TrainingData, name: str, users: Scores, items: Scores, weights: Arrays
    ) -> None:
        weighted, bias = items * weights["gmf_head"], np.repeat(weights["gmf_bias"], len(items))
        history_map = HistoryMap(known, users, weighted)
        super().__init__(known, name, users, weighted, history_map, bias=bias)
        self._stored = {"user_vectors": users, "item_vectors": items, **weights}

    def arrays(self) -> Arrays:
        """Return the vectors and weights as they were learned."""
        return self._stored

    def with_bias(self, offset: Scores) -> None:
        """Return None: files hold one bias for all items."""


class Perceptron(FittedScorer):
    """`score(u, i) = h . (p_u * q_i) + h' . x_L + c`, or its MLP part alone.

    Users are [p, p'], (n_users, width), items [q, q'], (n_items, width); `NeuMFSettings.shapes` has
    the shapes of the weights. `gmf_width` is the length of p and q; 0 without GMF.
    """

    def __init__(
        self, known: TrainingData, name: str, users: Scores, items: Scores, weights: Arrays,
        gmf_width: int,
    ) -> None:  # fmt: skip
        super().__init__(known, name)
        self._users, self._items, self._weights, self._cut = users, items, weights, gmf_width
        self._fold_in = HistoryMap(known, users, items)

    def arrays(self) -> Arrays:
        """Return `user_vectors`, `item_vectors` and the weights."""
        return {"user_vectors": self._users, "item_vectors": self._items, **self._weights}

    def _score_block(self, users: Rows) -> Scores:
        return self._score_all(self._users[users])

    def _score_pairs(self, users: Rows, items: Rows) -> Scores:
        return in_pieces(lambda u, i: self._score(self._users[u], i), users, items, _PAIRS_AT_ONCE)

    def _score_all(self, users: Scores) -> Scores:
        """Score all items for users with these vectors: (n, n_items)."""
        block = np.empty((len(users), len(self._items)), np.float32)
        # One user at a time: a score must not depend on the other users of a block.
        for row, user in enumerate(users):
            for start in range(0, len(self._items), _PAIRS_AT_ONCE):
                some = slice(start, start + _PAIRS_AT_ONCE)
                block[row, some] = self._score(user[None], some)
        return block

    def _score(self, users: Scores, items: Rows | slice) -> Scores:
        """Score items for users with these vectors, (n, width) or (1, width): (n,)."""
        weights, cut = self._weights, self._cut
        # The first layer is a sum of an item's part, which is kept, and a user's part.
        x = users[:, cut:] @ weights["user_weight"] + weights["bias_1"] + self._item_sums[items]
        np.maximum(x, 0, out=x)
        layer = 2
        while f"weight_{layer}" in weights:
            x = x @ weights[f"weight_{layer}"]
            x += weights[f"bias_{layer}"]
            np.maximum(x, 0, out=x)
            layer += 1
        scores = x @ weights["mlp_head"] + weights["mlp_bias"]
        if cut:
            products = users[:, :cut] * self._items[items, :cut]
            scores += products @ weights["gmf_head"] + weights["gmf_bias"]
        return scores

    @cached_property
    def _item_sums(self) -> Scores:
        return self._items[:, self._cut :] @ self._weights["item_weight"]

    def fold_in(self, histories: Histories) -> Scorer:
        """Score all items for new users, whose vectors follow from their items."""
        vectors = self._fold_in(histories)
        return BlockView(self.name, self.rankable, lambda rows: self._score_all(vectors[rows]))

    def with_histories(self, histories: Histories) -> Scorer:
        """Return this scorer: the vectors of users are trained and do not follow a history."""
        return self

    def contributions(self, history: Rows, item: int) -> Contributions:
        """Return how the items of a history change the lead of an item over typical items."""
        compared = np.concatenate([[item], self.known.typical_items(_COMPARED)])
        vectors = self._fold_in.changed(history).astype(np.float32)
        scores = np.array([self._score(vector[None], compared) for vector in vectors])
        leads = scores[:, 0] - scores[:, 1:].mean(axis=1, dtype=np.float64)
        return Contributions(history, leads[0] - leads[1:], self._fold_in.meaning)

    def item_similarity(self) -> Scorer:
        """Return the cosine of item vectors."""
        return FormView(self.name, self.rankable, cosine_form(self._items))

    def user_similarity(self) -> Scorer:
        """Return the cosine of user vectors."""
        return FormView(self.name, self.known.active, cosine_form(self._users))
