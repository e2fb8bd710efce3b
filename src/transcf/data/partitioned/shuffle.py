"""From pieces of files to partitions of users: ids are counted, events numbered and dealt out.

What is dealt out lies in files of plain records, a file for each piece with the partitions one
after the other, so that whoever gathers a partition reads its share of each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl

from transcf.data.ids import IdMap
from transcf.data.partitioned.chunks import Chunk
from transcf.data.partitioned.manifest import ITEMS, USERS
from transcf.data.validate import (
    RatingRule,
    Role,
    Roles,
    check_blanks,
    plain_ids,
    to_categories,
    to_ratings,
    to_times,
)


@dataclass(frozen=True)
class Counted:
    """Ids of a piece.

    Attributes:
        users: Table `id, events`.
        items: Table `id`.
        categories: Table `item_id, category`, or None.
    """

    users: pl.DataFrame
    items: pl.DataFrame
    categories: pl.DataFrame | None


@dataclass(frozen=True)
class Scattered:
    """What was dealt out of a piece.

    Attributes:
        path: The file of records.
        starts: (partitions + 1,) where each partition begins in it.
        without_rating: Events whose rating is missing.
        are_dates: Whether times were given as dates.
    """

    path: Path
    starts: npt.NDArray[np.int64]
    without_rating: int
    are_dates: bool


def record_type(roles: Roles) -> np.dtype[np.void]:
    """Return how an event is written down; what the log does not have takes no room."""
    fields = [("user", "<i4"), ("item", "<i4"), ("position", "<i8")]
    fields += [("rating", "<f4")] if "rating" in roles else []
    fields += [("time", "<i8")] if "timestamp" in roles else []
    return np.dtype(fields)


def count_ids(piece: Chunk, roles: Roles) -> Counted:
    """Count the events of each user of a piece, and list its items."""
    wanted: Roles = {r: c for r, c in roles.items() if r in ("user", "item", "category")}
    frame = piece.read(wanted)
    users, items = (_ids(frame, piece, roles, role) for role in ("user", "item"))
    categories = None
    if "category" in roles:
        place = piece.place(roles["category"])
        categories = to_categories(items, frame["category"], place)
    counted = users.to_frame("id").group_by("id").len("events")
    return Counted(counted, items.unique().to_frame("id"), categories)


def scatter(
    piece: Chunk, roles: Roles, rule: RatingRule, scratch: Path, bounds: npt.NDArray[np.int64]
) -> Scattered:
    """Number the events of a piece, and write them down by partition, else in their order.

    Args:
        piece: Where they are.
        roles: Its columns.
        rule: What ratings have to be.
        scratch: Folder with the numbered ids, and for the file.
        bounds: (partitions + 1,) the first user of each partition.
    """
    frame = piece.read(roles)
    records = np.empty(len(frame), record_type(roles))
    users, items = _numbers(scratch)
    records["user"] = users.rows_of_column(_ids(frame, piece, roles, "user"))
    records["item"] = items.rows_of_column(_ids(frame, piece, roles, "item"))
    records["position"] = np.arange(piece.before, piece.before + len(frame))
    without_rating, are_dates = 0, False
    if "rating" in roles:
        records["rating"] = to_ratings(frame["rating"], piece.place(roles["rating"]), rule)
        without_rating = int(np.isnan(records["rating"]).sum())
    if "timestamp" in roles:
        times = to_times(frame["timestamp"], piece.place(roles["timestamp"]))
        records["time"], are_dates = times
    partition = np.searchsorted(bounds, records["user"], side="right") - 1
    order = np.argsort(partition, kind="stable")
    starts = np.searchsorted(partition[order], np.arange(len(bounds)))
    path = scratch / f"events-{piece.number:06}.bin"
    records[order].tofile(path)
    return Scattered(path, starts, without_rating, are_dates)


def gather(
    pieces: Sequence[tuple[Path, int, int]], dtype: np.dtype[np.void]
) -> npt.NDArray[np.void]:
    """Return the events of a partition, in the order of the log.

    Args:
        pieces: File, first record and number of records, in the order of the log.
        dtype: How events are written down.
    """
    records = np.empty(sum(count for _, _, count in pieces), dtype)
    at = 0
    for path, first, count in pieces:
        # Read rather than mapped: pages of a map would count as memory of the process.
        some = np.fromfile(path, dtype, count, offset=first * dtype.itemsize)
        records[at : at + count] = some
        at += count
    return records


def forget_numbers() -> None:
    """Let go of the ids that this process has looked things up in."""
    _numbers.cache_clear()


@lru_cache(maxsize=1)
def _numbers(scratch: Path) -> tuple[IdMap, IdMap]:
    """Read the numbered ids, once in a process."""
    users, items = (pl.read_parquet(scratch / name, glob=False)["id"] for name in (USERS, ITEMS))
    return IdMap(users), IdMap(items)


def _ids(frame: pl.DataFrame, piece: Chunk, roles: Roles, role: Role) -> pl.Series:
    """Return a column of ids, checked as all readers do."""
    place = piece.place(roles[role])
    ids = plain_ids(frame[role], place)
    if ids.dtype == pl.String:
        check_blanks(ids.unique(), ids, place)
    return ids
