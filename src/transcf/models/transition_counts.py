"""How often one item follows another in the histories of users.

Where events have an order, C_ki adds up d^-decay over all users who have item i d places after
item k, d at most `reach`. Without an order, every pair of items of a user counts 1 / (length - 1)
in both directions, and only the largest counts of an item are kept.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import scipy.sparse as sp

from transcf.data.csr import Histories
from transcf.kernels import Array
from transcf.models.item_weights import item_blocks, largest

#: Most places between two items that count, and the exponent by which farther ones count less.
REACH, DECAY = 10, 0.5
#: Added to the counts of an item in the denominator of shares: few counts are trusted less.
SMOOTHING = 60.0
#: Counts of an item that are kept where events have no order.
_MOST = 128


def transition_shares(
    histories: Histories,
    *,
    ordered: bool,
    reach: int = REACH,
    decay: float = DECAY,
    smoothing: float = SMOOTHING,
    weights: Array | None = None,
) -> sp.csr_array:
    """Return T_ki = C_ki / (sum of C_k + smoothing), (n_items, n_items) float64, columns ascending.

    Args:
        histories: Of all users.
        ordered: Whether the order of events is known.
        reach: Most places between two items that count.
        decay: An item d places later counts d^-decay.
        smoothing: Added to the denominator.
        weights: How much events count as the later item, (n_events,); None counts all the same.

    Example:
        >>> histories = Histories.of([np.array([0, 1, 2], np.int32)], 3)
        >>> transition_shares(histories, ordered=True, smoothing=0).toarray().round(3).tolist()
        [[0.0, 0.586, 0.414], [0.0, 0.0, 1.0], [0.0, 0.0, 0.0]]
    """
    given = np.ones(len(histories.items)) if weights is None else weights.astype(np.float64)
    if ordered:
        counts, sums = _following(histories, reach, decay, given), None
    else:
        counts, sums = _together(histories, given)
    sums = np.asarray(counts.sum(axis=1)) if sums is None else sums
    counts.data /= np.repeat(sums + smoothing, np.diff(counts.indptr))
    return counts


def _following(histories: Histories, reach: int, decay: float, weights: Array) -> sp.csr_array:
    """Count items that follow others within `reach` places."""
    items, n_items = histories.items, histories.n_items
    owners = np.repeat(np.arange(len(histories)), histories.counts)
    counts = sp.csr_array((n_items, n_items), dtype=np.float64)
    for distance in range(1, min(reach, int(histories.counts.max(initial=1)) - 1) + 1):
        same = owners[:-distance] == owners[distance:]
        values = distance**-decay * weights[distance:][same]
        pairs = (items[:-distance][same], items[distance:][same])
        counts = counts + sp.coo_array((values, pairs), shape=(n_items, n_items)).tocsr()
    counts.sort_indices()
    return counts


def _together(histories: Histories, weights: Array) -> tuple[sp.csr_array, Array]:
    """Count pairs of items of the same users: the largest counts of each item, and all sums."""
    users, n_items = histories.matrix, histories.n_items
    others = np.maximum(histories.counts - 1, 1)
    values = weights[histories.by_item] / np.repeat(others, histories.counts)
    targets = users.to_scipy(np.float64, values)
    past = sp.csr_array(users.to_scipy(np.float64).T)
    kept, sums = [], np.zeros(n_items)
    for first, last in item_blocks(histories):
        block = sp.csr_array(past[first:last] @ targets)
        block.setdiag(0, first)
        block.eliminate_zeros()
        block.sort_indices()
        sums[first:last] = np.asarray(block.sum(axis=1))
        kept.append(_largest(block))
    return sp.csr_array(sp.vstack(kept)), sums


def _largest(block: sp.csr_array) -> sp.csr_array:
    """Keep the largest entries of each row; of equal ones the first."""
    kept = np.zeros(len(block.data), np.bool_)
    for start, stop in pairwise(block.indptr):
        kept[start:stop] = largest(block.data[start:stop], _MOST)
    lengths = np.diff(np.concatenate([[0], np.cumsum(kept)])[block.indptr])
    starts = np.concatenate([[0], np.cumsum(lengths)])
    return sp.csr_array((block.data[kept], block.indices[kept], starts), shape=block.shape)
