"""Leaving out users and items with too few events, never in silence."""

from __future__ import annotations

from typing import Any

import numpy as np

from transcf.data.interactions import Interactions, Mask
from transcf.errors import DataError, ParameterError, is_word, shown


def filter_of(name: str) -> tuple[int | None, bool]:
    """Read the name of a filter.

    Args:
        name: "none", "paper", or a number with "-core".

    Returns:
        The number of a k-core, None for the others, and whether it is `paper_filter`.

    Example:
        >>> filter_of("5-core"), filter_of("paper"), filter_of("none")
        ((5, False), (None, True), (None, False))
    """
    number, core, rest = name.partition("-core") if isinstance(name, str) else ("", "", "")
    if core and not rest and number.isascii() and number.isdigit():
        return int(number), False
    if not is_word(name, ("none", "paper")):
        raise ParameterError(
            f"filter={shown(name)} is not known: use none, paper, or a number with -core."
        )
    return None, name == "paper"


def filtered(log: Interactions, name: str) -> Interactions:
    """Return a log after the filter of a name, see `filter_of`."""
    least, is_paper = filter_of(name)
    if is_paper:
        return paper_filter(log)
    return log if least is None else k_core(log, least, least)


def k_core(log: Any, users: int = 5, items: int = 5) -> Interactions:
    """Keep the largest part in which everybody has enough events.

    Users and items below the bar are left out again and again until none is left to leave out.

    Args:
        log: A log, or whatever `as_interactions` takes.
        users: Least number of events of a user.
        items: Least number of events of an item.

    Example:
        >>> from transcf import synthesize
        >>> log = k_core(synthesize(users=200, items=100, interactions=2000), users=5, items=5)
        >>> bool(log.by_user.counts.min() >= 5 and log.by_item.counts.min() >= 5)
        True
    """
    from transcf.data.logs import as_interactions

    log = as_interactions(log)
    check_core("users", users)
    check_core("items", items)
    kept_users = np.ones(log.n_users, dtype=bool)
    kept_items = np.ones(log.n_items, dtype=bool)
    rounds = -1
    changed = True
    while changed:
        rounds += 1
        more_users = _enough_by_user(log, kept_users, kept_items, users)
        more_items = _enough_by_item(log, more_users, kept_items, items)
        changed = not (
            np.array_equal(more_users, kept_users) and np.array_equal(more_items, kept_items)
        )
        kept_users, kept_items = more_users, more_items
    settings = {"rounds": rounds, "least_users": users, "least_items": items}
    return _keep(log, kept_users, kept_items, "k-core", **settings)


def paper_filter(log: Any) -> Interactions:
    """Filter in one pass as the authors of TransCF did.

    Users with at least 5 events stay, then items with at least 5, then users with at least 3, so
    that training, validation and test get one each. Items may end up below 5.

    Args:
        log: A log, or whatever `as_interactions` takes.
    """
    from transcf.data.logs import as_interactions

    log = as_interactions(log)
    all_users, all_items = np.ones(log.n_users, dtype=bool), np.ones(log.n_items, dtype=bool)
    users = _enough_by_user(log, all_users, all_items, 5)
    items = _enough_by_item(log, users, all_items, 5)
    users = _enough_by_user(log, users, items, 3)
    return _keep(log, users, items, "paper filter")


def _enough_by_user(log: Interactions, users: Mask, items: Mask, least: int) -> Mask:
    """(n_users,) which of the users kept so far have enough events with items kept so far."""
    from transcf.kernels.splitting import count_by_row

    counts = count_by_row(log.by_user.indptr, log.by_user.indices, items)
    return users & (counts >= least)


def _enough_by_item(log: Interactions, users: Mask, items: Mask, least: int) -> Mask:
    """(n_items,) which of the items kept so far have enough events of users kept so far."""
    from transcf.kernels.splitting import count_by_column

    counts = count_by_column(log.by_user.indptr, log.by_user.indices, users, log.n_items)
    return items & (counts >= least)


def _keep(log: Interactions, users: Mask, items: Mask, step: str, **settings: int) -> Interactions:
    """Select events and note how many users, items and interactions were left out."""
    from transcf.kernels.splitting import entry_mask

    kept = entry_mask(log.by_user.indptr, log.by_user.indices, users, items)
    if not kept.any():
        raise nothing_left(step, len(log))
    smaller = log.select(kept, drop_ids=True)
    report = log.report.then(
        step,
        **settings,
        users=log.n_users - smaller.n_users,
        items=log.n_items - smaller.n_items,
        interactions=len(log) - len(smaller),
    )
    return smaller.with_report(report)


def nothing_left(step: str, interactions: int) -> DataError:
    """Return the error about a filter that leaves nothing."""
    return DataError(
        f"The {step} leaves nothing of {interactions:,} interactions: choose a lower bar or "
        f"give more data."
    )


def check_core(name: str, value: int) -> None:
    """Refuse a bar of events that is no number from 0 on."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ParameterError(f"{name}={shown(value)} is not allowed; it must be an integer >= 0.")
