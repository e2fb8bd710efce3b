"""Ways to hold events out of a log without leaks."""

from __future__ import annotations

from datetime import date, datetime
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import polars as pl

from transcf.data.columns import naming
from transcf.data.interactions import Interactions, Mask
from transcf.data.split import Recipe, Split
from transcf.data.values import Place, to_times
from transcf.errors import DataError, ParameterError

Order: TypeAlias = Literal["time", "position", "paper", "random"]
Moment: TypeAlias = date | datetime | int | str

#: Fewest events of a user that leave one for training after holding out two.
LEAST_EVENTS = 3
_ORDERS = ("time", "position", "paper", "random")


def leave_one_out(log: Interactions, by: Order = "time", *, seed: int = 0) -> Split:
    """Hold out the last event of each user for test, and the one before it for validation.

    Users with fewer than 3 events stay whole in train; the report counts them.

    Args:
        log: Any log.
        by: What "last" means. "time": the newest; of equal times the larger item id is later.
            "position": the last in the source. "paper": the largest item number, where integer
            ids are their own number and text ids are numbered by first appearance in the
            (filtered) source; it holds out rare items and is there to compare with the paper.
            "random": any, by the seed.
        seed: Of the random order; the others do without.

    Example:
        >>> from transcf import synthesize
        >>> leave_one_out(synthesize(users=50, items=30, interactions=500), by="time")
        Split(leave-one-out by time: train 400, validation 50, test 50, candidates none)
    """
    from transcf.kernels.splitting import last_two

    keys = _order_keys(log, by, seed)
    test, validation = last_two(log.by_user.indptr, keys, LEAST_EVENTS)
    held_out = log.by_user.counts >= LEAST_EVENTS
    some = log.by_user.counts > 0
    recipe: Recipe = {"rule": f"leave-one-out by {by}", "seed": seed if by == "random" else None}
    return _parts(
        log,
        _mask(len(log), validation),
        _mask(len(log), test),
        recipe,
        users_held_out=int(held_out.sum()),
        users_kept_whole=int((some & ~held_out).sum()),
    )


def temporal_cut(
    log: Interactions, at: Moment | float = 0.1, *, validation: Moment | float = 0.1
) -> Split:
    """Hold out everything from one moment on, for all users at once.

    Events of the same moment always go to the same side, so a share may come out a little
    larger than asked for.

    Args:
        log: A log with timestamps.
        at: First moment of test: a date, datetime or ISO text where the log has dates, an
            integer where it has integers; or a float, the share of newest events.
        validation: The same for the validation part, among what comes before `at`.
    """
    times = _times(log)
    test = times >= _threshold(times, at, log.times_are_dates, "at")
    earlier = times[~test]
    if not len(earlier):
        raise DataError(f"at={at!r} leaves nothing before the cut: choose a later one.")
    start = _threshold(earlier, validation, log.times_are_dates, "validation")
    recipe: Recipe = {"rule": "temporal cut", "at": _plain(at), "validation": _plain(validation)}
    return _parts(log, (times >= start) & ~test, test, recipe)


def random_ratio(
    log: Interactions, test: float = 0.1, *, validation: float = 0.1, seed: int = 0
) -> Split:
    """Hold out a random share of all events.

    Args:
        log: Any log.
        test: Share of events for test.
        validation: Share of events for validation.
        seed: Of the draw, which depends on ids only, not on the order of the log.
    """
    from transcf.kernels.splitting import event_keys

    for name, share in (("test", test), ("validation", validation)):
        _check_share(name, share)
    if test + validation >= 1:
        raise ParameterError(f"test={test} and validation={validation} leave nothing to train on.")
    order = np.argsort(event_keys(log.by_user.indptr, log.item_rows, check_seed(seed)))
    n_test, n_validation = round(test * len(log)), round(validation * len(log))
    recipe: Recipe = {
        "rule": "random ratio", "test": test, "validation": validation, "seed": seed
    }  # fmt: skip
    return _parts(
        log,
        _mask(len(log), order[n_test : n_test + n_validation]),
        _mask(len(log), order[:n_test]),
        recipe,
    )


def check_seed(seed: int) -> int:
    """Return the seed if it is a whole number that fits the generator."""
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**63:
        raise ParameterError(f"seed={seed!r} is not allowed; it must be an integer >= 0.")
    return seed


def _order_keys(log: Interactions, by: Order, seed: int) -> npt.NDArray[np.int64]:
    """(n,) what the events of a user are ordered by."""
    from transcf.kernels.splitting import event_keys

    if by == "time":
        return _times(log)
    if by == "position":
        return log.positions
    if by == "paper":
        return _item_numbers(log)[log.item_rows]
    if by == "random":
        return event_keys(log.by_user.indptr, log.item_rows, check_seed(seed))
    raise ParameterError(f"by={by!r} is not one of {', '.join(_ORDERS)}.")


def _item_numbers(log: Interactions) -> npt.NDArray[np.int64]:
    """(n_items,) the numbers of the paper's rule, up to what does not change their order."""
    if not log.items.is_text:
        return np.arange(log.n_items, dtype=np.int64)
    first = np.full(log.n_items, len(log.positions) and log.positions.max() + 1, dtype=np.int64)
    np.minimum.at(first, log.item_rows, log.positions)
    return first


def _times(log: Interactions) -> npt.NDArray[np.int64]:
    if log.timestamps is None:
        raise DataError(
            f"The log has no timestamps to split by: {naming('timestamp')}, or split at random or "
            "by position."
        )
    return log.timestamps


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
            raise ParameterError(f"{name}={moment!r} is an integer but the log has dates.")
        return moment
    if not are_dates:
        raise ParameterError(f"{name}={moment!r} is a date but the log has integer times.")
    if isinstance(moment, str | date):
        values, dated = to_times(pl.Series([moment]), Place("the cut", name))
        if dated:
            return int(values[0])
    raise ParameterError(f"{name}={moment!r} is neither a share, a date nor an integer time.")


def _check_share(name: str, share: float) -> None:
    if not 0 < share < 1:
        raise ParameterError(f"{name}={share!r} is not allowed; a share lies between 0 and 1.")


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
