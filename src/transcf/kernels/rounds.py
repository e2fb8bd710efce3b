"""Training in rounds: disjoint strata side by side, each with its own stream of random numbers.

All models that learn from triples visit users and items in the same order. What a visit does is
specific to the model: kernels call a function without a body, and an overload replaces it with the
function that is registered for the class of the model's rates.

Work is handed out while it goes on: tickets in a fixed order, to whichever thread is free. A kernel
takes the next ticket, waits until what the ticket builds upon is done, does its work and says so.
Tickets never build upon later ones, so the oldest that is not done can always go on. What belongs
to a ticket is fixed, and so is what comes before it: only which thread does it varies.
"""

import time
from collections.abc import Callable
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic, overload

from transcf.parallel import parallel_for, thread_count

from . import Array
from .decorators import INLINED, Function, compiled, inlined, pasted
from .lanes import element_address
from .rows import prefetch_row
from .sampling import TRAINING, Draws, Strata, Visit, advance, draw_negative, mix, stream, uniform

#: No ticket: nothing to go on with, or nothing left.
NONE = -1
#: Looks at a counter before the thread is given up: some microseconds.
SPIN_LIMIT = 4000


def share_tickets(take_part: Callable[[int], int], most: int) -> None:
    """Let threads take part until no ticket is left; returns when all are done.

    Args:
        take_part: A kernel that takes tickets and does their work. It begins with the ticket it is
            given, or takes one if that is `NONE`; it returns a ticket that has to wait for
            others, or `NONE` if none is left.
        most: Threads that can be of use.
    """
    is_broken = False

    def work(first: int, end: int) -> None:
        nonlocal is_broken
        ticket = NONE
        try:
            while (ticket := take_part(ticket)) != NONE and not is_broken:
                time.sleep(0)  # another thread may need this core
        except BaseException:
            is_broken = True  # this ticket will not be done: other threads must not wait for it
            raise

    parallel_for(max(1, min(thread_count(), most)), work)


@intrinsic
def add_to(typing: Any, counters: Any, index: Any, amount: Any) -> Any:
    """Add to a counter (int64), one thread at a time; returns what it was before."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        address = element_address(context, builder, signature.args[0], *args[:2])
        return builder.atomic_rmw("add", address, args[2], "acq_rel")

    return types.int64(counters, types.intp, types.int64), generate


@intrinsic
def look_at(typing: Any, counters: Any, index: Any) -> Any:
    """Read a counter (int64), and see all that was written before it came to that."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        address = element_address(context, builder, signature.args[0], *args)
        return builder.load_atomic(address, "acquire", 8, typ=ir.IntType(64))

    return types.int64(counters, types.intp), generate


def by_rates(stub: Callable[..., Any]) -> Callable[..., Callable[[Function], Function]]:
    """Let kernels call the function that is registered for the class of their rates.

    Args:
        stub: What kernels call: a function without a body whose first argument are the rates.

    Returns:
        A decorator that registers a function with the same arguments for a class of rates, and for
        classes made from it.
    """
    functions: dict[type, Callable[..., Any]] = {}

    def find(rates: Any, *_: Any) -> Callable[..., Any]:
        kinds = rates.instance_class.__mro__
        return next(functions[kind] for kind in kinds if kind in functions)

    overload(stub, jit_options=INLINED, strict=False)(find)  # the functions have types

    def register(kind: type) -> Callable[[Function], Function]:
        def decorate(function: Function) -> Function:
            functions[kind] = function
            return function

        return decorate

    return register


Extra = TypeVar("Extra")
#: As many as there are.
ALL = -1


class PackedRows(NamedTuple, Generic[Extra]):
    """What training changes: packed rows of users and items (flat), and the items' biases.

    Items and biases are in block order. `extra` is whatever else a model reads or writes.
    """

    users: Array
    items: Array
    bias: Array
    extra: Extra


class Rounds(NamedTuple):
    """Which rounds of which epoch, from `begin` to before `end`."""

    seed: int  # of the run
    epoch: int
    begin: int
    end: int
    first_group: int = 0  # how many groups come before those of this process
    low: int = 0  # of a single round, a process can run its groups `low` to before `high`
    high: int = ALL


def train_visit(
    rates: Any, rows: PackedRows[Any], dim: int, draws: Draws, visit: Visit, state: np.uint64
) -> Any:
    """Draw the triples of a visit and take a step on each; return the state and the summed loss."""


def cost_at(rates: Any, rows: PackedRows[Any], dim: int, user: int, place: int) -> Any:
    """Return minus the score of a user's row and an item's place, bias left out."""


visit_for, cost_for = by_rates(train_visit), by_rates(cost_at)


