"""What a command line calls DATA, as a split that fits a protocol."""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import Any, Literal, TypeAlias, Unpack, get_args

from transcf.data.candidates import draw_candidates
from transcf.data.interactions import Interactions
from transcf.data.locations import find_folder, resolve
from transcf.data.logs import open_data as open_data
from transcf.data.prepared import is_prepared, read_prepared_split
from transcf.data.readers import Reading
from transcf.data.split import Split
from transcf.data.splits import leave_one_out
from transcf.data.storage import is_saved_split, load_saved_split
from transcf.errors import ParameterError, is_word, shown

#: Ways of judging: they decide how data is split, and whether there are candidates.
Protocol: TypeAlias = Literal["strict", "paper", "paper-as-published"]


def open_split(
    spec: str | PathLike[str],
    protocol: str = "strict",
    *,
    seed: int = 0,
    **reading: Unpack[Reading],
) -> Split:
    """Open a split that fits a protocol.

    A saved split is taken as it is. For `paper` and `paper-as-published`, a prepared folder
    gives the authors' own split. Everything else is split by `leave_one_out`: in time order
    where there are times, else at random; `Split.how` says which. The two sampled protocols get
    99 drawn candidates where none are stored.

    Args:
        spec: As for `open_data`.
        protocol: "strict", "paper" or "paper-as-published".
        seed: Of the random split and of the candidates.
        reading: As for `open_data`.
    """
    return as_split(_open(resolve(spec), protocol, reading), protocol, seed=seed)


def open_log_and_split(
    spec: str | PathLike[str],
    protocol: str = "strict",
    *,
    seed: int = 0,
    **reading: Unpack[Reading],
) -> tuple[Interactions, Split]:
    """Open all events and a split of them that fits a protocol; a file is read once.

    Args:
        spec: As for `open_split`.
        protocol: As for `open_split`.
        seed: As for `open_split`.
        reading: As for `open_data`.

    Example:
        >>> log, split = open_log_and_split("synthetic")
        >>> len(log) == len(split.train) + len(split.validation) + len(split.test)
        True
    """
    source = resolve(spec)
    found = _open(source, protocol, reading)
    log = found if isinstance(found, Interactions) else open_data(source)
    return log, as_split(found, protocol, seed=seed)


def _open(source: str | Path, protocol: str, reading: Reading) -> Interactions | Split:
    """Open what there is: a split where it is made already, else a log."""
    check_protocol(protocol)
    folder = _folder(source)
    is_saved = folder is not None and is_saved_split(folder)
    if folder is None or not (is_saved or (protocol != "strict" and is_prepared(folder))):
        return open_data(source, **reading)
    if reading:
        raise ParameterError(
            f"{source} is no file: it is split already, so how to read it ({', '.join(reading)}) "
            "can only be said of the log that it was made from."
        )
    return load_saved_split(folder) if is_saved else read_prepared_split(folder)


def as_split(data: Any, protocol: str = "strict", *, seed: int = 0) -> Split:
    """Make a split that fits a protocol out of whatever there is.

    Args:
        data: A split, what `open_split` takes, or what `as_interactions` takes.
        protocol: As for `open_split`, which says how a log is split.
        seed: Of the random split and of the candidates.

    Example:
        >>> from transcf import synthesize
        >>> as_split(synthesize(users=50, items=30, interactions=500))
        Split(leave-one-out by time: train 400, validation 50, test 50, candidates none)
    """
    if isinstance(data, str | PathLike):
        return open_split(data, protocol, seed=seed)
    check_protocol(protocol)
    split = data if isinstance(data, Split) else leave_one_out(data, seed=seed)
    if protocol != "strict" and split.candidates is None:
        split = draw_candidates(split, seed=seed)
    return split


def check_protocol(protocol: str) -> None:
    """Raise a `ParameterError` unless it is the name of a protocol."""
    if not is_word(protocol, get_args(Protocol)):
        allowed = ", ".join(map(repr, get_args(Protocol)))
        raise ParameterError(
            f"protocol={shown(protocol)} is not allowed; it must be one of {allowed}."
        )


def _folder(source: str | Path) -> Path | None:
    """Return the folder that a name or a path stands for, if it does."""
    if isinstance(source, str):
        return find_folder(source)
    return source if source.is_dir() else None
