"""What a command line calls DATA, as a split that fits a protocol."""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import Any, Unpack

import numpy as np

from transcf.data.authors_format import is_prepared, read_prepared_split
from transcf.data.candidates import draw_candidates
from transcf.data.catalog import download, recognize
from transcf.data.filters import paper_filter
from transcf.data.interactions import Interactions
from transcf.data.locations import find_folder, resolve
from transcf.data.logs import as_interactions
from transcf.data.logs import open_data as open_data
from transcf.data.partitioned.log import is_partitioned, open_parts
from transcf.data.public_split import PUBLIC, is_public_split, read_public_split
from transcf.data.published import CATALOG
from transcf.data.readers import Reading
from transcf.data.split import Split
from transcf.data.splits import leave_one_out, temporal_cut
from transcf.data.storage import is_saved_split, load_saved_split
from transcf.errors import DataError, EvaluationError, ParameterError
from transcf.protocols import Protocol, full_ranking, protocol_named

#: Users that a cut has to leave on both sides to be the usual way: a number, or a share of all.
ENOUGH_USERS, _ENOUGH_SHARE = 100, 0.1


def open_split(
    spec: str | PathLike[str],
    protocol: str | None = None,
    *,
    seed: int = 0,
    **reading: Unpack[Reading],
) -> Split:
    """Open a split that fits a protocol.

    A saved split is taken as it is, if it fits. For sampled protocols, a prepared folder gives
    the authors' own split, and so does Book-Crossing, filtered and split by their rules; for the
    others, Gowalla comes in the parts that others compare on. A log is split by `temporal_cut` for
    `forward`, and by `leave_one_out` for the others: in time order where there are times, else at
    random; `Split.how` says which. Sampled protocols get 99 drawn candidates where none are stored.

    Args:
        spec: As for `open_data`.
        protocol: A name of `transcf.protocols.PROTOCOLS`. None stands for "forward" where a log
            has times and enough users (100, or a tenth) can be judged after a cut, and for
            "strict" elsewhere.
        seed: Of the random split and of the candidates.
        reading: As for `open_data`.
    """
    # Resolved here, so that a warning about the path names the line of the caller.
    log, split = _open(resolve(spec), protocol, seed, reading)
    return as_split(log if split is None else split, protocol, seed=seed)


def open_log_and_split(
    spec: str | PathLike[str] | list[str],
    protocol: str | None = None,
    *,
    seed: int = 0,
    **reading: Unpack[Reading],
) -> tuple[Interactions, Split]:
    """Open all events and a split of them that fits a protocol; a file is read once.

    Args:
        spec: As for `open_split`, or a list of files.
        protocol: As for `open_split`.
        seed: As for `open_split`.
        reading: As for `open_data`.

    Example:
        >>> log, split = open_log_and_split("synthetic")
        >>> len(log) == len(split.train) + len(split.validation) + len(split.test)
        True
    """
    if isinstance(spec, list):
        events = open_data(spec, **reading)
        return events, as_split(events, protocol, seed=seed)
    source = resolve(spec)
    log, split = _open(source, protocol, seed, reading)
    chosen = as_split(log if split is None else split, protocol, seed=seed)
    return open_data(source) if log is None else log, chosen


def _open(
    source: str | Path, protocol: str | None, seed: int, reading: Reading
) -> tuple[Interactions | None, Split | None]:
    """Open a stored split, or a log with the split that is published for it, if any.

    Returns:
        The log, None for a stored split, and the split, None where the protocol decides on it.
        At least one of them is there. Only logs take options of reading.
    """
    sampled = protocol is not None and protocol_named(protocol).sampled
    folder = _folder(source)
    if folder is None and source == PUBLIC:
        folder = download(PUBLIC)  # here, for its parts are files of their own
    is_saved = folder is not None and (is_saved_split(folder) or is_partitioned(folder))
    is_public = folder is not None and not sampled and is_public_split(folder)
    if folder is None or not (is_saved or is_public or (sampled and is_prepared(folder))):
        log = open_data(source, **reading)
        by_rule = sampled and _is_split_by_rule(source)
        return log, leave_one_out(paper_filter(log), "paper") if by_rule else None
    if reading:
        raise ParameterError(
            f"{source} is no file: it is split already, so how to read it ({', '.join(reading)}) "
            "can only be said of the log that it was made from."
        )
    if is_public:
        return None, read_public_split(folder, seed=seed)
    if is_partitioned(folder):
        return None, open_parts(folder).split()
    return None, load_saved_split(folder) if is_saved else read_prepared_split(folder)


