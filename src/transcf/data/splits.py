"""Ways to hold events out of a log without leaks."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from numbers import Real
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import polars as pl

from transcf.data.columns import naming
from transcf.data.interactions import Interactions, Mask
from transcf.data.logs import as_interactions
from transcf.data.seeds import check_seed
from transcf.data.split import Recipe, Split
from transcf.data.values import Place, to_times
from transcf.errors import DataError, ParameterError, is_word, shown

Order: TypeAlias = Literal["auto", "time", "position", "paper", "random"]
Moment: TypeAlias = date | datetime | int | str

#: Fewest events of a user that leave one for training after holding out two.
LEAST_EVENTS = 3
#: What is held out of each user's events, by order.
_LAST: dict[str, str] = {
    "time": "the newest event of each user for test, the one before it for validation",
    "position": "the last event of each user in the log for test, the one before it for validation",
    "paper": "each user's event with the largest item number for test, the next largest for "
    "validation",
    "random": "one event of each user at random for test, another for validation",
}


def leave_one_out(log: Any, by: Order = "auto", *, seed: int = 0) -> Split:
    """Hold out the last event of each user for test, and the one before it for validation.

    Users with fewer than 3 events stay whole in train; the report counts them. `Split.how` says
    in words what was done.

    Args:
        log: A log, or whatever `as_interactions` takes.
        by: What "last" means. "auto": by time where there are timestamps, else at random. "time":
            the newest; of equal times the larger item id is later. "position": the last in the
            source. "paper": the largest item number, where integer ids are their own number and
            text ids are numbered by first appearance in the (filtered) source; it holds out rare
            items and is there to compare with the paper. "random": any, by the seed.
        seed: Of the random order; the others do without.

    Example:
        >>> from transcf import synthesize
        >>> leave_one_out(synthesize(users=50, items=30, interactions=500), by="time")
        Split(leave-one-out by time: train 400, validation 50, test 50, candidates none)
    """
    from transcf.kernels.splitting import last_two

    log = as_interactions(log)
    order, recipe = leaving_out(by, seed, timed=log.timestamps is not None)
    keys = _order_keys(log, order, seed)
    test, validation = last_two(log.by_user.indptr, keys, LEAST_EVENTS)
    held_out = log.by_user.counts >= LEAST_EVENTS
    some = log.by_user.counts > 0
    return _parts(
        log,
        _mask(len(log), validation),
        _mask(len(log), test),
        recipe,
        users_held_out=int(held_out.sum()),
        users_kept_whole=int((some & ~held_out).sum()),
    )


def leaving_out(by: Order, seed: int, *, timed: bool) -> tuple[Order, Recipe]:
    """Return the order that a word stands for, and what splits by it say of themselves.

    Args:
        by: As for `leave_one_out`.
        seed: Of the random order.
        timed: Whether events have times.

    Example:
        >>> leaving_out("auto", 0, timed=True)[0]
        'time'
    """
    if not is_word(by, ("auto", *_LAST)):
        raise ParameterError(f"by={shown(by)} is not one of auto, {', '.join(_LAST)}.")
    order = by
    if by == "auto":
        order = "time" if timed else "random"
    if order == "time" and not timed:
        raise _no_times()
    recipe: Recipe = {
        "rule": f"leave-one-out by {order}",
        "seed": check_seed(seed) if order == "random" else None,
        "how": _how(order, seed, no_times=by == "auto" and order == "random"),
    }
    return order, recipe


def temporal_cut(log: Any, at: Moment | float = 0.1, *, validation: Moment | float = 0.1) -> Split:
    """Hold out everything from one moment on, for all users at once.

    Events of the same moment always go to the same side, so a share may come out a little
    larger than asked for.

    Args:
        log: A log with timestamps, or whatever `as_interactions` takes.
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
    if not test.any():
        last = _shown(int(times.max()), log.times_are_dates)
        raise DataError(
            f"at={shown(at)} is after the last event ({last}): choose an earlier moment."
        )
    start = _threshold(earlier, validation, log.times_are_dates, "validation")
    if start > earlier.max():
        last = _shown(int(earlier.max()), log.times_are_dates)
        raise DataError(
            f"validation={shown(validation)} is after the last event before the cut ({last}): "
            "choose an "
            f"earlier moment."
        )
    recipe: Recipe = {
        "rule": "temporal cut",
        "at": _plain(at),
        "validation": _plain(validation),
        "how": f"{_from(at, '')} for test, {_from(validation, ' before them')} for validation",
    }
    return _parts(log, (times >= start) & ~test, test, recipe)


