"""Resolve users of requests and rank items for many requests with one matrix product."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple, TypeAlias

import numpy as np

from transcf.data.csr import Csr, Histories
from transcf.data.ids import UNKNOWN, Id, Rows
from transcf.data.interactions import Mask
from transcf.retrieval.scorer import Scorer, Scores
from transcf.serving.events import EventCache
from transcf.serving.model_version import ModelVersion, convert_id, find_rows
from transcf.serving.schemas import RecommendOptions, Source

#: What the requests of a group choose from: categories, and items if they are listed.
_Choice: TypeAlias = tuple[tuple[str, ...], tuple[Id, ...] | None]
#: Source, whether the training histories are what is hidden, choice, and a number.
_GroupKey: TypeAlias = tuple[Source, bool | None, _Choice, int]
_EMPTY = np.empty(0, np.int32)


@dataclass(frozen=True, eq=False)
class ResolvedUser:
    """The user or session of a request.

    Attributes:
        row: User row of the model; `UNKNOWN` for other users.
        history: Item rows, oldest first, including those of new events.
        source: How items are ranked for the user.
        is_as_trained: Whether the history is that of the training data.
    """

    row: int
    history: Rows
    source: Source
    is_as_trained: bool = False


def resolve_users(
    version: ModelVersion, events: EventCache, users: Sequence[Id]
) -> list[ResolvedUser]:
    """Look up users in the model and in the events since it was trained."""
    wanted = [convert_id(version.users, user) for user in users]
    data = version.data
    rows = version.users.rows(wanted)
    rows = np.where((rows != UNKNOWN) & data.active[rows], rows, np.int32(UNKNOWN))
    new = [[event.item for event in events.of(str(u), version.events_after)] for u in wanted]
    found = []
    for row, (added, rankable) in zip(rows.tolist(), _item_rows(version, new), strict=True):
        history = _EMPTY if row == UNKNOWN else data.histories[row]
        if rankable.any():
            history = keep_last(np.concatenate([history, added[rankable]]))
            found.append(_with_history(version, row, history))
        else:
            source: Source = "popular" if row == UNKNOWN else "model"
            found.append(ResolvedUser(row, history, source, is_as_trained=True))
    return found


def resolve_sessions(
    version: ModelVersion, sessions: Sequence[Sequence[Id]]
) -> list[tuple[ResolvedUser, list[Id]]]:
    """Return a user for each session, and the items of the session unknown to the model."""
    found = []
    for session, (rows, rankable) in zip(sessions, _item_rows(version, sessions), strict=True):
        skipped = [item for item, known in zip(session, rankable, strict=True) if not known]
        found.append((_with_history(version, UNKNOWN, keep_last(rows[rankable])), skipped))
    return found


def _item_rows(version: ModelVersion, lists: Sequence[Sequence[Id]]) -> list[tuple[Rows, Mask]]:
    """Return the item rows of each list, and which of them the model can rank.

    All lists are looked up at once: one lookup costs nearly as much as a thousand.
    """
    if not any(lists):
        return [(_EMPTY, np.empty(0, bool))] * len(lists)
    rows = find_rows(version.items, [item for items in lists for item in items])
    rankable = (rows != UNKNOWN) & version.scorer.rankable[rows]
    ends = np.cumsum([0, *map(len, lists)]).tolist()
    return [(rows[start:end], rankable[start:end]) for start, end in pairwise(ends)]


def _with_history(version: ModelVersion, row: int, history: Rows) -> ResolvedUser:
    if len(history) and version.can["fold_in"]:
        return ResolvedUser(row, history, "folded_in")
    return ResolvedUser(row, history, "popular" if row == UNKNOWN else "model")


def keep_last(rows: Rows) -> Rows:
    """Keep the last occurrence of every row.

    Example:
        >>> keep_last(np.array([4, 1, 4], np.int32)).tolist()
        [1, 4]
    """
    _, last = np.unique(rows[::-1], return_index=True)
    kept: Rows = rows[np.sort(len(rows) - 1 - last)]
    return kept


class Ranked(NamedTuple):
    """Item rows, best first, and their float32 scores."""

    items: Rows
    scores: Scores


def rank(
    version: ModelVersion, users: Sequence[ResolvedUser], options: Sequence[RecommendOptions]
) -> list[Ranked]:
    """Return the best items of each user under their own options, in the order of the users.

    A list does not depend on the other requests, as `top_k` guarantees for inner products.
    """
    found: list[Ranked | None] = [None] * len(users)
    for (source, hides_seen, choice, _), places in _grouped(users, options).items():
        allowed = _allowed(version, choice)
        some, asked = [users[place] for place in places], [options[place] for place in places]
        if source == "popular":
            lists = [_popular(version, *pair, allowed) for pair in zip(some, asked, strict=True)]
        else:
            lists = _rank_group(version, some, asked, allowed, hides_seen)
        for place, ranked in zip(places, lists, strict=True):
            found[place] = ranked
    return [ranked for ranked in found if ranked is not None]


def _grouped(
    users: Sequence[ResolvedUser], options: Sequence[RecommendOptions]
) -> dict[_GroupKey, list[int]]:
    """Group requests that can share a call of `top_k`; return their places.

    Users of the model share the table of training histories if exactly these are hidden, or nothing
    is. Other groups get a table of their own, which has one row for each user of the model.
    """
    groups: dict[_GroupKey, list[int]] = {}
    taken = Counter[tuple[_Choice, int]]()
    for place, (user, option) in enumerate(zip(users, options, strict=True)):
        choice = (
            tuple(option.categories or ()),
            None if option.items is None else tuple(option.items),
        )
        hides_seen, number = None, 0
        if user.source == "model":
            if not option.exclude and (user.is_as_trained or not option.exclude_seen):
                hides_seen = option.exclude_seen
            else:
                number = taken[choice, user.row]
                taken[choice, user.row] += 1
        groups.setdefault((user.source, hides_seen, choice, number), []).append(place)
    return groups


def _allowed(version: ModelVersion, choice: _Choice) -> Mask:
    categories, items = choice
    allowed = version.scorer.rankable
    if categories:
        allowed = allowed & version.in_categories(categories)
    if items is not None:
        listed = np.zeros(len(allowed), dtype=bool)
        listed[version.rankable_rows(items)] = True
        allowed = allowed & listed
    return allowed


def _rank_group(
    version: ModelVersion,
    users: Sequence[ResolvedUser],
    options: Sequence[RecommendOptions],
    allowed: Mask,
    hides_seen: bool | None,
) -> list[Ranked]:
    """Rank items for a group of users of the model, or of users that are folded in."""
    scorer: Scorer = version.scorer
    if users[0].source == "model":
        rows, n_rows = np.array([user.row for user in users], np.int32), len(version.users)
    else:
        histories = Histories.of([user.history for user in users], len(version.items))
        scorer = version.scorer.fold_in(histories)
        rows, n_rows = np.arange(len(users), dtype=np.int32), len(users)
    seen: Csr | None = version.data.seen if hides_seen else None
    if hides_seen is None:
        seen = _hidden_table(version, users, options, rows, n_rows)
    longest = min(max(option.k for option in options), int(np.count_nonzero(allowed)))
    items, scores = scorer.top_k(rows, longest, seen=seen, allowed=allowed)
    ends = np.minimum((items != UNKNOWN).sum(axis=1), [option.k for option in options])
    return [Ranked(items[n, :end], scores[n, :end]) for n, end in enumerate(ends)]


def _popular(
    version: ModelVersion, user: ResolvedUser, option: RecommendOptions, allowed: Mask
) -> Ranked:
    """Return the items with the most users; scores are the numbers of users."""
    hidden = _hidden(version, user, option)
    order = version.popular
    if len(hidden) or allowed is not version.scorer.rankable:
        left = allowed.copy()
        left[hidden] = False
        order = order[left[order]]
    rows = order[: option.k]
    return Ranked(rows, version.data.item_counts[rows].astype(np.float32))


def _hidden(version: ModelVersion, user: ResolvedUser, option: RecommendOptions) -> Rows:
    """Return the item rows that are left out of a list, ascending."""
    parts = [_EMPTY]
    if option.exclude_seen:
        parts.append(user.history)
    if option.exclude:
        parts.append(version.rankable_rows(option.exclude))
    return np.unique(np.concatenate(parts))


def _hidden_table(
    version: ModelVersion,
    users: Sequence[ResolvedUser],
    options: Sequence[RecommendOptions],
    rows: Rows,
    n_rows: int,
) -> Csr:
    """Return the hidden items as a table with `n_rows` rows; `rows` are distinct."""
    lists = [_hidden(version, *pair) for pair in zip(users, options, strict=True)]
    counts = np.zeros(n_rows + 1, np.int64)
    counts[rows + 1] = [len(hidden) for hidden in lists]
    in_order = [lists[place] for place in np.argsort(rows, kind="stable")]
    columns = np.concatenate([_EMPTY, *in_order]).astype(np.int32)
    return Csr(np.cumsum(counts), columns, len(version.items))