def as_split(data: Any, protocol: str | None = None, *, seed: int = 0) -> Split:
    """Make a split that fits a protocol out of whatever there is.

    Args:
        data: A split, what `open_split` takes, or what `as_interactions` takes.
        protocol: As for `open_split`, which says how a log is split.
        seed: Of the random split and of the candidates.

    Raises:
        EvaluationError: The protocol asks for another kind of split.

    Example:
        >>> from transcf import synthesize
        >>> as_split(synthesize(users=50, items=30, interactions=500), "strict")
        Split(leave-one-out by time: train 400, validation 50, test 50, candidates none)
    """
    if isinstance(data, str | PathLike):
        return open_split(data, protocol, seed=seed)
    named = None if protocol is None else protocol_named(protocol)
    split = data if isinstance(data, Split) else _split(as_interactions(data), named, seed)
    if named is None:
        return split
    check_split(split, named.name)
    needs_some = named.sampled and split.candidates is None
    return draw_candidates(split, seed=seed) if needs_some else split


def usual_protocol(split: Split) -> str:
    """Return the protocol that a split is judged by unless another is named.

    Example:
        >>> usual_protocol(as_split("synthetic"))
        'forward'
    """
    return full_ranking(cut=split.is_cut, refit=True).name


def check_split(split: Split, name: str) -> None:
    """Raise an `EvaluationError` if a protocol of full ranking asks for another kind of split."""
    protocol = protocol_named(name)
    if protocol.sampled or protocol.cut == split.is_cut:
        return
    other = full_ranking(cut=split.is_cut, refit=protocol.refit).name
    words = (
        "a log that is cut at one moment, temporal_cut(log), so that nobody learns from the future"
        if protocol.cut
        else "each user's newest event held out, leave_one_out(log)"
    )
    raise EvaluationError(
        f"The {protocol.name} protocol asks for {words}, and this split holds out {split.how}: "
        f"split the log so, or use the {other} protocol."
    )


def _split(log: Interactions, protocol: Protocol | None, seed: int) -> Split:
    if protocol is None:
        return _usual_cut(log) or leave_one_out(log, seed=seed)
    return temporal_cut(log) if protocol.cut else leave_one_out(log, seed=seed)


def _usual_cut(log: Interactions) -> Split | None:
    """Cut a log in time if it has times, and if enough users can be judged on both sides."""
    if log.timestamps is None:
        return None
    try:
        split = temporal_cut(log)
    except DataError:  # as of a log whose events are all of one moment
        return None
    sides = ((split.train, split.validation), (split.before_test, split.test))
    enough = max(1, min(ENOUGH_USERS, _ENOUGH_SHARE * np.count_nonzero(log.by_user.counts)))
    return split if all(_judged(*side) >= enough for side in sides) else None


def _judged(before: Interactions, after: Interactions) -> int:
    """Count users with a later event of an item, both of which there were before."""
    users, items = before.by_user.counts > 0, before.by_item.counts > 0
    known = users[after.user_rows] & items[after.item_rows]
    return len(np.unique(after.user_rows[known]))


def _is_split_by_rule(source: str | Path) -> bool:
    """Tell whether the authors' split of a dataset follows from its published files."""
    if isinstance(source, Path):
        dataset = recognize(source) if source.is_dir() else None
    else:
        dataset = CATALOG.get(source)
    return dataset is not None and dataset.split_by_rule


def _folder(source: str | Path) -> Path | None:
    """Return the folder that a name or a path stands for, if it does."""
    if isinstance(source, str):
        return find_folder(source)
    return source if source.is_dir() else None
