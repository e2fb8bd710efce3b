"""What is done with one partition of users, by whoever has it: merged, counted, split, written.

Between the steps a partition lies in one file of arrays. Items are counted over all of the log, and
those counts are added up by whoever runs the steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import polars as pl

from transcf.data.ids import Rows
from transcf.data.interactions import Mask
from transcf.data.ordering import order_by_user
from transcf.data.partitioned.manifest import PARTS, Counts, digest_of
from transcf.data.partitioned.shuffle import gather
from transcf.data.rating_filter import has_ratings, meets_min_rating
from transcf.data.splits import LEAST_EVENTS, Order

Arrays: TypeAlias = dict[str, npt.NDArray[Any]]
#: The place of an item that does not appear.
NOWHERE = np.iinfo(np.int64).max


@dataclass(frozen=True)
class Share:
    """One partition.

    Attributes:
        number: From 0.
        path: Its file of arrays.
        first: The first of its users, among all ids of the log.
        end: One after the last.
        n_items: Items of the log.
    """

    number: int
    path: Path
    first: int
    end: int
    n_items: int

    @property
    def users(self) -> slice:
        """Its users among all."""
        return slice(self.first, self.end)


@dataclass(frozen=True)
class Merged:
    """What came of merging.

    Attributes:
        events: Before.
        repeats: Left out since another event of the pair is kept.
        disliked: Left out for their rating.
        unrated: How many of these have none.
        users: Events of each user of the partition.
        items: Events of each item with them, (n_items,).
    """

    events: int
    repeats: int
    disliked: int
    unrated: int
    users: Counts
    items: Counts


@dataclass(frozen=True)
class Kept:
    """What is left of a log.

    Attributes:
        users: Which of the partition's users are left.
        items: The new number of each item of the log; -1 for those that are left out.
        first: The new number of the first user.
    """

    users: Mask
    items: Rows
    first: int


@dataclass(frozen=True)
class Written:
    """A partition on disk.

    Attributes:
        users: Events of each of its users in each of the three parts, (3, users).
        items: The same of all items with them, (3, n_items).
        digest: SHA-256 of the file.
    """

    users: Counts
    items: Counts
    digest: str


def merge(
    share: Share,
    pieces: Sequence[tuple[Path, int, int]],
    dtype: np.dtype[np.void],
    min_rating: float | None,
) -> Merged:
    """Put the events of a partition in order, keep one of each pair, leave out what is disliked.

    As `Interactions.from_rows` and `filter_min_rating` do it for a whole log.
    """
    from transcf.kernels.sorting import count_keys, offsets_of_marked

    records, names = gather(pieces, dtype), dtype.names or ()
    columns = {name: np.ascontiguousarray(records[name]) for name in names}
    del records
    ordered = order_by_user(
        columns["user"] - np.int32(share.first),
        columns["item"],
        share.end - share.first,
        share.n_items,
        columns.get("rating"),
        columns.get("time"),
    )
    kept: Mask = np.ones(len(ordered.items), dtype=bool)
    unrated = 0
    if has_ratings(min_rating, rated=ordered.ratings is not None) and ordered.ratings is not None:
        kept = meets_min_rating(ordered.ratings, min_rating)
        unrated = int(np.isnan(ordered.ratings[~kept]).sum())
    indptr = offsets_of_marked(ordered.indptr, kept)
    arrays: Arrays = {
        "indptr": indptr,
        "items": ordered.items[kept],
        "positions": columns["position"][ordered.positions[kept]],
    }
    if ordered.ratings is not None:
        arrays["ratings"] = ordered.ratings[kept]
    if ordered.timestamps is not None:
        arrays["times"] = ordered.timestamps[kept]
    np.savez(share.path, allow_pickle=False, **arrays)
    return Merged(
        events=len(columns["user"]),
        repeats=len(columns["user"]) - len(kept),
        disliked=len(kept) - int(indptr[-1]),
        unrated=unrated,
        users=np.diff(indptr),
        items=count_keys(arrays["items"], share.n_items),
    )


def tally(share: Share, users: Mask, items: Mask, least: int) -> tuple[Mask, Counts]:
    """Leave out users with too few events, and count the events of items with those who stay.

    Args:
        share: The partition.
        users: Its users that are there so far.
        items: (n_items,) the items that are there so far.
        least: Fewest events of a user with such items.

    Returns:
        Which users stay, and (n_items,) events with them.
    """
    from transcf.kernels.splitting import count_by_column, count_by_row

    with np.load(share.path) as stored:
        indptr, rows = stored["indptr"], stored["items"]
    enough: Mask = users & (count_by_row(indptr, rows, items) >= least)
    return enough, count_by_column(indptr, rows, enough, share.n_items)


def first_positions(share: Share, users: Mask) -> Counts:
    """(n_items,) where each item first appears with users who stay."""
    with np.load(share.path) as stored:
        indptr, rows, positions = stored["indptr"], stored["items"], stored["positions"]
    taken = np.repeat(users, np.diff(indptr))
    first = np.full(share.n_items, NOWHERE)
    np.minimum.at(first, rows[taken], positions[taken])
    return first


def write(
    share: Share, kept: Kept, target: Path, order: Order, seed: int, ranks: Counts
) -> Written:
    """Leave out what is not kept, hold out two events of each user, and write the partition.

    Args:
        share: The partition.
        kept: Who and what is kept.
        target: The Parquet file.
        order: By which events are held out, as `leave_one_out` does it for a whole log.
        seed: Of the random order.
        ranks: The place of each item that is left in the paper's order.

    """
    from transcf.kernels.sorting import offsets_of_marked
    from transcf.kernels.splitting import entry_mask, last_two

    with np.load(share.path) as stored:
        arrays = dict(stored)
    mask = entry_mask(arrays["indptr"], arrays["items"], kept.users, kept.items >= 0)
    offsets = offsets_of_marked(arrays.pop("indptr"), mask)
    indptr = np.concatenate([[0], offsets[1:][kept.users]])
    events = {name: values[mask] for name, values in arrays.items()}
    events["items"] = kept.items[events["items"]]
    keys = _keys(events, indptr, order, seed, kept.first, ranks)
    test, validation = last_two(indptr, keys, LEAST_EVENTS)
    parts = np.zeros(int(indptr[-1]), np.uint8)
    parts[validation], parts[test] = PARTS.index("validation"), PARTS.index("test")
    owners = np.repeat(np.arange(len(indptr) - 1, dtype=np.int32), np.diff(indptr))
    table = {"user": owners + np.int32(kept.first), "item": events["items"], "part": parts}
    names = {"positions": "position", "ratings": "rating", "times": "timestamp"}
    table |= {names[name]: events[name] for name in names if name in events}
    pl.DataFrame(table).write_parquet(target)
    n_items = int(kept.items.max()) + 1
    of_users, of_items = (
        np.array([np.bincount(rows[parts == part], minlength=size) for part in range(len(PARTS))])
        for rows, size in ((owners, len(indptr) - 1), (events["items"], n_items))
    )
    return Written(of_users, of_items, digest_of(target))


def _keys(
    events: Arrays,
    indptr: Counts,
    order: Order,
    seed: int,
    first_user: int,
    ranks: Counts,
) -> Counts:
    """(n,) what the events of a user are ordered by."""
    from transcf.kernels.splitting import event_keys

    items = events["items"].astype(np.int32, copy=False)
    if order == "random":
        return event_keys(indptr, items, seed, first_user)
    if order == "paper":
        return ranks[items]
    return events["times" if order == "time" else "positions"].astype(np.int64, copy=False)