@inlined
def hardest(
    rates: Any, rows: PackedRows[Any], dim: int, draws: Draws, visit: Visit, reach: Any, j: int,
    far: Any, state: np.uint64,
) -> tuple[np.uint64, int, Any, Any]:  # fmt: skip
    """The nearest of several negatives: the first is at the place j and costs `far`, bias included.

    Returns:
        The state, the place and the cost of the nearest, and how many come within `reach`.
    """
    violations = np.int64(far < reach)
    for _ in range(1, rates.negatives):
        state, other = draw_negative(draws, visit, state)
        place = visit.start + other
        distance = cost_at(rates, rows, dim, visit.user, place) - rows.bias[place]
        violations += np.int64(distance < reach)
        if distance < far:
            j, far = place, distance
    return state, j, far, violations


@pasted
def _stratum(
    rates: Any, rows: PackedRows[Any], dim: int, strata: Strata, user_samples: Array, g: int,
    b: int, state: np.uint64, marks: Array, totals: Array,
) -> None:  # fmt: skip
    """Train one stratum; `totals` receives the summed loss and the number of triples.

    `marks` hold stamps of earlier visits, which are never used again, or zeros.
    """
    visitor, first, slots, shares = strata.visitor, strata.first, strata.slots, strata.shares
    start, size = strata.starts[b], strata.starts[b + 1] - strata.starts[b]
    draws = Draws(slots, shares, marks)
    index = g * (len(strata.starts) - 1) + b
    width = len(rows.users) // len(user_samples)
    loss, triples = 0.0, 0
    for number in range(strata.visits[index], strata.visits[index + 1]):
        user, begin = visitor[number], first[number]
        count = first[number + 1] - begin
        prefetch_row(rows.users, width * visitor[number + 1], width)
        state = advance(state)
        share = shares[begin + count - 1] if len(shares) > 0 else user_samples.dtype.type(count)
        samples = int(user_samples[user] * share + uniform(mix(state)))
        if samples == 0 or count == size:
            continue
        for entry in range(begin, begin + count):
            marks[slots[entry]] = number + 1
        visit = Visit(g, user, start, size, begin, count, number + 1, samples)
        state, visit_loss = train_visit(rates, rows, dim, draws, visit, state)
        loss += visit_loss
        triples += samples
    totals[0], totals[1] = loss, triples


def run_rounds(
    rates: Any, rows: PackedRows[Any], dim: int, strata: Strata, user_samples: Array, rounds:
    Rounds, totals: Array,
) -> None:  # fmt: skip
    """Run some rounds: in round r, group g meets block (g + r) modulo the blocks.

    With some of the groups only, one round at a time, since others have its blocks next. The class
    of `rates` selects the model, `dim` is the padded length of a vector, and `user_samples` are
    samples of a user per unit of weight, (n_users,). There are at least as many blocks as groups.
    Loss and triples of strata are written to `totals`, (n_groups * n_blocks, 2) float64.
    """
    n_groups = len(strata.groups) - 1
    if rounds.high == ALL:
        rounds = rounds._replace(high=n_groups)
    counters = np.zeros(1 + n_groups, np.int64)
    marks = np.zeros((n_groups, np.diff(strata.starts).max()), np.int64)  # stamps begin with 1
    work = partial(
        take_part, rates, rows, dim, strata, user_samples, rounds, marks, totals, counters
    )
    share_tickets(work, most=rounds.high - rounds.low)


@inlined
def _may_start(counters: Array, r: int, g: int, n_groups: int, n_blocks: int) -> bool:
    """Whether group g has done its first r rounds, and its next block is free.

    The next group had the block one round ago. The last group gets its block from the first one,
    unless no group had it for some rounds because there are more blocks than groups.
    """
    if look_at(counters, 1 + g) < r:
        return False
    if g + 1 < n_groups:
        return look_at(counters, 2 + g) >= r
    return look_at(counters, 1) >= r - (n_blocks - n_groups)


@compiled
def take_part(
    rates: Any, rows: PackedRows[Any], dim: int, strata: Strata, user_samples: Array,
    rounds: Rounds, marks: Array, totals: Array, counters: Array, ticket: int,
) -> int:  # fmt: skip
    """Take strata, round by round and group by group, and train them; see `share_tickets`.

    `counters` hold the next ticket, and how many of the rounds each group has done.
    """
    n_groups, n_blocks = len(strata.groups) - 1, len(strata.starts) - 1
    at_once = rounds.high - rounds.low
    if ticket == NONE:
        ticket = add_to(counters, 0, 1)
    while ticket < (rounds.end - rounds.begin) * at_once:
        r, g = ticket // at_once, rounds.low + ticket % at_once
        looks = 0
        while not _may_start(counters, r, g, n_groups, n_blocks):
            looks += 1
            if looks > SPIN_LIMIT:
                return ticket
        group = rounds.first_group + g
        b = (group + rounds.begin + r) % n_blocks
        s = g * n_blocks + b
        state = stream(rounds.seed, rounds.epoch, TRAINING, group * n_blocks + b)
        _stratum(rates, rows, dim, strata, user_samples, g, b, state, marks[g], totals[s])
        add_to(counters, 1 + g, 1)
        ticket = add_to(counters, 0, 1)
    return NONE