def random_ratio(log: Any, test: float = 0.1, *, validation: float = 0.1, seed: int = 0) -> Split:
    """Hold out a random share of all events.

    Args:
        log: A log, or whatever `as_interactions` takes.
        test: Share of events for test.
        validation: Share of events for validation.
        seed: Of the draw, which depends on ids only, not on the order of the log.
    """
    from transcf.kernels.splitting import event_keys

    log = as_interactions(log)
    for name, share in (("test", test), ("validation", validation)):
        _check_share(name, share)
    test, validation = float(test), float(validation)
    if test + validation >= 1:
        raise ParameterError(f"test={test} and validation={validation} leave nothing to train on.")
    order = np.argsort(event_keys(log.by_user.indptr, log.item_rows, check_seed(seed), 0))
    n_test, n_validation = round(test * len(log)), round(validation * len(log))
    recipe: Recipe = {
        "rule": "random ratio",
        "test": test,
        "validation": validation,
        "seed": seed,
        "how": f"{100 * test:g} % of the events at random for test, {100 * validation:g} % for "
        f"validation, seed {seed}",
    }
    return _parts(
        log,
        _mask(len(log), order[n_test : n_test + n_validation]),
        _mask(len(log), order[:n_test]),
        recipe,
    )


def _order_keys(log: Interactions, by: Order, seed: int) -> npt.NDArray[np.int64]:
    """(n,) what the events of a user are ordered by."""
    from transcf.kernels.splitting import event_keys

    if by == "time":
        return _times(log)
    if by == "position":
        return log.positions
    if by == "paper":
        return _item_numbers(log)[log.item_rows]
    return event_keys(log.by_user.indptr, log.item_rows, check_seed(seed), 0)


def _how(order: str, seed: int, *, no_times: bool) -> str:
    """Say in words what is held out."""
    chance = f", seed {seed}" if order == "random" else ""
    return _LAST[order] + chance + (" (the log has no timestamps)" if no_times else "")


def _from(moment: Moment | float, among: str) -> str:
    if isinstance(moment, float):
        return f"the newest {100 * moment:g} % of the events{among}"
    return f"events{among} from {moment} on"


def _shown(time: int, are_dates: bool) -> str:
    """Write a time as the caller would."""
    return str(datetime(1970, 1, 1) + timedelta(microseconds=time)) if are_dates else str(time)


def _item_numbers(log: Interactions) -> npt.NDArray[np.int64]:
    """(n_items,) the numbers of the paper's rule, up to what does not change their order."""
    if not log.items.is_text:
        return np.arange(log.n_items, dtype=np.int64)
    first = np.full(log.n_items, len(log.positions) and log.positions.max() + 1, dtype=np.int64)
    np.minimum.at(first, log.item_rows, log.positions)
    return first


def _times(log: Interactions) -> npt.NDArray[np.int64]:
    if log.timestamps is None:
        raise _no_times()
    return log.timestamps


def _no_times() -> DataError:
    return DataError(
        f"The log has no timestamps to split by: {naming('timestamp')}, or split at random or by "
        "position."
    )


def _threshold(
    times: npt.NDArray[np.int64], moment: Moment | float, are_dates: bool, name: str
) -> int:
    """Return the first time of the held-out part."""
    if isinstance(moment, float):
        _check_share(name, moment)
        place = len(times) - max(1, round(moment * len(times)))
        return int(np.partition(times, place)[place])
    if isinstance(moment, int) and not isinstance(moment, bool):
        if are_dates:
            raise ParameterError(f"{name}={shown(moment)} is an integer but the log has dates.")
        if not -(2**63) <= moment < 2**63:
            raise ParameterError(f"{name}={shown(moment)} is no time: times fit into 64 bits.")
        return moment
    if not are_dates:
        raise ParameterError(f"{name}={shown(moment)} is a date but the log has integer times.")
    if isinstance(moment, str | date):
        values, dated = to_times(
            pl.Series([moment]), Place("the cut", name, lambda row: "the cut: value")
        )
        if dated:
            return int(values[0])
    raise ParameterError(f"{name}={shown(moment)} is neither a share, a date nor an integer time.")


def _check_share(name: str, share: float) -> None:
    if isinstance(share, bool) or not isinstance(share, Real) or not 0 < share < 1:
        raise ParameterError(f"{name}={shown(share)} is not allowed; a share lies between 0 and 1.")


def _mask(size: int, events: npt.NDArray[np.int64]) -> Mask:
    mask = np.zeros(size, dtype=bool)
    mask[events] = True
    return mask


def _plain(moment: Moment | float) -> str | int | float:
    return moment if isinstance(moment, str | int | float) else moment.isoformat()


def _parts(log: Interactions, validation: Mask, test: Mask, recipe: Recipe, **counts: int) -> Split:
    """Cut the log in three, and count users and items that training knows nothing of."""
    train = log.select(~(validation | test))
    if not len(train):
        raise DataError(
            f"The split leaves nothing of {len(log):,} interactions to train on: "
            f"hold out less, or give users with at least {LEAST_EVENTS} events."
        )
    held_users = np.diff(log.by_user.indptr) > train.by_user.counts
    report = log.report.then(
        "split",
        train=len(train),
        validation=int(validation.sum()),
        test=int(test.sum()),
        **counts,
        users_without_training=int((held_users & (train.by_user.counts == 0)).sum()),
    )
    return Split(
        train=train,
        validation=log.select(validation),
        test=log.select(test),
        recipe=recipe,
        report=report,
    )
