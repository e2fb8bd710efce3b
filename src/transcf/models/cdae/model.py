"""The model CDAE, and whom it makes of a history."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy.special import expit

from transcf.data.histories import Histories
from transcf.data.ids import Rows
from transcf.io.tensors import Arrays, checked
from transcf.models.base import Recommender, init_from_params
from transcf.models.cdae.settings import CDAESettings
from transcf.models.event_weights import InteractionWeights
from transcf.models.explain import LEFT_OUT
from transcf.models.factors import Factors, stored_bias, stored_factors
from transcf.models.fitted import FittedScorer
from transcf.models.torch.library import find_device
from transcf.models.training import TrainingRun
from transcf.models.training_data import TrainingData
from transcf.retrieval.scorer import Scores


class CDAE(Recommender[CDAESettings]):
    """Collaborative denoising autoencoder: rebuilds what a user has from a part of it.

    With N_u the items of u, W_i and W'_i vectors of an item, V_u a vector of the user,

        h_u = sigmoid(sum of W_i over i in N_u + V_u + b)
        score(u, i) = W'_i . h_u + b'_i

    While training, every item of the sum is dropped with the probability `dropout` and the others
    count 1 / (1 - dropout) times; the loss is over the user's items i (t = 1) and over `negatives`
    drawn for each of them (t = 0), dropped or not,

        -t log sigmoid(s) - (1 - t) log(1 - sigmoid(s))       or       (s - t)^2

    plus `regularization` times the squares of V_u once, of every W_i in the sum, and of W'_i and
    b'_i of every pair, by Adam. Where `recency`, `half_life` or `confidence` weigh events, the loss
    of a pair with t = 1 is multiplied with the weight of its event, 1 on average; the sum stays
    plain. A step moves the rows of its batch only, each with its own moments and its own count of
    steps.

    The score is an inner product with h_u, so ranking is exact and needs no torch. People the
    model was not fitted on get an h of their own items, with the mean V_u of all users
    with interactions.

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
    __init__ = init_from_params(CDAESettings)

    def _learn(self, run: TrainingRun) -> FittedScorer:
        device = find_device(self.name, self.settings.device)
        from transcf.models.cdae.training import CDAETraining

        counts = InteractionWeights.of(run.train, self.settings.event_weights).overall
        training = CDAETraining(run.train.by_user, self.settings, device, counts)
        return run.run(training, self.settings, self._snapshot)

    def _snapshot(
        self, tensors: Arrays, known: TrainingData, settings: CDAESettings
    ) -> FittedScorer:
        # The tables have Adam's moments beside the values, and training goes on in them.
        dim = settings.dim
        nodes, inputs = (tensors[f"{name}.rows"][:, :dim] for name in ("nodes", "inputs"))
        outputs, bias = tensors["outputs.rows"], tensors["bias"]
        arrays = {
            "user_vectors": expit(known.seen.to_scipy() @ inputs + nodes + bias),
            "item_vectors": outputs[:, :dim].copy(),
            "item_bias": outputs[:, dim].copy(),
            "input_vectors": inputs.copy(),
            "guest_bias": bias + nodes[known.active].mean(axis=0),
        }
        return self._restore(arrays, known, settings)

    def _restore(self, arrays: Arrays, known: TrainingData, settings: CDAESettings) -> FittedScorer:
        users, items = stored_factors(arrays, known, settings.dim)
        shape = items.shape
        inputs = checked(arrays, "input_vectors", np.float32, shape)
        guest_bias = checked(arrays, "guest_bias", np.float32, shape[1:])
        return Factors(
            known,
            self.name,
            users,
            items,
            fold=Hidden(inputs, guest_bias),
            bias=stored_bias(arrays, known),
            extras={"input_vectors": inputs, "guest_bias": guest_bias},
        )


class Hidden:
    """Gives people an h of their own items, with the mean node.

    Args:
        inputs: W, (n_items, dim).
        bias: b and the mean V_u, (dim,).
    """

    meaning = LEFT_OUT

    def __init__(self, inputs: Scores, bias: Scores) -> None:
        """Keep both."""
        self._inputs, self._bias = inputs, bias

    def __call__(self, histories: Histories) -> Scores:
        """Return h of some people, (n, dim)."""
        states: Scores = expit(histories.matrix.to_scipy() @ self._inputs + self._bias)
        return states

    def changed(self, history: Rows) -> npt.NDArray[np.float64]:
        """Return h of somebody, and without each of the n items: (n + 1, dim)."""
        rows = self._inputs[history].astype(np.float64)
        sums = self._bias + rows.sum(axis=0) - np.vstack([np.zeros_like(rows[:1]), rows])
        states: npt.NDArray[np.float64] = expit(sums)
        return states
