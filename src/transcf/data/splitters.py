"""Splitting: hold events out of a log, and open stored splits."""

from __future__ import annotations

from dataclasses import replace
from datetime import date, datetime, timedelta
from numbers import Real
from os import PathLike
from pathlib import Path
from typing import Any, Literal, TypeAlias, Unpack

import numpy as np
import numpy.typing as npt
import polars as pl

from transcf.data.filters import paper_filter
from transcf.data.interactions import Interactions, Mask
from transcf.data.readers import Reading, as_interactions, read_interactions
from transcf.data.split import Recipe, Split, draw_candidates
from transcf.data.validate import Place, naming, to_times
from transcf.errors import (
    DataError,
    EvaluationError,
    ParameterError,
    check_integer,
    check_word,
    shown,
)
from transcf.protocols import full_ranking, protocol_named

Order: TypeAlias = Literal["auto", "time", "position", "paper", "random"]
Moment: TypeAlias = date | datetime | int | str
_Times: TypeAlias = npt.NDArray[np.int64]

#: Fewest events of a user that leave one for training after holding out two.
LEAST_EVENTS = 3
#: Users (a number or a share) that a temporal cut must leave on both sides to be the default.
ENOUGH_USERS, _ENOUGH_SHARE = 100, 0.1
#: What is held out of each user's events, by order.
_LAST: dict[str, str] = {
    "time": "the newest event of each user for test, the one before it for validation",
    "position": "the last event of each user in the log for test, the one before it for validation",
    "paper": "each user's event with the largest item number for test, the next largest for "
    "validation",
    "random": "one event of each user at random for test, another for validation",
}


def open_split(
    spec: str | PathLike[str],
    protocol: str | None = None,
    *,
    seed: int = 0,
    **reading: Unpack[Reading],
) -> Split:
    """Open data and split it for a protocol.

    A saved split is used as it is, if it fits. For sampled protocols, a prepared folder gives the
    authors' own split, and so does Book-Crossing, filtered and split by their rules; for the
    others, Gowalla and Yelp2018 have their public parts. Everything else is split by `split_log`.

    Args:
        spec: A path or the name of a dataset, as for `read_interactions`.
        protocol: A name of `transcf.protocols.PROTOCOLS`; None as for `split_log`.
        seed: Seed of the random split and of the candidates.
        reading: Options of `read_interactions`.
    """
    from transcf.data.datasets import resolve

    source = resolve(spec)  # here, so that a warning about the path names the caller's line
    return _open(source, protocol, seed, reading)[0]


def open_log_and_split(
    spec: str | PathLike[str] | list[str],
    protocol: str | None = None,
    *,
    seed: int = 0,
    **reading: Unpack[Reading],
) -> tuple[Interactions, Split]:
    """Return all events and a split of them, as `open_split` does; a file is read once."""
    from transcf.data.datasets import resolve

    if isinstance(spec, list):
        log = read_interactions(spec, **reading)
        return log, split_log(log, protocol, seed=seed)
    source = resolve(spec)
    split, read = _open(source, protocol, seed, reading)
    return read_interactions(source) if read is None else read, split


def _open(
    source: str | Path, protocol: str | None, seed: int, reading: Reading
) -> tuple[Split, Interactions | None]:
    """Return the split that a source holds, or the split of its log and that log.

    A log is split by the authors' rules where its dataset has some.
    """
    from transcf.data.datasets import is_split_by_rule, read_split

    sampled = protocol is not None and protocol_named(protocol).sampled
    stored = read_split(source, sampled=sampled, seed=seed)
    if stored is not None and reading:
        raise ParameterError(
            f"{source} is no file: it is split already, so how to read it ({', '.join(reading)}) "
            "can only be said of the log that it was made from."
        )
    if stored is not None:
        return split_log(stored, protocol, seed=seed), None
    log = read_interactions(source, **reading)
    by_rule = sampled and is_split_by_rule(source)
    data = leave_one_out(paper_filter(log), "paper") if by_rule else log
    return split_log(data, protocol, seed=seed), log


