"""Which of their items FISM's users learn from, where events weigh more or less."""

import numpy as np

from . import Array, compiled


@compiled
def choose_places(
    indptr: Array, weights: Array, users: Array, positives: Array, starts: Array, skipped: Array,
    taken: Array, places: Array,
) -> None:  # fmt: skip
    """Choose the positives of visits, by their places among the user's items.

    The weights of a user's events lie on a line, end to end, and the positives are evenly spaced
    points on it from a random one on, round and round: an event is taken as often as its share of
    the weights says, to the next whole number up or down.

    Args:
        indptr: Where the events of each user begin, (n_users + 1,).
        weights: Of each event, above 0, (nnz,).
        users: Of each visit, (n,).
        positives: All of the user's in this epoch, (n,).
        starts: Where the user's first one is, as a share of the line, (n,).
        skipped: How many are in earlier visits, (n,).
        taken: How many are in this one, (n,).
        places: Out, (taken.sum(),).
    """
    at = 0
    for v in range(len(users)):
        own = weights[indptr[users[v]] : indptr[users[v] + 1]]
        length, last = np.float64(0), len(own) - 1
        for weight in own:
            length += weight
        step = length / positives[v]
        point = (starts[v] * length + skipped[v] * step) % length
        place, end = 0, np.float64(own[0])
        for _ in range(taken[v]):
            while point >= end and place < last:
                place += 1
                end += own[place]
            places[at] = place
            at += 1
            point += step
            if point >= length:
                point -= length
                place, end = 0, np.float64(own[0])
