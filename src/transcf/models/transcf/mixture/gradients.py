"""Loss and gradients of a batch of the mixture, with the memory that batches share."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np

from transcf.kernels import Array, aligned_zeros
from transcf.kernels.mixture import (
    CHUNK,
    Batch,
    Kernel,
    Negatives,
    Work,
    gather,
    run_shards,
    user_slopes,
)
from transcf.kernels.mixture_items import (
    Touched,
    add_events,
    item_slopes,
    show_negatives,
    sum_negatives,
)
from transcf.kernels.rows import padded_width
from transcf.models.transcf.mixture.batches import SHARDS
from transcf.threads import share

#: Fewer rows than this are done before a thread is told to.
ROWS_OF_A_THREAD = 1024


class Points(NamedTuple):
    """What is learned, rows in whole lanes.

    Attributes:
        users: a, (n_users, width) float32.
        items: b, (n_items, width).
        history: p, (n_items, width); the same array as `items` where they are tied.
        bias: c, (n_items,).
    """

    users: Array
    items: Array
    history: Array
    bias: Array

    @property
    def are_tied(self) -> bool:
        """Whether the items of a history have the vectors of recommended ones."""
        return self.history is self.items


class Slopes(NamedTuple):
    """Gradients of a batch's loss; valid until the next batch.

    Attributes:
        loss: The sum over targets.
        users: By a of the batch's users, (n, width).
        rows: Items that are touched, (m,) int32; rows below 0 are none.
        items: By b of them, (m, width); with that by p where they are tied.
        history: By p of them, (m, width).
        has_events: Which of them are in a history, (m,); the others have no gradient by p.
        bias: By c of them, (m,).
    """

    loss: float
    users: Array
    rows: Array
    items: Array
    history: Array
    has_events: Array
    bias: Array


class Gradients:
    """Works out gradients batch by batch.

    Args:
        kernel: The numbers of the score.
        width: Numbers of a padded row.
        n_items: Items in all.
        most_events: Events of the largest batch.
        most_negatives: Negatives of a batch, at most.
    """

    def __init__(
        self, kernel: Kernel, width: int, n_items: int, most_events: int, most_negatives: int
    ) -> None:
        """Make room for any batch."""
        self._kernel = kernel
        drawn = padded_width(most_negatives)
        self._work = _work(most_events, drawn, width)
        self._touched = _touched(drawn + min(most_events, n_items), width)
        self._negatives = Negatives(
            vectors=aligned_zeros((drawn, width), np.float32),
            heights=np.zeros(drawn, np.float32),
            slots=np.full(n_items, -1, np.int32),
        )

    def of(self, batch: Batch, points: Points, negatives: Array, stand_for: float) -> Slopes:
        """Return loss and gradients of a batch.

        Args:
            batch: Events, each a target of the others of its user.
            points: What is learned so far.
            negatives: Rows of the items to compare targets with, each once, (n,) int32.
            stand_for: How many items each of them stands for.
        """
        kernel, work, touched, drawn = self._kernel, self._work, self._touched, self._negatives
        places = len(drawn.vectors)
        show = partial(show_negatives, kernel, negatives, points.items, points.bias, stand_for)
        share(places, partial(show, drawn, touched), least=ROWS_OF_A_THREAD)
        users = np.empty((len(batch.users), points.users.shape[1]), np.float32)

        def run(first: int, end: int) -> None:
            gather(kernel, batch, *points, work, first, end)
            run_shards(kernel, batch, drawn, work, first, end)
            whose = batch.shards[first], batch.shards[end]
            user_slopes(kernel, batch, work, points.users, users, *whose)

        share(SHARDS, run)
        share(places, partial(sum_negatives, work, touched), least=ROWS_OF_A_THREAD)
        n = add_events(batch, drawn, work, touched)
        rows = touched.rows[:n]
        drawn.slots[rows[rows >= 0]] = -1
        kinds = points.items, points.history, points.are_tied
        share(n, partial(item_slopes, kernel, touched, *kinds), least=ROWS_OF_A_THREAD)
        loss = float(work.losses.sum())
        by_items = touched.by_item[:n], touched.by_moved[:n], touched.has_events[:n]
        return Slopes(loss, users, rows, *by_items, touched.by_height[:n])


def _work(events: int, negatives: int, width: int) -> Work:
    def zeros(*shape: int) -> Array:
        return aligned_zeros(shape, np.float32)

    return Work(
        moved=zeros(events, width),
        offsets=zeros(events),
        targets=zeros(events, width),
        heights=zeros(events),
        tile=zeros(events * negatives),
        pairs=zeros(events * CHUNK),
        sums=zeros(events),
        shares=zeros(events),
        known=zeros(events),
        others=zeros(events),
        moved_slopes=zeros(events, width),
        target_slopes=zeros(events, width),
        scaled=zeros(events, width),
        negative_slopes=zeros(SHARDS, negatives, width),
        negative_heights=zeros(SHARDS, negatives),
        losses=np.zeros(SHARDS),
    )


def _touched(rows: int, width: int) -> Touched:
    return Touched(
        rows=np.full(rows, -1, np.int32),
        by_item=aligned_zeros((rows, width), np.float32),
        by_height=np.zeros(rows, np.float32),
        by_moved=aligned_zeros((rows, width), np.float32),
        by_offset=np.zeros(rows, np.float32),
        has_events=np.zeros(rows, np.bool_),
    )