def split_log(data: Any, protocol: str | None = None, *, seed: int = 0) -> Split:
    """Split a log for a protocol.

    A log is cut in time by `temporal_cut` for `temporal`, and split by `leave_one_out` for the
    others: in time order where there are times, else at random; `Split.how` says which. For
    `sequential`, the order of a log without times stands for its times. Sampled protocols get 99
    drawn candidates where none are stored.

    Args:
        data: A split, which is checked, anything that `read_interactions` takes, or a path or
            name for `open_split`.
        protocol: A name of `transcf.protocols.PROTOCOLS`. None means "temporal" where a log has
            times and enough users (100, or a tenth) can be evaluated after a cut, and
            "leave-last-out" elsewhere.
        seed: Seed of the random split and of the candidates.

    Raises:
        EvaluationError: The protocol needs another kind of split.

    Example:
        >>> from transcf import synthesize
        >>> split_log(synthesize(users=50, items=30, interactions=500), "leave-last-out")
        Split(leave-one-out by time: train 400, validation 50, test 50, candidates none)
    """
    if isinstance(data, str | PathLike):
        return open_split(data, protocol, seed=seed)
    named = None if protocol is None else protocol_named(protocol)
    if isinstance(data, Split):
        split = data
    else:
        log = as_interactions(data)
        if named is not None and named.longer_history and log.timestamps is None:
            log = replace(log, timestamps=log.positions)
        cut = _default_cut(log) if named is None else temporal_cut(log) if named.cut else None
        split = cut or leave_one_out(log, seed=seed)
    if named is None:
        return split
    check_split(split, named.name)
    needs_some = named.sampled and split.candidates is None
    return draw_candidates(split, seed=seed) if needs_some else split


def _default_cut(log: Interactions) -> Split | None:
    """Cut a log in time if it has times, and if enough users can be evaluated on both sides."""
    if log.timestamps is None:
        return None
    try:
        split = temporal_cut(log)
    except DataError:  # for example, all events have the same time
        return None
    enough = max(1, min(ENOUGH_USERS, _ENOUGH_SHARE * np.count_nonzero(log.user_counts)))
    for before, after in ((split.train, split.validation), (split.before_test, split.test)):
        users, items = before.user_counts > 0, before.item_counts > 0
        known = users[after.user_rows] & items[after.item_rows]
        if len(np.unique(after.user_rows[known])) < enough:
            return None
    return split


def usual_protocol(split: Split) -> str:
    """Return the default protocol of a split."""
    return full_ranking(cut=split.is_cut, refit=True).name


def check_split(split: Split, name: str) -> None:
    """Raise an `EvaluationError` if a protocol of full ranking needs another kind of split."""
    protocol = protocol_named(name)
    is_ordered = not protocol.longer_history or _holds_out_last(split)
    if protocol.sampled or (protocol.cut == split.is_cut and is_ordered):
        return
    other = full_ranking(cut=split.is_cut, refit=protocol.refit).name
    words = "each user's last event held out, leave_one_out(log, by='time')"
    if protocol.cut:
        words = "a log that is cut at one moment, temporal_cut(log)"
    raise EvaluationError(
        f"The {protocol.name} protocol asks for {words}, and this split holds out {split.how}: "
        f"split the log so, or use the {other} protocol."
    )


def _holds_out_last(split: Split) -> bool:
    """Whether a split holds out the last event of users for test and the one before it."""
    held_out = (split.validation, split.test)
    if any(part.user_counts.max(initial=0) > 1 for part in held_out):
        return False
    if split.train.timestamps is None:
        return split.recipe.get("rule") == "leave-one-out by position"
    latest = np.full(split.train.n_users, np.iinfo(np.int64).min)
    for part in (split.train, *held_out):
        if part.timestamps is None or (part.timestamps < latest[part.user_rows]).any():
            return False
        np.maximum.at(latest, part.user_rows, part.timestamps)
    return True


