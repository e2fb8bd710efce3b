"""FISM's epochs: users visit the model in batches, the same bits for any number of threads.

The users of a batch make their visits side by side, all from the vectors as they were before, each
on copies of the rows of their own items. The changes are then added in the order of the visits,
every column of the matrices by one thread. The size of a batch is given, and every user has their
own stream of random numbers, so nothing depends on the threads: batches too small to be worth the
waiting are run by one.
"""

from functools import partial
from typing import Any, NamedTuple

import numpy as np

from . import Array, compiled, inlined, inner
from .fism import (
    add_columns,
    begin_history,
    end_history,
    leave_out,
    product_apart,
    put_back,
    step_pair,
    step_point,
)
from .lanes import LANES
from .rng import advance, below, mix, stream
from .rows import dot, prefetch_row
from .sampling import TRAINING
from .tickets import NONE, SPIN_LIMIT, add_to, look_at, share_tickets

#: Samples of a batch that are worth sharing among threads: some tenths of a millisecond of work.
WORTH_SHARING = 2048
#: Visits that are handed out together: enough to be worth a look at the counter.
TOGETHER = 4


class Vectors(NamedTuple):
    """What is learned: p and q (flat, rows of a multiple of `LANES`), and the biases."""

    history: Array
    items: Array
    bias: Array


class VisitRates(NamedTuple):
    """Settings of a step, in the type of the vectors.

    `shrink` is the learning rate times the penalty and `keep` is 1 - `shrink` (`keep_history` after
    all samples of a positive); `offset` is the score that points are counted from; `negatives`
    belong to one positive.
    """

    learning_rate: Any
    shrink: Any
    keep: Any
    keep_history: Any
    bias_shrink: Any
    offset: Any
    negatives: int
    pairwise: bool


class People(NamedTuple):
    """Items by user, CSR (int64, int32, ascending), and the items that may be drawn (int32)."""

    indptr: Array
    indices: Array
    active: Array


class Visits(NamedTuple):
    """The visits of an epoch: who, and where their rows begin in the scratch of the batch.

    Somebody may come several times, with `skipped` positives in earlier visits. `own` and `drawn`,
    (n_visits + 1,), count the users' items and the negatives from the epoch's first visit on;
    `at_once` visits are a batch. `places` are the positives of all visits, by their place among the
    user's items, or empty: then all are taken in turn, from a random one on.
    """

    users: Array
    skipped: Array
    own: Array
    drawn: Array
    at_once: int
    places: Array


class Scratch(NamedTuple):
    """Memory of a batch: rows of the visitors' items, rows of the negatives, and what they are."""

    own_rows: Array
    own_history: Array
    own_items: Array
    own_bias: Array
    drawn_rows: Array
    drawn_items: Array
    drawn_bias: Array
    working: Array


@inlined
def _has(rows: Array, item: int) -> bool:
    """Whether an item is among ascending rows."""
    begin, end = 0, len(rows)
    while begin < end:
        middle = (begin + end) // 2
        if rows[middle] < item:
            begin = middle + 1
        else:
            end = middle
    return begin < len(rows) and rows[begin] == item


@inner
def _draw(rows: Array, active: Array, drawn: Array, state: np.uint64) -> None:
    """Fill `drawn` with active items that are not among the user's rows."""
    for n in range(len(drawn)):
        state = advance(state)
        item = active[below(mix(state), len(active))]
        while _has(rows, item):
            state = advance(state)
            item = active[below(mix(state), len(active))]
        drawn[n] = item


@inlined
def _place(number: int, count: int, places: Array) -> int:
    """Where a positive is among the user's items: as was chosen, or all of them in turn."""
    if len(places) > 0:
        return places[number]
    return number % count


