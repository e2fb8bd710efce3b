"""Lists and their reasons: users are resolved, and ranked for many requests by one product."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, NamedTuple, TypeAlias

import numpy as np
from pydantic import Field
from pydantic_core import to_json

from transcf.data.csr import Histories
from transcf.data.ids import UNKNOWN, Id, Rows
from transcf.data.interactions import Mask
from transcf.errors import UnknownIdError, UnsupportedError, shown
from transcf.models.explain import Explanation, explanation
from transcf.retrieval.scorer import Scorer, Scores
from transcf.serving import schemas
from transcf.serving.model_version import ModelVersion, convert_id, find_rows
from transcf.serving.schemas import RecommendOptions, SessionRequest, UserRequest, UsersRequest

RecommendRequest: TypeAlias = UserRequest | UsersRequest | SessionRequest
#: Source, whether histories are hidden, categories, and items if they are listed.
_GroupKey: TypeAlias = tuple[schemas.Source, bool, tuple[str, ...], tuple[Id, ...] | None]
_EMPTY = np.empty(0, np.int32)
#: Past items in the reason of a recommended item.
_REASON_ITEMS = 3
#: Items whose scores percentiles refer to.
_SAMPLED_ITEMS = 1000
#: Users of an item for fair and strong evidence; an item of the history counts as three.
_FAIR_SUPPORT, _STRONG_SUPPORT, _EVENTS_PER_USER = 10, 30, 3


# -- users ---------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class ResolvedUser:
    """The user or session of a request.

    `row` is the user row of the model or `UNKNOWN`; `history` has item rows, oldest first, those of
    new events included; `skipped` has new items that the model cannot rank.
    """

    row: int
    history: Rows
    source: schemas.Source
    skipped: Sequence[Id] = ()


def resolve(version: ModelVersion, asked: Sequence[Id | list[Id]]) -> list[ResolvedUser]:
    """Look up users in the model and in the events since it was trained; a list is a session.

    All items are looked up at once: one lookup costs nearly as much as a thousand.
    """
    ids = [convert_id(version.users, one) for one in asked if not isinstance(one, list)]
    rows = version.users.rows(ids)
    rows = np.where((rows != UNKNOWN) & version.data.active[rows], rows, np.int32(UNKNOWN))
    known = dict(zip(ids, rows.tolist(), strict=True))
    pairs: list[tuple[int, list[Id]]] = []  # the row of each, and items that are not in the model
    for one in asked:
        if isinstance(one, list):
            pairs.append((UNKNOWN, one))
        else:
            user = convert_id(version.users, one)
            pairs.append((known[user], [event.item for event in version.new_events(user)]))
    items = [item for _, some in pairs for item in some]
    item_rows, rankable = _EMPTY, np.empty(0, bool)
    if items:
        item_rows = find_rows(version.items, items)
        rankable = (item_rows != UNKNOWN) & version.scorer.rankable[item_rows]
    found, end = [], 0
    for user, some in pairs:
        start, end = end, end + len(some)
        history = _EMPTY if user == UNKNOWN else version.data.histories[user]
        source: schemas.Source = "popular" if user == UNKNOWN else "model"
        skipped: list[Id] = []
        if start < end:
            mask = rankable[start:end]
            skipped = [items[place] for place in (np.flatnonzero(~mask) + start).tolist()]
            if mask.any():
                history = np.concatenate([history, item_rows[start:end][mask]])
                _, last = np.unique(history[::-1], return_index=True)  # where an item is repeated
                history = history[np.sort(len(history) - 1 - last)]
                source = "folded_in" if version.can["fold_in"] else source
        found.append(ResolvedUser(user, history, source, skipped))
    return found


# -- ranking -------------------------------------------------------------------------------------


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
    groups: dict[_GroupKey, list[int]] = {}
    for place, (user, option) in enumerate(zip(users, options, strict=True)):
        items = None if option.items is None else tuple(option.items)
        key = (user.source, option.exclude_seen, tuple(option.categories or ()), items)
        groups.setdefault(key, []).append(place)
    found: dict[int, Ranked] = {}
    for (source, exclude_seen, categories, items), places in groups.items():
        allowed = version.scorer.rankable
        if categories:
            of_each = [version.items_by_category.get(name, _EMPTY) for name in categories]
            allowed = allowed & _mask(len(allowed), np.concatenate(of_each))
        if items is not None:
            allowed = allowed & _mask(len(allowed), version.rankable_rows(items))
        some, asked = [users[place] for place in places], [options[place] for place in places]
        if source == "popular":
            lists = [_popular(version, *pair, allowed) for pair in zip(some, asked, strict=True)]
        else:
            lists = _rank_group(version, some, asked, allowed, exclude_seen=exclude_seen)
        found |= zip(places, lists, strict=True)
    return [found[place] for place in range(len(users))]


def _mask(size: int, rows: Rows) -> Mask:
    mask = np.zeros(size, dtype=bool)
    mask[rows] = True
    return mask


def _excluded(version: ModelVersion, option: RecommendOptions) -> Rows:
    return version.rankable_rows(option.exclude) if option.exclude else _EMPTY


def _rank_group(
    version: ModelVersion,
    users: Sequence[ResolvedUser],
    options: Sequence[RecommendOptions],
    allowed: Mask,
    *,
    exclude_seen: bool,
) -> list[Ranked]:
    """Rank items for users of the model, or for users that are folded in.

    Items of the training or folded-in histories are left out by `top_k`; other items of a request
    are removed from lists that are as much longer.
    """
    scorer: Scorer = version.scorer
    others = [_excluded(version, option) for option in options]
    if users[0].source == "model":
        rows, seen = np.array([user.row for user in users], np.int32), version.data.seen
        if exclude_seen and not version.can["fold_in"]:
            others = [
                np.setdiff1d(np.concatenate([some, user.history]), seen.row(user.row))
                for some, user in zip(others, users, strict=True)
            ]
    else:
        histories = Histories.of([user.history for user in users], len(version.items))
        scorer, seen = version.scorer.fold_in(histories), histories.matrix
        rows = np.arange(len(users), dtype=np.int32)
    most = max(option.k + len(some) for option, some in zip(options, others, strict=True))
    most = min(most, int(np.count_nonzero(allowed)))
    table = scorer.top_k(rows, most, seen=seen if exclude_seen else None, allowed=allowed)
    lists = []
    for items, scores, option, some in zip(*table, options, others, strict=True):
        kept = items != UNKNOWN
        if len(some):
            kept &= ~np.isin(items, some)
        lists.append(Ranked(items[kept][: option.k], scores[kept][: option.k]))
    return lists


def _popular(
    version: ModelVersion, user: ResolvedUser, option: RecommendOptions, allowed: Mask
) -> Ranked:
    """Return the items with the most users; scores are the numbers of users."""
    hidden = _excluded(version, option)
    if option.exclude_seen:
        hidden = np.concatenate([hidden, user.history])
    order = version.popular
    if len(hidden) or allowed is not version.scorer.rankable:
        left = allowed.copy()
        left[hidden] = False
        order = order[left[order]]
    rows = order[: option.k]
    return Ranked(rows, version.data.item_counts[rows].astype(np.float32))


def _scorer_of(version: ModelVersion, user: ResolvedUser) -> tuple[Scorer, int]:
    """Return a scorer that has a user with a vector or a history, and the user's row in it."""
    if user.source == "model":
        return version.scorer, user.row
    return version.scorer.fold_in(Histories.of([user.history], len(version.items))), 0