def leave_one_out(log: Any, by: Order = "auto", *, seed: int = 0) -> Split:
    """Hold out the last event of each user for test, and the one before it for validation.

    Users with fewer than 3 events stay whole in train; the report counts them. `Split.how` says
    in words what was done.

    Args:
        log: A log, or anything that `read_interactions` takes.
        by: What "last" means. "auto": by time where there are timestamps, else at random. "time":
            the newest; of equal times the larger item id is later. "position": the last in the
            source. "paper": the largest item number, where integer ids are their own number and
            text ids are numbered by first appearance in the (filtered) source; it holds out rare
            items and serves comparisons with the paper. "random": any, by the seed.
        seed: Seed of the random order.

    Example:
        >>> from transcf import synthesize
        >>> leave_one_out(synthesize(users=50, items=30, interactions=500), by="time")
        Split(leave-one-out by time: train 400, validation 50, test 50, candidates none)
    """
    from transcf.kernels.evaluation import event_keys, last_two

    log = as_interactions(log)
    order, recipe = leaving_out(by, seed, timed=log.timestamps is not None)
    if order == "time":
        keys = _times(log)
    elif order == "position":
        keys = log.positions
    elif order == "paper":
        keys = _item_numbers(log)[log.item_rows]
    else:
        keys = event_keys(log.by_user.indptr, log.item_rows, seed, 0)
    test, validation = last_two(log.by_user.indptr, keys, LEAST_EVENTS)
    held_out = int((log.user_counts >= LEAST_EVENTS).sum())
    whole = int((log.user_counts > 0).sum()) - held_out
    counts = {"users_held_out": held_out, "users_kept_whole": whole}
    return _parts(log, _mask(log, validation), _mask(log, test), recipe, **counts)


def leaving_out(by: Order, seed: int, *, timed: bool) -> tuple[Order, Recipe]:
    """Return the order that `leave_one_out` uses, and the recipe of the split."""
    check_word("by", by, ("auto", *_LAST))
    order = by if by != "auto" else "time" if timed else "random"
    if order == "time" and not timed:
        raise _no_times()
    recipe: Recipe = {"rule": f"leave-one-out by {order}", "seed": None, "how": _LAST[order]}
    if order == "random":
        recipe["seed"] = check_integer("seed", seed)
        unordered = " (the log has no timestamps)" if by == "auto" else ""
        recipe["how"] = f"{_LAST[order]}, seed {seed}{unordered}"
    return order, recipe


def _item_numbers(log: Interactions) -> _Times:
    """(n_items,) numbers in the order of the item numbers of the paper's rule."""
    if not log.items.is_text:
        return np.arange(log.n_items, dtype=np.int64)
    first = np.full(log.n_items, len(log.positions) and log.positions.max() + 1, dtype=np.int64)
    np.minimum.at(first, log.item_rows, log.positions)
    return first


def temporal_cut(log: Any, at: Moment | float = 0.1, *, validation: Moment | float = 0.1) -> Split:
    """Hold out all events from one moment on, for all users.

    Events of the same moment always go to the same side, so a share may come out a little
    larger than asked for.

    Args:
        log: A log with timestamps, or anything that `read_interactions` takes.
        at: First moment of test: a date, datetime or ISO text where the log has dates, an
            integer where it has integers; or a float, the share of newest events.
        validation: The same for the validation part, among what comes before `at`.
    """
    log = as_interactions(log)
    times = _times(log)
    test = times >= _threshold(times, at, log.times_are_dates, "at")
    earlier = times[~test]
    if not len(earlier):
        raise DataError(f"at={shown(at)} leaves nothing before the cut: choose a later one.")
    start = _threshold(earlier, validation, log.times_are_dates, "validation")
    how = f"{_from(at, '')} for test, {_from(validation, ' before them')} for validation"
    at, validation = (m.isoformat() if isinstance(m, date) else m for m in (at, validation))
    recipe: Recipe = {"rule": "temporal cut", "at": at, "validation": validation, "how": how}
    return _parts(log, (times >= start) & ~test, test, recipe)


def _from(moment: Moment | float, among: str) -> str:
    if isinstance(moment, float):
        return f"the newest {100 * moment:g} % of the events{among}"
    return f"events{among} from {moment} on"


