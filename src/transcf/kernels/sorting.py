"""Linear-time numbering and ordering of events by small integer keys."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from .decorators import compiled, inner

_LOWER, _UPPER = np.uint64(0xFFFFFFFF), np.uint64(0xFFFFFFFF00000000)
_HALF = np.uint64(32)


@compiled
def number_by_hash(
    hashes: npt.NDArray[np.uint64],
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]:
    """Number equal hashes alike, by first appearance.

    An open table holds the upper half of a hash with its number plus one, in one word, so that
    a look-up touches one line of the cache. Hashes that differ in their lower half only may
    rarely get the same number: callers compare what was hashed.

    Returns:
        codes: (n,) the number of each entry.
        first: (n_codes,) where each number appears first.
    """
    table = np.zeros(1 << 12, dtype=np.uint64)
    codes = np.empty(len(hashes), dtype=np.int32)
    first = np.empty(len(table), dtype=np.int64)
    n_codes = 0
    for entry in range(len(hashes)):
        word = hashes[entry]
        slot = _slot(word, table)
        if table[slot] == 0:
            first[n_codes] = entry
            n_codes += 1
            table[slot] = (word & _UPPER) | np.uint64(n_codes)
        codes[entry] = np.int32(table[slot] & _LOWER) - 1
        if 3 * n_codes > 2 * len(table):
            # Twice as many slots, and everything seen so far goes in again.
            table = np.zeros(2 * len(table), dtype=np.uint64)
            first = np.concatenate((first, np.empty_like(first)))
            for known in range(n_codes):
                word = hashes[first[known]]
                table[_slot(word, table)] = (word & _UPPER) | np.uint64(known + 1)
    return codes, first[:n_codes].copy()


@inner
def _slot(word: np.uint64, table: npt.NDArray[np.uint64]) -> np.int64:
    """Find the slot of a hash in an open table, or the empty one where it belongs."""
    last = len(table) - 1
    slot = np.int64(word) & last
    while table[slot] != 0 and (table[slot] ^ word) > _LOWER:
        slot = (slot + 1) & last
    return slot


@compiled
def place_by_item(
    users: npt.NDArray[np.int32],
    items: npt.NDArray[np.int32],
    places: npt.NDArray[np.int64],
    packed: npt.NDArray[np.uint64],
) -> None:
    """First pass of a radix sort: put events in the order of their items.

    Each pass reads in sequence and carries what the next one needs, so that only its writes are
    scattered. `places`, (n_items,), say where the events of each item go, and are used up;
    `packed`, (n,), gets the user in the upper, the event in the lower half.
    """
    for event in range(len(items)):
        item = items[event]
        packed[places[item]] = (np.uint64(users[event]) << _HALF) | np.uint64(event)
        places[item] += 1


@compiled
def place_by_user(
    by_item: npt.NDArray[np.uint64],
    starts: npt.NDArray[np.int64],
    places: npt.NDArray[np.int64],
    packed: npt.NDArray[np.uint64],
) -> None:
    """Second pass: put events in the order of their users.

    `by_item` is what `place_by_item` wrote, in which items begin at `starts`, (n_items + 1,);
    `places`, (n_users,), are used up; `packed` gets the item in the upper, the event in the lower
    half.
    """
    for item in range(len(starts) - 1):
        upper = np.uint64(item) << _HALF
        for place in range(starts[item], starts[item + 1]):
            user = np.int64(by_item[place] >> _HALF)
            packed[places[user]] = upper | (by_item[place] & _LOWER)
            places[user] += 1


@compiled
def merge_repeats(
    indptr: npt.NDArray[np.int64],
    packed: npt.NDArray[np.uint64],
    times: npt.NDArray[np.int64],
    ratings: npt.NDArray[np.float32],
) -> npt.NDArray[np.int64]:
    """Keep one event of each (user, item) in what `place_by_user` wrote, in place.

    The newest time wins, then the highest rating (any rating above NaN), then the later event.
    Empty `times` or `ratings` do not take part.

    Args:
        indptr: (n_users + 1,) offsets of the users; what is kept moves to the front.
        packed: (n,) item in the upper, event in the lower half.
        times: Of all events, or empty.
        ratings: Of all events, or empty.

    Returns:
        (n_users,) how many events of each user are left.
    """
    counts = np.empty(len(indptr) - 1, dtype=np.int64)
    end = indptr[0]
    for user in range(len(counts)):
        start = end
        for place in range(indptr[user], indptr[user + 1]):
            word = packed[place]
            if end > start and (packed[end - 1] ^ word) <= _LOWER:
                best = np.int64(packed[end - 1] & _LOWER)
                if _wins(np.int64(word & _LOWER), best, times, ratings):
                    packed[end - 1] = word
                continue
            packed[end] = word
            end += 1
        counts[user] = end - start
    return counts


@inner
def _wins(
    event: np.int64, best: np.int64, times: npt.NDArray[np.int64], ratings: npt.NDArray[np.float32]
) -> bool:
    """Whether a repeat takes the place of the best one so far; it comes later in the source."""
    if len(times) and times[event] != times[best]:
        return bool(times[event] > times[best])
    if len(ratings):
        if np.isnan(ratings[event]):
            return bool(np.isnan(ratings[best]))
        return not ratings[event] < ratings[best]
    return True
