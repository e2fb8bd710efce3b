"""Work that is handed out while it goes on: tickets in a fixed order, to whichever thread is free.

A kernel takes the next ticket, waits until what the ticket builds upon is done, does its work and
says so. Tickets never build upon later ones, so the oldest that is not done can always go on. What
belongs to a ticket is fixed, and so is what comes before it: only who does it depends on threads.
"""

import time
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from transcf.parallel import parallel_for, thread_count

from .lanes import element_address

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
                time.sleep(0)  # somebody else may need this core to get done
        except BaseException:
            is_broken = True  # nobody will do this ticket's work: others must not wait for it
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
