"""Where a score of TransCF comes from, by the direct formula in float64."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from transcf.data.histories import Histories
from transcf.data.ids import Rows
from transcf.kernels import Array
from transcf.models.event_weights import weights_in_order
from transcf.models.explain import REPLACED, Contributions, Remarks

if TYPE_CHECKING:
    from transcf.models.transcf.learned import Translated

#: Items that one is compared with where the score is no inner product.
_COMPARED = 64


class Replacing:
    """Averages of a history as it is, and with an average item in the place of each one.

    `Replacing(weights) @ values` takes values (n + 1, dim), those of the n items of the history
    and, last, those of the average item, to the averages (n + 1, dim). The place of an item is
    what weighs, so all others weigh what they did.

    Args:
        weights: How much the places of the history count, (n,).
    """

    def __init__(self, weights: Array) -> None:
        """Scale the weights."""
        self._shares = weights / weights.sum()

    def __matmul__(self, values: Array) -> Array:
        """Return the averages."""
        own, average = values[:-1], values[-1]
        mean: Array = self._shares @ own
        return np.vstack([mean, mean + self._shares[:, None] * (average - own)])


def contributions(learned: Translated, history: Rows, item: int) -> Contributions:
    """Return what the items of a history do to where somebody with them is placed.

    Args:
        learned: What the model has learned.
        history: Item rows, oldest first.
        item: Row of the scored item.
    """
    form, known, side = learned.form, learned.known, learned.item_side
    b, n = (
        np.vstack([vectors[history], average]).astype(np.float64)
        for vectors, average in zip((side.b, side.n), learned.average_item, strict=True)
    )
    even = Replacing(np.ones(len(history)))
    order = Histories.of([history], len(known.items))
    weighted = Replacing(weights_in_order(order, learned.recency))
    a, q = form.place_users(even, weighted, b, n) * learned.user_length, even @ b
    linear = learned.linear_form()
    if linear is not None:
        lead = linear.item_vectors[item].astype(np.float64) - learned.average_side
        return Contributions.of_leads(history, form.linear_users(a, q)[0] @ lead, REPLACED)
    compared = np.concatenate([[item], known.typical_items(_COMPARED)])
    others = side.b[compared].astype(np.float64), side.n[compared].astype(np.float64)
    pairs = zip(a, q, strict=True)
    scores = side.bias[compared] - np.array([form.pair_cost(*pair, *others) for pair in pairs])
    leads = scores[:, 0] - scores[:, 1:].mean(axis=1)
    return Contributions.of_leads(history, leads, REPLACED)


def remarks(learned: Translated, user: int | None, history: Rows, item: int, top: int) -> Remarks:
    """Say how far the translation brings them, and who else has the item; see `FittedScorer`."""
    own, known, form = learned.parameters, learned.known, learned.form
    if not form.is_distance:
        return Remarks()
    (a, r), b = learned.toward(user, history, item), own.items[item].astype(np.float64)
    before, after = float(((a - b) ** 2).sum()), float(form.moved_cost(a, r, b))
    bias = float(own.item_bias[item])
    entries = np.flatnonzero(known.seen.indices == item)
    owners = np.searchsorted(known.seen.indptr, entries, side="right") - 1
    rows, distances = nearest_users(a, owners[owners != user], own.users, top)
    nearest = dict(zip(known.users.ids(rows).to_list(), distances.tolist(), strict=True))
    words = [f"The score is the item's bias {bias:.4f} minus the squared distance {after:.4f}."]
    if form.has_neighborhoods:
        closer = "nearer" if after <= before else "farther"
        words.append(f"Translation brings them {closer}: the distance was {before:.4f} before it.")
    if nearest:
        listed = ", ".join(f"{who} ({distance:.4f})" for who, distance in nearest.items())
        words.append(f"Nearest users who have it, by squared distance: {listed}.")
    facts = {
        "bias": bias,
        "distance_before": before,
        "distance_after": after,
        "neighbors": [{"user_id": who, "distance": far} for who, far in nearest.items()],
    }
    return Remarks(tuple(words), facts)


def nearest_users(a: Array, rows: Array, users: Array, top: int) -> tuple[Array, Array]:
    """The rows whose vectors in `users` are nearest to a: rows and squared distances, (top,)."""
    distances = ((users[rows].astype(np.float64) - a.astype(np.float64)) ** 2).sum(axis=1)
    order = np.argsort(distances, kind="stable")[:top]
    return rows[order], distances[order]