def _threshold(times: _Times, moment: Moment | float, are_dates: bool, name: str) -> int:
    """Return the first time of the held-out part, which has an event at least."""
    if isinstance(moment, float):
        _check_share(name, moment)
        place = len(times) - max(1, round(moment * len(times)))
        return int(np.partition(times, place)[place])
    start, last = _moment(moment, are_dates, name), int(times.max())
    if start > last:
        date_of_last = datetime(1970, 1, 1) + timedelta(microseconds=last if are_dates else 0)
        before = " before the cut" if name == "validation" else ""
        raise DataError(
            f"{name}={shown(moment)} is after the last event{before} "
            f"({date_of_last if are_dates else last}): choose an earlier moment."
        )
    return start


def _moment(moment: Moment, are_dates: bool, name: str) -> int:
    """Return a moment as a time of the log."""
    given = f"{name}={shown(moment)}"
    if isinstance(moment, int) and not isinstance(moment, bool):
        if are_dates:
            raise ParameterError(f"{given} is an integer but the log has dates.")
        if not -(2**63) <= moment < 2**63:
            raise ParameterError(f"{given} is no time: times fit into 64 bits.")
        return moment
    if not are_dates:
        raise ParameterError(f"{given} is a date but the log has integer times.")
    if isinstance(moment, str | date):
        place = Place("the cut", name, lambda row: "the cut: value")
        values, dated = to_times(pl.Series([moment]), place)
        if dated:
            return int(values[0])
    raise ParameterError(f"{given} is neither a share, a date nor an integer time.")


def random_ratio(log: Any, test: float = 0.1, *, validation: float = 0.1, seed: int = 0) -> Split:
    """Hold out a random share of all events.

    Args:
        log: A log, or anything that `read_interactions` takes.
        test: Share of events for test.
        validation: Share of events for validation.
        seed: Seed of the draw, which depends on ids only, not on the order of the log.
    """
    from transcf.kernels.evaluation import event_keys

    log = as_interactions(log)
    _check_share("test", test)
    _check_share("validation", validation)
    test, validation, seed = float(test), float(validation), check_integer("seed", seed)
    if test + validation >= 1:
        raise ParameterError(f"test={test} and validation={validation} leave nothing to train on.")
    order = np.argsort(event_keys(log.by_user.indptr, log.item_rows, seed, 0))
    n_test, n_validation = round(test * len(log)), round(validation * len(log))
    how = (
        f"{100 * test:g} % of the events at random for test, {100 * validation:g} % for "
        f"validation, seed {seed}"
    )
    recipe: Recipe = {"rule": "random ratio", "test": test, "validation": validation}
    recipe |= {"seed": seed, "how": how}
    held_out = _mask(log, order[n_test : n_test + n_validation])
    return _parts(log, held_out, _mask(log, order[:n_test]), recipe)


def _times(log: Interactions) -> _Times:
    if log.timestamps is None:
        raise _no_times()
    return log.timestamps


def _no_times() -> DataError:
    return DataError(
        f"The log has no timestamps to split by: {naming('timestamp')}, or split at random or by "
        "position."
    )


def _check_share(name: str, share: float) -> None:
    if isinstance(share, bool) or not isinstance(share, Real) or not 0 < share < 1:
        raise ParameterError(f"{name}={shown(share)} is not allowed; a share is between 0 and 1.")


def _mask(log: Interactions, events: _Times) -> Mask:
    mask = np.zeros(len(log), dtype=bool)
    mask[events] = True
    return mask


def _parts(log: Interactions, validation: Mask, test: Mask, recipe: Recipe, **counts: int) -> Split:
    """Select the three parts, and count users without training events."""
    train = log.select(~(validation | test))
    if not len(train):
        raise DataError(
            f"The split leaves nothing of {len(log):,} interactions to train on: "
            f"hold out less, or give users with at least {LEAST_EVENTS} events."
        )
    untrained = (log.user_counts > 0) & (train.user_counts == 0)
    sizes = {"train": len(train), "validation": validation.sum(), "test": test.sum(), **counts}
    report = log.report.then("split", **sizes, users_without_training=untrained.sum())
    return Split(train, log.select(validation), log.select(test), recipe=recipe, report=report)
