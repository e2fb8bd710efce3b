"""SASRec: causal self-attention over the items of a history."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal, TypeAlias

import numpy as np

from transcf.data.csr import Histories
from transcf.data.ids import Rows
from transcf.errors import ParameterError
from transcf.io.tensors import Arrays
from transcf.kernels import Array
from transcf.models.factors import Factors, stored_factors
from transcf.models.families import NeuralSettings
from transcf.models.fitted import FittedScorer, TrainingData
from transcf.models.params import init_from_params, setting, settings
from transcf.models.torch.common import NeuralModel, stored_weights
from transcf.models.training import TrainingRun
from transcf.parallel import use_threads
from transcf.retrieval.scorer import Scores

Loss: TypeAlias = Literal["softmax", "gbce"]

#: Added to variances in layer normalization.
EPSILON = 1e-5
#: Events of histories whose vectors are computed together, which bounds memory.
_EVENTS_AT_ONCE = 2**15


@settings(epochs=30, learning_rate=0.003, init_scale=0.02)
class SASRecSettings(NeuralSettings):
    """Hyper-parameters of SASRec."""

    max_length: int = setting(50, "Most items of a history that are used, the last ones.", low=1)
    layers: int = setting(2, "Blocks of attention and feed-forward layer.", low=1, high=32)
    heads: int = setting(1, "Heads of attention; `dim` is a multiple of them.", low=1, high=64)
    dropout: float = setting(0.5, "Share of the numbers that training sets to 0.", low=0, high=0.99)
    loss: Loss = setting("softmax", "Which of the two losses above.")
    negatives: int = setting(
        1000, "Items drawn for each batch, the negative samples of all its events.", low=1
    )
    calibration: float = setting(
        0.75, 't of the loss "gbce": 0 is the binary cross entropy.', low=0, high=1
    )
    regularization: float = setting(0.0, "L2 weight of the item vectors of a batch.", low=0)
    batch_size: int = setting(1024, "Events in a batch.", low=1)

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shapes of all weights but the vectors of users and items."""
        layers, dim = self.layers, self.dim
        return {
            "position_vectors": (self.max_length, dim),
            "attention": (layers, 3, dim, dim),
            "feed_forward": (layers, 2, dim, dim),
            "feed_forward_bias": (layers, 2, dim),
            "norms": (2 * layers + 1, 2, dim),
        }


class SASRec(NeuralModel[SASRecSettings]):
    """Self-attentive sequential recommendation: predicts each event from those before it.

    The input for the item k of a history, d places before its end, is `sqrt(dim) e_k + p_d`, with
    item vectors e and position vectors p. Every block maps the inputs x of a history to

        q = norm(x),    y = q + attention(q, x, x),    z = norm(y),    z + W' relu(W z + b) + b'

    where an item attends to itself and to items before it only. With h the normalized output for
    the last item, `score(u, i) = h . e_i`.

    In training, each event i is predicted from the items before it, by Adam. For "softmax" the
    loss is the cross entropy of i among itself and `negatives` uniformly drawn items j, which all
    events of a batch share:

        -log(exp s_i / (exp s_i + sum over j of exp s_j))

    For "gbce" it is `-beta log sigmoid(s_i) - sum over j of log(1 - sigmoid(s_j))` with
    `beta = 1 - calibration (1 - a)`, where a is the share of the other items that is drawn. Drawn
    items that are the event itself do not count. Where `recency`, `half_life` or `confidence` weigh
    events, the loss of an event is multiplied by its weight, 1 on average.

    A user is nothing but a history: new users and new events of known users need no training.
    Without times, the order of the log is that of the events. The score is an inner product with
    h, so ranking is exact and needs no torch. Histories longer than `max_length` are used in parts
    in training.

    Attributes (after `fit`):
        user_vectors_: h of each user's history, (n_users, dim) float32.
        item_vectors_: e, (n_items, dim) float32.
        position_vectors_: p, (max_length, dim) float32.

    References:
        Kang and McAuley, "Self-attentive sequential recommendation" (ICDM 2018). The losses:
        Klenitskiy and Vasilev, "Turning dross into gold loss: is BERT4Rec really better than
        SASRec?" (RecSys 2023); Petrov and Macdonald, "gSASRec: reducing overconfidence in
        sequential recommendation trained with negative sampling" (RecSys 2023).

    Example:
        >>> from transcf import SASRec, synthesize
        >>> log = synthesize(users=200, items=80, interactions=3000, seed=0)
        >>> model = SASRec(dim=16, epochs=3).fit(log)
        >>> model.recommend(log.users.series[0], k=3).shape
        (3, 4)
    """

    name = "SASRec"
    __init__ = init_from_params(SASRecSettings)

    def _check_params(self) -> None:
        super()._check_params()
        if self.settings.dim % self.settings.heads:
            raise ParameterError(
                f"SASRec: dim={self.settings.dim} is not a multiple of "
                f"heads={self.settings.heads}: change one of them."
            )

    def _events(self, run: TrainingRun) -> tuple[Histories, Array]:
        _, weights = super()._events(run)
        return run.known.histories, weights[run.train.in_order] if len(weights) else weights

    def _arrays(self, tensors: Arrays, known: TrainingData, settings: SASRecSettings) -> Arrays:
        arrays = {name: tensors[name].copy() for name in settings.shapes()}
        arrays["item_vectors"] = tensors["items.weight"].copy()
        encoder = HistoryEncoder(arrays["item_vectors"], arrays, settings.heads)
        return arrays | {"user_vectors": encoder(known.histories)}

    def _restore(
        self, arrays: Arrays, known: TrainingData, settings: SASRecSettings
    ) -> FittedScorer:
        users, items = stored_factors(arrays, known, settings.dim)
        weights = stored_weights(arrays, settings.shapes())
        encoder = HistoryEncoder(items, weights, settings.heads)
        return Factors(known, self.name, users, items, encoder, extras=weights)