def score(version: ModelVersion, user: ResolvedUser, items: Rows) -> Scores:
    """Return the scores of item rows for a user with a vector or a history."""
    scorer, row = _scorer_of(version, user)
    return scorer.scores(np.full(len(items), row, np.int32), items)


# -- recommendations -----------------------------------------------------------------------------


def recommend(version: ModelVersion, requests: Sequence[RecommendRequest]) -> list[bytes]:
    """Answer requests in JSON, in their order."""
    asked = [_users_or_session(request) for request in requests]
    flat = [(request, one) for request, some in zip(requests, asked, strict=True) for one in some]
    users = resolve(version, [one for _, one in flat])
    ranked = rank(version, users, [request for request, _ in flat])
    found = iter(zip(users, ranked, strict=True))
    answers = []
    for request, some in zip(requests, asked, strict=True):
        answer: dict[str, Any] = {"version": version.number}
        if version.events.error is not None:
            answer["stale"] = True
        if ignored := _count_unknown(version, request):
            answer["ignored"] = ignored
        lists = []
        for one in some:
            user, best = next(found)
            if isinstance(one, list):
                name = {"skipped": [schemas.json_id(item) for item in user.skipped]}
            else:
                name = {"user": schemas.json_id(convert_id(version.users, one))}
            lists.append(name | _list(version, user, best, explain=request.explain))
        answer |= {"answers": lists} if isinstance(request, UsersRequest) else lists[0]
        answers.append(to_json(answer, inf_nan_mode="null"))
    return answers


def _users_or_session(request: RecommendRequest) -> list[Id | list[Id]]:
    if isinstance(request, SessionRequest):
        return [request.session]
    return [*dict.fromkeys(request.users)] if isinstance(request, UsersRequest) else [request.user]


