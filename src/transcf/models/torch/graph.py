"""The graph of users and items, without torch."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from transcf.data.csr import Csr
from transcf.kernels import Array


def normalized(by_user: Csr) -> sp.csr_array:
    """Return `R_ui = 1 / sqrt(|N_u| |N_i|)` for all interactions, (n_users, n_items) float32."""
    of_items = np.bincount(by_user.indices, minlength=by_user.n_columns)
    weights = by_user.counts[by_user.entry_rows] * of_items[by_user.indices]
    matrix = by_user.to_scipy()
    matrix.data = (weights**-0.5).astype(np.float32)
    return matrix


def smooth(
    matrix: sp.csr_array, users: Array, items: Array, layers: int
) -> tuple[Array, Array, Array]:
    """Send vectors over the graph.

    Args:
        matrix: `normalized` interactions.
        users: (n_users, d) before the first layer.
        items: (n_items, d) likewise.
        layers: How often.

    Returns:
        Means over the layers 0..`layers` of users and of items, and the sum of the items' vectors
        over all layers but the last: what they send to a user.
    """
    u, i, sent = users, items, items
    for _ in range(layers):
        sent = i
        u, i = users + matrix @ i, items + matrix.T @ u
    share = np.float32(1 / (layers + 1))
    return u * share, i * share, sent
