"""Where a score comes from, by the direct formula in float64."""

from dataclasses import dataclass

import numpy as np

from transcf.answers.explanation import Effect, Explanation, Neighbor
from transcf.data.ids import Id, Rows
from transcf.errors import UnknownIdError
from transcf.kernels import Array
from transcf.learning.forms import Form
from transcf.models.transcf.learned import Translated


def explain(
    learned: Translated,
    user: Id | None,
    row: int | None,
    a: Array,
    history: Rows,
    item: Id,
    top: int,
) -> Explanation:
    """Say where the score of an item comes from.

    Args:
        learned: What the model has learned.
        user: Whose score; None for somebody known by a history alone.
        row: The user's row, if there is one.
        a: The user's vector, (dim,).
        history: Item rows of the user.
        item: Id of the item.
        top: How many past items and how many other users to show.
    """
    known, own = learned.known, learned.parameters
    target = int(known.items.require([item], "item")[0])
    if not learned.rankable[target]:
        raise UnknownIdError(f"item {item!r} has no training interactions, so it has no score.")
    bias, b, n = float(own.item_bias[target]), own.items[target], learned.n[target]
    parts = explain_pair(learned.form, a, own.items[history], b, n, bias)
    order = np.argsort(-np.abs(parts.effects), kind="stable")[:top]
    entries = np.flatnonzero(known.seen.indices == target)
    owners = np.searchsorted(known.seen.indptr, entries, side="right") - 1
    nearest = nearest_users(a, owners[owners != row], own.users, top)
    past = known.items.ids(history[order])
    return Explanation(
        user_id=user,
        item_id=item,
        score=parts.score,
        bias=bias,
        distance_before=parts.distance_before,
        distance_after=parts.distance_after,
        effects=tuple(map(Effect, past, parts.effects[order].tolist())),
        neighbors=tuple(map(Neighbor, known.users.ids(nearest[0]), nearest[1].tolist())),
    )


@dataclass(frozen=True)
class Parts:
    """A score and its parts; `effects` (n_history,) belong to the items of the history."""

    score: float
    distance_before: float
    distance_after: float
    effects: Array


def explain_pair(form: Form, a: Array, history: Array, b: Array, n: Array, bias: float) -> Parts:
    """Take a score apart.

    Args:
        form: which score; one with a distance.
        a: the user's vector, (dim,).
        history: vectors of the user's items, (n_history, dim).
        b: the item's vector, (dim,).
        n: mean of the item's users, (dim,).
        bias: the item's bias.

    Returns:
        The parts. An effect is the score minus the score with the item left out of q, everything
        else as it is; without its only item q is zero.
    """
    a, history, b, n = (np.asarray(vectors, np.float64) for vectors in (a, history, b, n))
    q, count = history.mean(axis=0), len(history)
    score = float(bias - form.pair_cost(a, q, b, n))
    without = (count * q - history) / max(1, count - 1) if count > 1 else np.zeros_like(history)
    # Not every form looks at q, so a gives the result its shape.
    everywhere = np.broadcast_to(a, history.shape)
    left = bias - form.pair_cost(everywhere, without, b, n)
    return Parts(score, float(((a - b) ** 2).sum()), float(bias) - score, score - left)


def nearest_users(a: Array, rows: Array, users: Array, top: int) -> tuple[Array, Array]:
    """The rows whose vectors in `users` are nearest to a: rows and squared distances, (top,)."""
    distances = ((users[rows].astype(np.float64) - a.astype(np.float64)) ** 2).sum(axis=1)
    order = np.argsort(distances, kind="stable")[:top]
    return rows[order], distances[order]
