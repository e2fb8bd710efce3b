"""Training in rounds: disjoint strata side by side, each with its own stream of random numbers.

Who meets which items is the same for every model that learns from triples. What a visit does with
them is the model's own, found by the class of its rates when the kernels are compiled.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numba.extending import overload

from . import BORROWING, Array, Function, compiled, inlined
from .neighborhood import prefetch_row
from .rng import advance, mix, stream, uniform
from .sampling import TRAINING, Strata, Visit, draw_negative
from .tickets import NONE, PATIENCE, add_to, look_at, share_tickets


class Rows(NamedTuple):
    """What training changes: packed rows of users and items (flat), and the items' biases.

    Items and biases are in dealt order. `extra` is whatever else a model reads or writes.
    """

    users: Array
    items: Array
    bias: Array
    extra: Any


def train_visit(
    rates: Any, weights: Any, users: Any, items: Any, bias: Any, extra: Any, dim: Any, slots: Any,
    shares: Any, marks: Any, visit: Any, state: Any,
) -> Any:  # fmt: skip
    """What `visits_of` has found for the rates; only for kernels."""


def cost_at(rates: Any, users: Any, user: Any, items: Any, place: Any, dim: Any) -> Any:
    """What `costs_of` has found for the rates; only for kernels."""


def visits_of(*kinds: type) -> Callable[[Function], Function]:
    """Let a compiled function train the visits of models with rates of these classes.

    It draws the visit's triples and takes a step on each; it returns the state, the summed loss
    and the hits: triples whose negative was in the way.
    """

    def register(function: Function) -> Function:
        @overload(train_visit, jit_options=BORROWING)
        def choose(
            rates: Any, weights: Any, users: Any, items: Any, bias: Any, extra: Any, dim: Any,
            slots: Any, shares: Any, marks: Any, visit: Any, state: Any,
        ) -> Any:  # fmt: skip
            def train(
                rates: Any, weights: Any, users: Any, items: Any, bias: Any, extra: Any, dim: Any,
                slots: Any, shares: Any, marks: Any, visit: Any, state: Any,
            ) -> Any:  # fmt: skip
                return function(
                    rates, weights, users, items, bias, extra, dim, slots, shares, marks, visit,
                    state,
                )  # fmt: skip

            return train if rates.instance_class in kinds else None

        return function

    return register


def costs_of(*kinds: type) -> Callable[[Function], Function]:
    """Let a compiled function say what the item at a place costs: minus its score, bias left out.

    Its arguments are those of `cost_at`, with the user's row number and the item's place.
    """

    def register(function: Function) -> Function:
        @overload(cost_at)
        def choose(rates: Any, users: Any, user: Any, items: Any, place: Any, dim: Any) -> Any:
            def cost(rates: Any, users: Any, user: Any, items: Any, place: Any, dim: Any) -> Any:
                return function(rates, users, user, items, place, dim)

            return cost if rates.instance_class in kinds else None

        return function

    return register


@inlined
def hardest(
    rates: Any,
    users: Array,
    items: Array,
    bias: Array,
    dim: int,
    marks: Array,
    visit: Visit,
    reach: Any,
    j: int,
    far: Any,
    state: np.uint64,
) -> tuple[np.uint64, int, Any, Any]:
    """The nearest of several negatives, and how many of them come within `reach`.

    `j` (a place) is the first of them and `far` what it costs, bias included.
    """
    violations = np.int64(far < reach)
    for _ in range(1, rates.negatives):
        state, other = draw_negative(state, marks, visit)
        place = visit.start + other
        distance = cost_at(rates, users, visit.user, items, place, dim) - bias[place]
        violations += np.int64(distance < reach)
        if distance < far:
            j, far = place, distance
    return state, j, far, violations


@compiled
def _stratum(
    rates: Any,
    weights: Array,
    rows: Rows,
    dim: int,
    strata: Strata,
    user_samples: Array,
    g: int,
    b: int,
    state: np.uint64,
    totals: Array,
) -> None:
    """Train one stratum; `totals` receives the summed loss, the hits and all triples."""
    users, items, bias, extra = rows
    visitor, first, slots, shares = strata.visitor, strata.first, strata.slots, strata.shares
    start, size = strata.starts[b], strata.starts[b + 1] - strata.starts[b]
    marks = np.full(size, -1, np.int64)
    index = g * (len(strata.starts) - 1) + b
    width = len(users) // len(user_samples)
    loss, hits, triples = 0.0, 0, 0
    for number in range(strata.visits[index], strata.visits[index + 1]):
        user, begin = visitor[number], first[number]
        count = first[number + 1] - begin
        prefetch_row(users, width * visitor[number + 1], width)
        state = advance(state)
        share = shares[begin + count - 1] if len(shares) > 0 else user_samples.dtype.type(count)
        samples = int(user_samples[user] * share + uniform(mix(state)))
        if samples == 0 or count == size:
            continue
        for entry in range(begin, begin + count):
            marks[slots[entry]] = number
        visit = Visit(g, user, start, size, begin, count, number, samples)
        state, visit_loss, visit_hits = train_visit(
            rates, weights, users, items, bias, extra, dim, slots, shares, marks, visit, state
        )
        loss += visit_loss
        hits += visit_hits
        triples += samples
    totals[0], totals[1], totals[2] = loss, hits, triples


def run_rounds(
    rates: Any,
    weights: Array,
    rows: Rows,
    dim: int,
    strata: Strata,
    user_samples: Array,
    seed: int,
    epoch: int,
    begin: int,
    end: int,
    totals: Array,
) -> None:
    """Run the rounds begin..end-1: in round r, group g meets block (g + r) modulo the blocks.

    Args:
        rates: step sizes; the class picks the model.
        weights: what steps look up: their weight by the number of violations among the negatives,
            (negatives + 1,), or whatever else the model says.
        rows: what training changes.
        dim: length of one vector in a row, a multiple of `LANES`.
        strata: this epoch's strata, with at least as many blocks as groups.
        user_samples: samples of a user per unit of weight (1 on average), (n_users,).
        seed: the run's seed.
        epoch: number of the epoch.
        begin: first round.
        end: one after the last round, at most the number of blocks.
        totals: out, (loss, hits, triples) per stratum, (n_groups * n_blocks, 3) float64.
    """
    n_groups = len(strata.groups) - 1
    work = partial(
        _take_part, rates, weights, rows, dim, strata, user_samples, seed, epoch, begin, end,
        totals, np.zeros(1 + n_groups, np.int64),
    )  # fmt: skip
    share_tickets(work, most=n_groups)


@inlined
def _may_start(counters: Array, r: int, g: int, n_groups: int, n_blocks: int) -> bool:
    """Whether group g has done its first r rounds, and whoever had its next block is done, too.

    That was the next group, one round ago. The block of the last group comes from the first one,
    unless it was not with anybody for some rounds, because there are more blocks than groups.
    """
    if look_at(counters, 1 + g) < r:
        return False
    if g + 1 < n_groups:
        return look_at(counters, 2 + g) >= r
    return look_at(counters, 1) >= r - (n_blocks - n_groups)


@compiled
def _take_part(
    rates: Any, weights: Array, rows: Rows, dim: int, strata: Strata, user_samples: Array,
    seed: int, epoch: int, begin: int, end: int, totals: Array, counters: Array, ticket: int,
) -> int:  # fmt: skip
    """Take strata, round by round and group by group, and train them; see `share_tickets`.

    `counters` hold the next ticket, and how many of the rounds each group has done.
    """
    n_groups, n_blocks = len(strata.groups) - 1, len(strata.starts) - 1
    if ticket == NONE:
        ticket = add_to(counters, 0, 1)
    while ticket < (end - begin) * n_groups:
        r, g = ticket // n_groups, ticket % n_groups
        looks = 0
        while not _may_start(counters, r, g, n_groups, n_blocks):
            looks += 1
            if looks > PATIENCE:
                return ticket
        b = (g + begin + r) % n_blocks
        s = g * n_blocks + b
        state = stream(seed, epoch, TRAINING, s)
        _stratum(rates, weights, rows, dim, strata, user_samples, g, b, state, totals[s])
        add_to(counters, 1 + g, 1)
        ticket = add_to(counters, 0, 1)
    return NONE
