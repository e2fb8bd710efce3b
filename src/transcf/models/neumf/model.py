"""The model NeuMF."""

from __future__ import annotations

import numpy as np

from transcf.io.tensors import Arrays, checked
from transcf.models.base import Recommender, init_from_params
from transcf.models.event_weights import InteractionWeights
from transcf.models.factors import stored_factors
from transcf.models.fitted import FittedScorer
from transcf.models.neumf.scores import GMF, Tower
from transcf.models.neumf.settings import NeuMFSettings
from transcf.models.neumf.weights import served
from transcf.models.torch.library import find_device
from transcf.models.training import TrainingRun
from transcf.models.training_data import TrainingData


class NeuMF(Recommender[NeuMFSettings]):
    """Neural matrix factorization: a weighted inner product and a tower of layers, added up.

    Every user has two vectors p and p', every item q and q'. With `x_1 = relu(W_1 [p'; q'] + b_1)`
    and `x_l = relu(W_l x_(l-1) + b_l)`, each layer half as wide as the one before and the last
    one of length `dim`, the score of a user u and an item i is

        s(u, i) = h . (p_u * q_i) + h' . x_L + c

    which is GMF without its second term and MLP without its first. Learned from pairs of a user
    and an item, of theirs (t = 1) or one of `negatives` drawn for each of theirs (t = 0), by

        -t log sigmoid(s) - (1 - t) log(1 - sigmoid(s))
            + regularization (|p|^2 + |p'|^2 + |q|^2 + |q'|^2)

    with Adam. Where `recency`, `half_life` or `confidence` weigh events, the loss of a pair with
    t = 1 is multiplied with the weight of its event, 1 on average. For the first `pretrain` epochs
    GMF and MLP learn apart; they are then joined with half of the say each, and trained as one
    model. (Scores of an epoch before that are the mixed ones.) A step moves the vectors of its
    batch only, each with its own moments and its own count of steps; after a pre-training the
    moments start anew.

    GMF is ranked by the exact top-k engine. The others send every user through the tower with
    every item, without torch and in little memory; it takes its time where items are many.

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
        """The weights that are neither a user's nor an item's, by name."""
        vectors = ("user_vectors", "item_vectors")
        arrays = self._fitted().arrays()
        return {name: array for name, array in arrays.items() if name not in vectors}

    def _learn(self, run: TrainingRun) -> FittedScorer:
        device = find_device(self.name, self.settings.device)
        from transcf.models.neumf.training import NeuMFTraining

        counts = InteractionWeights.of(run.train, self.settings.event_weights).overall
        training = NeuMFTraining(run.train.by_user, self.settings, device, counts)
        return run.run(training, self.settings, self._snapshot)

    def _snapshot(
        self, tensors: Arrays, known: TrainingData, settings: NeuMFSettings
    ) -> FittedScorer:
        return self._restore(served(settings, tensors), known, settings)

    def _restore(
        self, arrays: Arrays, known: TrainingData, settings: NeuMFSettings
    ) -> FittedScorer:
        users, items = stored_factors(arrays, known, settings.width)
        weights = {
            name: checked(arrays, name, np.float32, shape)
            for name, shape in settings.shapes().items()
        }
        if settings.form == "gmf":
            return GMF(known, self.name, users, items, weights)
        return Tower(known, self.name, users, items, weights, settings.gmf_width)
