"""CDAE: a collaborative denoising autoencoder."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy.special import expit

from transcf.data.csr import Histories
from transcf.data.ids import Rows
from transcf.io.tensors import Arrays, checked
from transcf.models.explain import LEFT_OUT
from transcf.models.factors import Factors, stored_bias, stored_factors
from transcf.models.families import NeuralSettings
from transcf.models.fitted import FittedScorer, TrainingData
from transcf.models.params import init_from_params, setting, settings
from transcf.models.torch.common import NeuralModel
from transcf.retrieval.scorer import Scores


@settings(learning_rate=0.01)
class CDAESettings(NeuralSettings):
    """Hyper-parameters of CDAE."""

    regularization: float = setting(0.0, "L2 weight.", low=0)
    dropout: float = setting(
        0.5, "Share of a user's items that the input lacks, the corruption ratio.", low=0, high=0.99
    )
    negatives: int = setting(
        5, "Items drawn in every epoch for each interaction.", low=1, high=1000
    )
    batch_size: int = setting(64, "Users in a batch.", low=1)


class CDAE(NeuralModel[CDAESettings]):
    """Collaborative denoising autoencoder: reconstructs a user's items from a part of them.

    With N_u the items of u, W_i and W'_i vectors of an item, V_u a vector of the user,

        h_u = sigmoid(sum of W_i over i in N_u + V_u + b)
        score(u, i) = W'_i . h_u + b'_i

    In training, every item of the sum is dropped with the probability `dropout` and the others
    are multiplied by 1 / (1 - dropout). The loss is over the user's items i (t = 1) and over
    `negatives` items drawn for each of them (t = 0), dropped or not,

        -t log sigmoid(s) - (1 - t) log(1 - sigmoid(s))

    plus `regularization` times the squares of V_u once, of every W_i in the sum, and of W'_i and
    b'_i of every pair, minimised by Adam. Where `recency`, `half_life` or `confidence` weigh
    events, the loss of a pair with t = 1 is multiplied by the weight of its event, 1 on average;
    the sum is not weighted.

    The score is an inner product with h_u, so ranking is exact and needs no torch. New users are
    folded in from their items, with the mean V_u of all users with interactions.

    Attributes (after `fit`):
        user_vectors_: h, (n_users, dim) float32.
        item_vectors_: W', (n_items, dim) float32.
        item_bias_: b', (n_items,) float32.
        input_vectors_: W, (n_items, dim) float32.
        guest_bias_: b plus the mean V_u, (dim,) float32.

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
    __init__ = init_from_params(CDAESettings)

    def _arrays(self, tensors: Arrays, known: TrainingData, settings: CDAESettings) -> Arrays:
        users, inputs, bias = tensors["users.weight"], tensors["inputs.weight"], tensors["bias"]
        return {
            "user_vectors": expit(known.seen.to_scipy() @ inputs + users + bias),
            "item_vectors": tensors["outputs.weight"].copy(),
            "item_bias": tensors["output_bias.weight"][:, 0].copy(),
            "input_vectors": inputs.copy(),
            "guest_bias": bias + users[known.active].mean(axis=0),
        }

    def _restore(self, arrays: Arrays, known: TrainingData, settings: CDAESettings) -> FittedScorer:
        users, items = stored_factors(arrays, known, settings.dim)
        inputs = checked(arrays, "input_vectors", np.float32, items.shape)
        guest_bias = checked(arrays, "guest_bias", np.float32, items.shape[1:])
        extras = {"input_vectors": inputs, "guest_bias": guest_bias}
        fold, bias = HiddenStates(inputs, guest_bias), stored_bias(arrays, known)
        return Factors(known, self.name, users, items, fold, bias=bias, extras=extras)


class HiddenStates:
    """Folds in new users: h of their items, from W, (n_items, dim), and b plus the mean V_u."""

    meaning = LEFT_OUT

    def __init__(self, inputs: Scores, bias: Scores) -> None:
        self._inputs, self._bias = inputs, bias

    def __call__(self, histories: Histories) -> Scores:
        """Return h of each history, (n, dim)."""
        return expit(histories.matrix.to_scipy() @ self._inputs + self._bias)

    def changed(self, history: Rows) -> npt.NDArray[np.float64]:
        """Return h of a history, and of the history without each of its n items: (n + 1, dim)."""
        rows = self._inputs[history].astype(np.float64)
        sums = self._bias + rows.sum(axis=0) - np.vstack([np.zeros_like(rows[:1]), rows])
        return expit(sums)
