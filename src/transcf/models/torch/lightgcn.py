"""LightGCN: embeddings averaged over the layers of the interaction graph."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from transcf.data.csr import Csr
from transcf.io.tensors import Arrays, checked
from transcf.kernels import Array
from transcf.models.factors import Factors, HistoryMap, stored_factors
from transcf.models.families import NeuralSettings
from transcf.models.fitted import FittedScorer, TrainingData
from transcf.models.params import init_from_params, setting, settings
from transcf.models.torch.common import NeuralModel


@settings(epochs=40, learning_rate=0.005)
class LightGCNSettings(NeuralSettings):
    """Hyper-parameters of LightGCN."""

    layers: int = setting(2, "Steps over the graph.", low=1, high=20)
    regularization: float = setting(
        1e-3, "L2 weight of the three vectors of a triple, before smoothing.", low=0, high=1e6
    )
    batch_size: int = setting(2048, "Triples in a batch.", low=1)


class LightGCN(NeuralModel[LightGCNSettings]):
    """Light graph convolution: vectors averaged over their neighbourhoods in the graph.

    With learned vectors e_u, e_i, N_u the items of u and N_i the users of i, layer k + 1 is

        e_u^(k+1) = sum of e_i^(k) / sqrt(|N_u| |N_i|) over i in N_u

    and the same for items; x_u and y_i are the means over the layers 0 to `layers`, and
    `score(u, i) = x_u . y_i`. Learned from triples of a user u, an item i of the user and a random
    item j that the user does not have, each interaction once in an epoch, by Adam on

        -log sigmoid(x_u . y_i - x_u . y_j) + regularization (|e_u|^2 + |e_i|^2 + |e_j|^2)

    Where `recency`, `half_life` or `confidence` weigh events, the logarithm is multiplied by the
    weight of (u, i), 1 on average; the graph is not weighted. Every batch propagates through the
    whole graph: an epoch takes `interactions^2 / batch_size` work. Ranking needs neither torch nor
    the graph.

    New users are folded in from the messages of their items, mapped to the scale of the trained
    users (who also have a vector of their own) by least squares.

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

    def _arrays(self, tensors: Arrays, known: TrainingData, settings: LightGCNSettings) -> Arrays:
        users, items = np.split(tensors["vectors.weight"], [len(known.users)])
        users, items, sent = smooth(normalized(known.seen), users, items, settings.layers)
        roots = np.sqrt(np.maximum(1, known.item_counts))[:, None]
        messages = (sent / roots).astype(np.float32)
        return {"user_vectors": users, "item_vectors": items, "item_messages": messages}

    def _restore(
        self, arrays: Arrays, known: TrainingData, settings: LightGCNSettings
    ) -> FittedScorer:
        users, items = stored_factors(arrays, known, settings.dim)
        messages = checked(arrays, "item_messages", np.float32, items.shape)
        history_map = HistoryMap(known, users, messages, power=0.5)
        extras = {"item_messages": messages}
        return Factors(known, self.name, users, items, history_map, extras=extras)


def normalized(by_user: Csr) -> sp.csr_array:
    """Return `1 / sqrt(|N_u| |N_i|)` for all interactions, (n_users, n_items) float32."""
    of_items = np.bincount(by_user.indices, minlength=by_user.n_columns)
    weights = by_user.counts[by_user.entry_rows] * of_items[by_user.indices]
    matrix = by_user.to_scipy()
    matrix.data = (weights**-0.5).astype(np.float32)
    return matrix


def smooth(
    matrix: sp.csr_array, users: Array, items: Array, layers: int
) -> tuple[Array, Array, Array]:
    """Return means of users and items over the layers of the `normalized` graph.

    And the sum of the items' vectors over all layers but the last: what they send to a user.
    """
    u, i, sent = users, items, items
    for _ in range(layers):
        sent = i
        u, i = users + matrix @ i, items + matrix.T @ u
    share = np.float32(1 / (layers + 1))
    return u * share, i * share, sent