class HistoryEncoder:
    """Computes h of histories without torch.

    Histories of equal length are computed together, each by matrix products of its own on one
    thread, so that the bits of a vector depend neither on other histories nor on threads.
    """

    def __init__(self, items: Scores, weights: Mapping[str, Scores], heads: int) -> None:
        self._items, self._weights, self._heads = items, weights, heads

    def __call__(self, histories: Histories) -> Scores:
        """Return h of each history, (n, dim); 0 where it is empty."""
        vectors = np.zeros((len(histories), self._items.shape[1]), np.float32)
        most = len(self._weights["position_vectors"])
        lengths = np.minimum(histories.counts, most)
        with use_threads(1):
            for length in np.unique(lengths[lengths > 0]).tolist():
                rows = np.flatnonzero(lengths == length)
                step = max(1, _EVENTS_AT_ONCE // length)
                for start in range(0, len(rows), step):
                    some = rows[start : start + step]
                    last = histories.indptr[some + 1, None] + np.arange(-length, 0)
                    vectors[some] = self._outputs(histories.items[last])[:, -1]
        return vectors

    def _outputs(self, items: Rows) -> Scores:
        """Return the outputs for all items of histories of equal length, (n, length, dim)."""
        length, dim, weights = items.shape[1], self._items.shape[1], self._weights
        positions = weights["position_vectors"][length - 1 :: -1][:length]
        x = self._items[items] * np.float32(math.sqrt(dim)) + positions
        norms = weights["norms"]
        for layer, (query, key, value) in enumerate(weights["attention"]):
            q = _normalized(x, norms[2 * layer])
            y = q + self._attention(q @ query, x @ key, x @ value)
            z = _normalized(y, norms[2 * layer + 1])
            inner, outer = weights["feed_forward"][layer]
            bias, outer_bias = weights["feed_forward_bias"][layer]
            x = z + np.maximum(z @ inner + bias, 0) @ outer + outer_bias
        return _normalized(x, norms[-1])

    def _attention(self, queries: Scores, keys: Scores, values: Scores) -> Scores:
        """Return the weighted means of values, (n, length, dim)."""
        n, length, dim = queries.shape
        shape = (n, length, self._heads, dim // self._heads)
        q, k, v = (part.reshape(shape).swapaxes(1, 2) for part in (queries, keys, values))
        logits = q @ k.swapaxes(2, 3) / np.float32(math.sqrt(shape[-1]))
        logits[..., np.triu(np.ones((length, length), bool), 1)] = -np.inf
        shares = np.exp(logits - logits.max(axis=-1, keepdims=True))
        shares /= shares.sum(axis=-1, keepdims=True)
        return (shares @ v).swapaxes(1, 2).reshape(n, length, dim)


def _normalized(x: Scores, norm: Scores) -> Scores:
    """Return x with mean 0 and variance 1 over the last axis, times a gain plus a bias."""
    centered = x - x.mean(axis=-1, keepdims=True)
    variance = np.square(centered).mean(axis=-1, keepdims=True)
    return centered / np.sqrt(variance + np.float32(EPSILON)) * norm[0] + norm[1]