def _count_unknown(version: ModelVersion, options: RecommendOptions) -> int:
    """Count the ids in `items` and `exclude` that are unknown to the model."""
    listed = [*(options.exclude or ()), *(options.items or ())]
    return int((find_rows(version.items, listed) == UNKNOWN).sum()) if listed else 0


def _list(
    version: ModelVersion, user: ResolvedUser, ranked: Ranked, *, explain: bool
) -> dict[str, Any]:
    is_popular, items = user.source == "popular", list[dict[str, Any]]()
    can_explain = version.can["explain"] and not is_popular
    pairs = zip(ranked.items.tolist(), ranked.scores.tolist(), strict=True)
    for place, (row, value) in enumerate(pairs, 1):
        score = int(value) if is_popular else float(f"{value:.7g}")
        item: dict[str, Any] = {**version.item_fields(row), "score": score, "rank": place}
        if explain:
            found = _explanation(version, user, row, _REASON_ITEMS) if can_explain else None
            item["reason"] = found and _reason(version, user, row, found)
        items.append(item)
    return {"source": user.source, "items": items}


# -- explanations --------------------------------------------------------------------------------


def _explanation(version: ModelVersion, user: ResolvedUser, row: int, top: int) -> Explanation:
    if user.source == "popular" or not len(user.history):
        raise UnsupportedError(
            "There is no history to explain the score with: send events, or a session with items "
            "that the model knows."
        )
    scorer, _ = _scorer_of(version, user)
    known, history = None, user.history
    if user.source == "model":
        known = user.row, version.users.series[user.row]
        history = version.data.histories[user.row]
    item = version.items.series[row]
    return explanation(version.scorer, scorer, known, history, item, top, include_seen=True)


def _reason(
    version: ModelVersion, user: ResolvedUser, row: int, found: Explanation
) -> schemas.Reason:
    """Write an explanation with titles in place of ids, and say how far it can be trusted."""
    effects: list[schemas.Effect] = []
    named = []
    for entry in found.effects:
        item, title = schemas.json_id(entry.item_id), version.title(entry.item_id)
        effect, share = round(entry.effect, 6), round(entry.share, 6)
        effects.append({"item": item, "title": title, "effect": effect, "share": share})
        named.append(replace(entry, item_id=title or entry.item_id))
    subject = version.title(found.item_id) or found.item_id
    users = int(version.data.item_counts[row])
    support = min(users, _EVENTS_PER_USER * len(user.history))
    is_fair = support >= _FAIR_SUPPORT
    return {
        "sentence": replace(found, item_id=subject, effects=tuple(named)).sentence,
        "effects": effects,
        "users": users,
        "evidence": "strong" if support >= _STRONG_SUPPORT else "fair" if is_fair else "weak",
    }


def explain_user(
    version: ModelVersion,
    user: schemas.TextId,
    item: schemas.TextId,
    top: Annotated[int, Field(ge=1, le=schemas.MAX_EXPLAINED)] = 5,
) -> schemas.Explained:
    """Explain the score of an item for a user."""
    resolved = resolve(version, [user])[0]
    if resolved.source == "popular":
        raise UnknownIdError(f"user {shown(user)} is unknown: there is nothing to explain.")
    return _explain(version, resolved, convert_id(version.users, user), item, top)


def explain_session(version: ModelVersion, asked: schemas.ExplainRequest) -> schemas.Explained:
    """Explain the score of an item for a session."""
    user = resolve(version, [asked.session])[0]
    return _explain(version, user, None, asked.item, asked.top)


def _explain(
    version: ModelVersion, user: ResolvedUser, user_id: Id | None, item: Id, top: int
) -> schemas.Explained:
    row = int(version.items.require([convert_id(version.items, item)], "item")[0])
    found = _explanation(version, user, row, top)
    reason = _reason(version, user, row, found)
    sample = version.popular[:: 1 + len(version.popular) // _SAMPLED_ITEMS]
    share = float((score(version, user, sample) < found.score).mean())
    return {
        "version": version.number,
        "users": reason["users"],
        "evidence": reason["evidence"],
        "user": user_id,
        "item": found.item_id,
        "title": version.title(found.item_id),
        "seen": row in user.history,
        "score": float(np.float32(found.score)),
        "percentile": round(100 * share, 1),
        "source": user.source,
        "sentence": reason["sentence"],
        "meaning": found.meaning,
        "effects": reason["effects"],
        "others": found.others,
        "others_drew": found.others_drew,
        "others_pushed": found.others_pushed,
        "notes": list(found.notes),
        "details": found.details,
    }
