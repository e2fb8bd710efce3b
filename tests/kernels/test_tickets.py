"""Tickets: each is done once, in an order that keeps to what they build upon."""

from __future__ import annotations

import numpy as np
import pytest

from transcf.kernels.decorators import compiled
from transcf.kernels.rounds import NONE, add_to, look_at, share_tickets
from transcf.parallel import use_threads


@compiled
def _chain(log: np.ndarray, counters: np.ndarray, ticket: int) -> int:
    """Every ticket builds upon the one two before it."""
    if ticket == NONE:
        ticket = add_to(counters, 0, 1)
    while ticket < len(log):
        if ticket > 1 and look_at(counters, 1 + ticket - 2) == 0:
            return ticket
        before = log[ticket - 2] if ticket > 1 else 0
        log[ticket] = before + 1
        add_to(counters, 1 + ticket, 1)
        ticket = add_to(counters, 0, 1)
    return NONE


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_every_ticket_is_done_once_and_in_order(threads: int) -> None:
    log, counters = np.zeros(3000, np.int64), np.zeros(3001, np.int64)
    with use_threads(threads):
        share_tickets(lambda ticket: _chain(log, counters, ticket), most=8)
    assert (counters[1:] == 1).all()
    assert (log == np.arange(3000) // 2 + 1).all()


def test_nobody_waits_for_a_thread_that_failed() -> None:
    """The second to come takes a ticket and fails; whoever waits for it has to give up."""
    took = []

    def take_part(ticket: int) -> int:
        took.append(ticket)
        if len(took) == 2:
            raise KeyboardInterrupt
        return 7

    with use_threads(2), pytest.raises(KeyboardInterrupt):
        share_tickets(take_part, most=2)
