"""FISM: users made of their items, and the steps of a sample on all of them at once.

A user's history has the sum X = sum of p_k over the user's items. A sample moves the p of *every*
item in the history by the same step, so it is enough to remember the sum D of these steps until
the user's visit ends: the true vector of item k is p_k + D and the true sum is kept in X. The item
that a sample leaves out of the history gets the steps subtracted. Each sample is thus an exact step
on the user's own items in O(dim), however long the history is. The negatives of a visit are read as
they were before it, and moved after it.

`working` holds [X | D | C | B] of one visit, each of length dim: C is the sum without the item that
is left out, B is D as it was when that began.
"""

from typing import Any

from . import Array, inlined
from .lanes import LANES, fill, load, store, sum_lanes, zeros


@inlined
def begin_history(
    working: Array, history: Array, items: Array, own: Array, own_items: Array,
    rows: Array, dim: int,
) -> None:  # fmt: skip
    """Copy the rows of a user's items to `own` and `own_items`; X is their sum, D is 0."""
    for k in range(2 * dim):
        working[k] = 0
    for n in range(len(rows)):
        source, target = dim * rows[n], dim * n
        for k in range(0, dim, LANES):
            p = load(history, source + k)
            store(own, target + k, p)
            store(working, k, load(working, k) + p)
            store(own_items, target + k, load(items, source + k))


@inlined
def end_history(
    working: Array, history: Array, items: Array, own: Array, own_items: Array,
    rows: Array, dim: int,
) -> None:  # fmt: skip
    """Turn the copies into changes: p_k + D and q_k, less what they were."""
    for n in range(len(rows)):
        source, target = dim * rows[n], dim * n
        for k in range(0, dim, LANES):
            p = load(own, target + k) + load(working, dim + k)
            store(own, target + k, p - load(history, source + k))
            q = load(own_items, target + k)
            store(own_items, target + k, q - load(items, source + k))


@inlined
def leave_out(working: Array, own: Array, i: int, dim: int) -> None:
    """Make C the history without one item: X - (p_i + D)."""
    for k in range(0, dim, LANES):
        steps = load(working, dim + k)
        store(working, 2 * dim + k, load(working, k) - load(own, i + k) - steps)
        store(working, 3 * dim + k, steps)


@inlined
def put_back(working: Array, own: Array, i: int, dim: int, keep: Any) -> None:
    """Make X from C and the item, which had no part in the steps and shrinks by `keep`."""
    by = fill(keep)
    for k in range(0, dim, LANES):
        vector = by * (load(own, i + k) + load(working, 3 * dim + k))
        store(own, i + k, vector - load(working, dim + k))
        store(working, k, load(working, 2 * dim + k) + vector)


@inlined
def product_apart(working: Array, own: Array, i: int, items: Array, j: int, dim: int) -> Any:
    """C times q_i - q_j."""
    c = 2 * dim
    total = load(working, c) * (load(own, i) - load(items, j))
    for k in range(LANES, dim, LANES):
        total = total + load(working, c + k) * (load(own, i + k) - load(items, j + k))
    return sum_lanes(total)


@inlined
def step_point(
    working: Array, c: int, items: Array, i: int, into: Array, o: int, dim: int,
    gain: Any, many: Any, keep: Any,
) -> None:  # fmt: skip
    """One step on a score: q_i and all items of the history move.

    Args:
        working: The history; its sum begins at `c`.
        c: 0 for the whole history, 2 dim for the one without an item.
        items: q_i begins at `i`.
        i: See above.
        into: Receives `keep` times q_i plus the step, from `o` on.
        o: See above.
        dim: Length of the vectors.
        gain: Learning rate times error times scale of the history.
        many: Number of items in the history.
        keep: 1 (or 0, where only the change is wanted), less the shrinkage.
    """
    by, times, kept = fill(gain), fill(gain * many), fill(keep)
    for k in range(0, dim, LANES):
        q, x = load(items, i + k), load(working, c + k)
        store(into, o + k, kept * q + by * x)
        store(working, c + k, x + times * q)
        store(working, dim + k, load(working, dim + k) + by * q)


@inlined
def step_pair(
    working: Array, own: Array, i: int, items: Array, j: int, change: Array, o: int, dim: int,
    gain: Any, many: Any, keep: Any, shrink: Any,
) -> None:  # fmt: skip
    """One step on a difference of scores: q_i, q_j and all items of C move.

    q_i is changed in `own`; the change of q_j goes to `change` from `o` on.
    """
    c = 2 * dim
    by, times, kept, less = fill(gain), fill(gain * many), fill(keep), fill(shrink)
    for k in range(0, dim, LANES):
        a, b, x = load(own, i + k), load(items, j + k), load(working, c + k)
        apart, step = by * (a - b), by * x
        store(own, i + k, kept * a + step)
        store(change, o + k, zeros(b) - less * b - step)
        store(working, c + k, x + times * (a - b))
        store(working, dim + k, load(working, dim + k) + apart)


@inlined
def add_columns(into: Array, rows: Array, changes: Array, dim: int, k: int) -> None:
    """Add sixteen columns from `k` on of changed rows to their places, in the order of the list."""
    for n in range(len(rows)):
        place = dim * rows[n] + k
        store(into, place, load(into, place) + load(changes, dim * n + k))
