"""What EASE would say of somebody whom it had not learned from, out of what it does say."""

import numpy as np

from . import Array, compiled

#: What is left of a user, at least: only rounding can bring it below.
_LEAST = 1e-3


@compiled
def own_scores(weights: Array, starts: Array, items: Array, scores: Array) -> None:
    """Scores of everybody's own items.

    Args:
        weights: B, (n_items, n_items) float32.
        starts: Where histories start, (n_users + 1,) int64.
        items: Their items, (n_events,) int32.
        scores: Out: z, (n_events,) float64.
    """
    for n in range(len(starts) - 1):
        for i in range(starts[n], starts[n + 1]):
            total = 0.0
            for k in range(starts[n], starts[n + 1]):
                total += weights[items[k], items[i]]
            scores[i] = total


@compiled
def leave_out(
    starts: Array, items: Array, diagonal: Array, scores: Array, rests: Array, unseen: Array
) -> None:
    """Scores of everybody's own items by weights that were learned without them.

    Args:
        starts: Where histories start, (n_users + 1,) int64.
        items: Their items, (n_events,) int32.
        diagonal: That of P, (n_items,) float64.
        scores: z, (n_events,) float64.
        rests: Out: r, (n_users,) float64.
        unseen: Out: 1 - (1 - z) / (r + P_ii (1 - z)^2), (n_events,) float64.
    """
    for n in range(len(starts) - 1):
        rest = 1.0
        for i in range(starts[n], starts[n + 1]):
            rest -= diagonal[items[i]] * (1 - scores[i])
        rests[n] = rest = max(rest, _LEAST)
        for i in range(starts[n], starts[n + 1]):
            error = 1 - scores[i]
            unseen[i] = 1 - error / (rest + diagonal[items[i]] * error * error)


@compiled
def leave_out_of_others(
    weights: Array, diagonal: Array, rests: Array, users: Array, starts: Array, items: Array,
    others: Array, unseen: Array, first: int, end: int,
) -> None:  # fmt: skip
    """The same for items that some users do not have: z / (r + P_jj z^2).

    Args:
        weights: B, (n_items, n_items) float32.
        diagonal: That of P, (n_items,) float64.
        rests: r, (n_users,) float64.
        users: Rows of the users, (n,) int32.
        starts: Where the events of each start, (n + 1,) int64.
        items: Their items, (n_events,) int32.
        others: Rows of other items, (n_others,) int32.
        unseen: Out, (n, at least n_others) float32; what users do have comes out as anything.
        first: Of the users.
        end: Of the users.
    """
    scores = np.empty(len(others), np.float32)
    for n in range(first, end):
        scores[:] = 0
        for k in range(starts[n], starts[n + 1]):
            row = weights[items[k]]
            for j in range(len(others)):
                scores[j] += row[others[j]]
        rest = rests[users[n]]
        for j in range(len(others)):
            score = scores[j]
            unseen[n, j] = score / (rest + diagonal[others[j]] * score * score)
