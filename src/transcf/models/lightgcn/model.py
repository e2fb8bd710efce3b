"""The model LightGCN."""

from __future__ import annotations

import numpy as np

from transcf.io.tensors import Arrays, checked
from transcf.models.base import Recommender, init_from_params
from transcf.models.event_weights import InteractionWeights
from transcf.models.factors import Factors, HistoryMap, stored_factors
from transcf.models.fitted import FittedScorer
from transcf.models.lightgcn.settings import LightGCNSettings
from transcf.models.torch.graph import normalized, smooth
from transcf.models.torch.library import find_device
from transcf.models.training import TrainingRun
from transcf.models.training_data import TrainingData


class LightGCN(Recommender[LightGCNSettings]):
    """Graph convolution without weights: a user is the mean of what lies 0, 1, 2, ... steps away.

    With learned vectors e_u, e_i, N_u the items of u and N_i the users of i, layer k + 1 is

        e_u^(k+1) = sum of e_i^(k) / sqrt(|N_u| |N_i|) over i in N_u

    and the same for items; x_u and y_i are the means over the layers 0 to `layers`, and
    `score(u, i) = x_u . y_i`. Learned from triples of a user u, an item i of theirs and a random
    item j that is not, each interaction once in an epoch, by Adam on

        -log sigmoid(x_u . y_i - x_u . y_j) + regularization (|e_u|^2 + |e_i|^2 + |e_j|^2)

    Where `recency`, `half_life` or `confidence` weigh events, the logarithm is multiplied with the
    weight of (u, i), 1 on average; the graph stays plain. Every batch goes through the whole graph,
    there and back: an epoch takes `interactions^2 / batch_size` work. Ranking needs neither torch
    nor the graph.

    People the model was not fitted on get what their items would send them, brought to the
    scale of the trained users (who also have a vector of their own) by least squares.

    Attributes (after `fit`):
        user_vectors_: x, (n_users, dim) float32.
        item_vectors_: y, (n_items, dim) float32.
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
    __init__ = init_from_params(LightGCNSettings)

    def _learn(self, run: TrainingRun) -> FittedScorer:
        device = find_device(self.name, self.settings.device)
        from transcf.models.lightgcn.training import LightGCNTraining

        counts = InteractionWeights.of(run.train, self.settings.event_weights).overall
        training = LightGCNTraining(run.train.by_user, self.settings, device, counts)
        return run.run(training, self.settings, self._snapshot)

    def _snapshot(
        self, tensors: Arrays, known: TrainingData, settings: LightGCNSettings
    ) -> FittedScorer:
        graph, layers = normalized(known.seen), settings.layers
        users, items, sent = smooth(graph, tensors["users"], tensors["items"], layers)
        roots = np.sqrt(np.maximum(1, known.item_counts))[:, None]
        messages = (sent / roots).astype(np.float32)
        arrays = {"user_vectors": users, "item_vectors": items, "item_messages": messages}
        return self._restore(arrays, known, settings)

    def _restore(
        self, arrays: Arrays, known: TrainingData, settings: LightGCNSettings
    ) -> FittedScorer:
        users, items = stored_factors(arrays, known, settings.dim)
        messages = checked(arrays, "item_messages", np.float32, items.shape)
        guests = HistoryMap(known, users, messages, power=0.5)
        extras = {"item_messages": messages}
        return Factors(known, self.name, users, items, guests, extras=extras)