@inner
def _visit_pairs(
    rates: VisitRates, vectors: Vectors, own_history: Array, own_items: Array, own_bias: Array,
    drawn: Array, changes: Array, bias_changes: Array, working: Array, scales: Array, dim: int,
    first: int, places: Array,
) -> float:  # fmt: skip
    """Learn that s_ui - s_uj is 1, both scores from the history without i; returns the loss."""
    count, rate, loss = len(own_bias), rates.learning_rate, 0.0
    many, scale = scales.dtype.type(count - 1), scales[count - 1]
    for n in range(len(drawn)):
        place, j = _place(first + n // rates.negatives, count, places), drawn[n]
        i = dim * place
        if n % rates.negatives == 0:
            leave_out(working, own_history, i, dim)
        prefetch_row(vectors.items, dim * drawn[min(n + 1, len(drawn) - 1)], dim)
        apart = scale * product_apart(working, own_items, i, vectors.items, dim * j, dim)
        error = scales.dtype.type(1) - own_bias[place] + vectors.bias[j] - apart
        loss += error * error
        step_pair(
            working, own_items, i, vectors.items, dim * j, changes, dim * n, dim,
            rate * scale * error, many, rates.keep, rates.shrink,
        )  # fmt: skip
        own_bias[place] += rate * error - rates.bias_shrink * own_bias[place]
        bias_changes[n] = -rate * error - rates.bias_shrink * vectors.bias[j]
        if n % rates.negatives == rates.negatives - 1:
            put_back(working, own_history, i, dim, rates.keep_history)
    return loss / 2


@inner
def _visit_points(
    rates: VisitRates, vectors: Vectors, own_history: Array, own_items: Array, own_bias: Array,
    drawn: Array, changes: Array, bias_changes: Array, working: Array, scales: Array, dim: int,
    first: int, places: Array,
) -> float:  # fmt: skip
    """Learn that s_ui is 1 for the user's items and s_uj is 0 for others; returns the loss."""
    count, rate, loss = len(own_bias), rates.learning_rate, 0.0
    number = scales.dtype.type
    for n in range(len(drawn)):
        if n % rates.negatives == 0:
            place = _place(first + n // rates.negatives, count, places)
            i = dim * place
            leave_out(working, own_history, i, dim)
            score = scales[count - 1] * dot(working, 2 * dim, own_items, i, dim)
            error = number(1) - rates.offset - own_bias[place] - score
            loss += error * error
            step_point(
                working, 2 * dim, own_items, i, own_items, i, dim,
                rate * scales[count - 1] * error, number(count - 1), rates.keep,
            )  # fmt: skip
            own_bias[place] += rate * error - rates.bias_shrink * own_bias[place]
            put_back(working, own_history, i, dim, rates.keep_history)
        j = drawn[n]
        prefetch_row(vectors.items, dim * drawn[min(n + 1, len(drawn) - 1)], dim)
        score = scales[count] * dot(working, 0, vectors.items, dim * j, dim)
        error = -rates.offset - vectors.bias[j] - score
        loss += error * error
        step_point(
            working, 0, vectors.items, dim * j, changes, dim * n, dim,
            rate * scales[count] * error, number(count), -rates.shrink,
        )  # fmt: skip
        bias_changes[n] = rate * error - rates.bias_shrink * vectors.bias[j]
    return loss / 2


@inner
def _visit(
    rates: VisitRates, vectors: Vectors, dim: int, people: People, scales: Array, visits: Visits,
    v: int, begin: int, scratch: Scratch, seed: int, epoch: int,
) -> float:  # fmt: skip
    """Make visit `v` of the batch that begins at `begin`: the changes go to the scratch.

    Returns:
        The sum of the losses.
    """
    user, skipped = visits.users[v], visits.skipped[v]
    rows = people.indices[people.indptr[user] : people.indptr[user + 1]]
    state = advance(stream(seed, epoch, TRAINING, user))
    first = below(mix(state), len(rows)) + skipped
    if len(visits.places) > 0:
        first = visits.drawn[v] // rates.negatives
    if skipped > 0:  # other negatives than before
        state = stream(seed, epoch, TRAINING, user + skipped * (len(people.indptr) - 1))
    d, d_end = visits.drawn[v] - visits.drawn[begin], visits.drawn[v + 1] - visits.drawn[begin]
    o, o_end = visits.own[v] - visits.own[begin], visits.own[v + 1] - visits.own[begin]
    drawn, bias_changes = scratch.drawn_rows[d:d_end], scratch.drawn_bias[d:d_end]
    changes = scratch.drawn_items[dim * d : dim * d_end]
    own_history = scratch.own_history[dim * o : dim * o_end]
    own_items, own_bias = scratch.own_items[dim * o : dim * o_end], scratch.own_bias[o:o_end]
    working = scratch.working[v - begin]
    _draw(rows, people.active, drawn, state)
    for n in range(len(rows)):
        scratch.own_rows[o + n] = rows[n]
        own_bias[n] = vectors.bias[rows[n]]
    begin_history(working, vectors.history, vectors.items, own_history, own_items, rows, dim)
    if rates.pairwise:
        loss = _visit_pairs(
            rates, vectors, own_history, own_items, own_bias, drawn, changes, bias_changes,
            working, scales, dim, first, visits.places,
        )  # fmt: skip
    else:
        loss = _visit_points(
            rates, vectors, own_history, own_items, own_bias, drawn, changes, bias_changes,
            working, scales, dim, first, visits.places,
        )  # fmt: skip
    end_history(working, vectors.history, vectors.items, own_history, own_items, rows, dim)
    for n in range(len(rows)):
        own_bias[n] -= vectors.bias[rows[n]]
    return loss


@inner
def _add_changes(
    vectors: Vectors, dim: int, visits: Visits, begin: int, end: int, scratch: Scratch, part: int
) -> None:
    """Add what a batch left in the scratch to sixteen columns of the vectors, or to the biases."""
    own = scratch.own_rows[: visits.own[end] - visits.own[begin]]
    drawn = scratch.drawn_rows[: visits.drawn[end] - visits.drawn[begin]]
    if part < dim // LANES:
        k = LANES * part
        add_columns(vectors.history, own, scratch.own_history, dim, k)
        add_columns(vectors.items, own, scratch.own_items, dim, k)
        add_columns(vectors.items, drawn, scratch.drawn_items, dim, k)
    else:
        for n in range(len(own)):
            vectors.bias[own[n]] += scratch.own_bias[n]
        for n in range(len(drawn)):
            vectors.bias[drawn[n]] += scratch.drawn_bias[n]


def run_visits(
    rates: VisitRates,
    vectors: Vectors,
    dim: int,
    people: People,
    scales: Array,
    visits: Visits,
    scratch: Scratch,
    seed: int,
    epoch: int,
    losses: Array,
) -> None:
    """Run an epoch.

    Args:
        rates: Settings.
        vectors: Changed in place.
        dim: Length of a row, a multiple of `LANES`.
        people: The users' items.
        scales: Scale of a history by its length, (longest + 1,).
        visits: The visitors; each lacks at least one active item.
        scratch: Enough memory for every batch.
        seed: The run's seed.
        epoch: Number of the epoch.
        losses: Sum of the losses of every visit, (n_visits,) float64, out.
    """
    phases, is_shared = _phases(visits, dim)
    work = partial(
        _take_part, rates, vectors, dim, people, scales, visits, scratch, seed, epoch, losses,
        phases, np.zeros(2, np.int64),
    )  # fmt: skip
    share_tickets(work, most=int(phases[-1]) if is_shared else 1)


def _phases(visits: Visits, dim: int) -> tuple[Array, bool]:
    """Cut an epoch into phases that wait for each other: a batch's visits, then its changes.

    Returns:
        The first ticket of every phase and one after the last, (2 n_batches + 1,) int64; and
        whether any of them is worth more than one thread.
    """
    n_visits = len(visits.users)
    begins = np.arange(0, n_visits, visits.at_once)
    ends = np.minimum(begins + visits.at_once, n_visits)
    is_large = visits.drawn[ends] - visits.drawn[begins] >= WORTH_SHARING
    tickets = np.ones((len(begins), 2), np.int64)
    tickets[is_large, 0] = -(-(ends - begins)[is_large] // TOGETHER)
    tickets[is_large, 1] = dim // LANES + 1
    return np.concatenate([[0], np.cumsum(tickets)]), bool(is_large.any())


@compiled
def _take_part(
    rates: VisitRates, vectors: Vectors, dim: int, people: People, scales: Array, visits: Visits,
    scratch: Scratch, seed: int, epoch: int, losses: Array, phases: Array, counters: Array,
    ticket: int,
) -> int:  # fmt: skip
    """Take shares of phases and do them; see `share_tickets`.

    `counters` hold the next ticket, and how many are done.
    """
    if ticket == NONE:
        ticket = add_to(counters, 0, 1)
    while ticket < phases[-1]:
        phase = np.searchsorted(phases, ticket, side="right") - 1
        looks = 0
        while look_at(counters, 1) < phases[phase]:
            looks += 1
            if looks > SPIN_LIMIT:
                return ticket
        share, shares = ticket - phases[phase], phases[phase + 1] - phases[phase]
        begin: Any = phase // 2 * visits.at_once
        end: Any = min(begin + visits.at_once, len(visits.users))
        if phase % 2 == 0:
            size = end - begin
            for v in range(begin + size * share // shares, begin + size * (share + 1) // shares):
                losses[v] = _visit(
                    rates, vectors, dim, people, scales, visits, v, begin, scratch, seed, epoch
                )
        else:
            parts = dim // LANES + 1
            for part in range(parts * share // shares, parts * (share + 1) // shares):
                _add_changes(vectors, dim, visits, begin, end, scratch, part)
        add_to(counters, 1, 1)
        ticket = add_to(counters, 0, 1)
    return NONE
