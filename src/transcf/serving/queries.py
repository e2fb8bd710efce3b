"""Queries about one model version: recommendations, neighbours, explanations, facts, search, map.

Most functions are routes as well (see `routes`): their parameters after `version` and `events` are
those of the route, and their annotations limit them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal, TypeAlias

import numpy as np
from pydantic import Field
from pydantic_core import to_json

from transcf.data.csr import Histories
from transcf.data.ids import UNKNOWN, Id, Rows
from transcf.errors import UnknownIdError, UnsupportedError, shown
from transcf.models.explain import Explanation, explanation
from transcf.models.tables import similar
from transcf.retrieval.scorer import Scores
from transcf.serving import schemas
from transcf.serving.events import EventCache
from transcf.serving.model_version import ModelVersion, convert_id, find_rows
from transcf.serving.projection import Layout
from transcf.serving.ranking import Ranked, ResolvedUser, rank, resolve_sessions, resolve_users
from transcf.serving.schemas import (
    MAX_EXPLAINED,
    MAX_ITEMS,
    MAX_POINTS,
    Length,
    RecommendOptions,
    SessionRequest,
    TextId,
    UserRequest,
    UsersRequest,
    json_id,
)

RecommendRequest: TypeAlias = UserRequest | UsersRequest | SessionRequest
#: Past items in the reason of a recommended item.
_REASON_ITEMS = 3
#: Items whose scores percentiles refer to.
_SAMPLED_ITEMS = 1000
#: Users of an item for fair and strong evidence; an item of the history counts as three.
_FAIR_SUPPORT, _STRONG_SUPPORT, _EVENTS_PER_USER = 10, 30, 3
#: Categories that describe a user, and items of the history that they are counted in.
_CARD_CATEGORIES, _CARD_ITEMS = 3, 200


# -- recommendations -----------------------------------------------------------------------------


def recommend(
    version: ModelVersion, events: EventCache, requests: Sequence[RecommendRequest]
) -> list[bytes]:
    """Answer requests in JSON, in their order."""
    asked = [_users_of(request) for request in requests]
    users = iter(resolve_users(version, events, [user for some in asked for user in some]))
    sessions = [request.session for request in requests if isinstance(request, SessionRequest)]
    from_sessions = iter(resolve_sessions(version, sessions))
    resolved: list[ResolvedUser] = []
    options: list[RecommendOptions] = []
    skipped: dict[int, list[Id]] = {}
    for place, request in enumerate(requests):
        if isinstance(request, SessionRequest):
            user, skipped[place] = next(from_sessions)
            resolved.append(user)
        else:
            resolved += [next(users) for _ in asked[place]]
        options += [request] * (len(resolved) - len(options))
    ranked = iter(zip(resolved, rank(version, resolved, options), strict=True))
    answers = []
    for place, request in enumerate(requests):
        answer: dict[str, Any] = {"version": version.number}
        if events.error is not None:
            answer["stale"] = True
        if ignored := _count_unknown(version, request):
            answer["ignored"] = ignored
        if isinstance(request, SessionRequest):
            answer["skipped"] = [json_id(item) for item in skipped[place]]
            answer |= _list(version, *next(ranked), explain=request.explain)
        else:
            lists = [
                {"user": json_id(convert_id(version.users, user))}
                | _list(version, *next(ranked), explain=request.explain)
                for user in asked[place]
            ]
            answer |= {"answers": lists} if isinstance(request, UsersRequest) else lists[0]
        answers.append(to_json(answer, inf_nan_mode="null"))
    return answers


def _users_of(request: RecommendRequest) -> list[Id]:
    if isinstance(request, UserRequest):
        return [request.user]
    return list(dict.fromkeys(request.users)) if isinstance(request, UsersRequest) else []


def _count_unknown(version: ModelVersion, options: RecommendOptions) -> int:
    """Count the ids in `items` and `exclude` that are unknown to the model."""
    listed = [*(options.exclude or ()), *(options.items or ())]
    return int((find_rows(version.items, listed) == UNKNOWN).sum()) if listed else 0


def _list(
    version: ModelVersion, user: ResolvedUser, ranked: Ranked, *, explain: bool
) -> dict[str, Any]:
    rows, scores = ranked.items.tolist(), ranked.scores.tolist()
    if user.source == "popular":
        scores = [int(score) for score in scores]
    else:
        scores = [float(f"{score:.7g}") for score in scores]
    items: list[dict[str, Any]] = [
        {**version.item_fields(row), "score": score, "rank": place}
        for place, (row, score) in enumerate(zip(rows, scores, strict=True), 1)
    ]
    if explain:
        for item, row in zip(items, rows, strict=True):
            item["reason"] = _reason(version, user, row)
    return {"source": user.source, "items": items}


# -- explanations --------------------------------------------------------------------------------


def _reason(version: ModelVersion, user: ResolvedUser, row: int) -> schemas.Reason | None:
    """Return a short explanation; None if there is none."""
    if user.source == "popular" or not version.can["explain"]:
        return None
    found = _explanation(version, user, row, _REASON_ITEMS)
    return {
        "sentence": _sentence(version, found),
        "effects": _effects(version, found),
        **_support(version, user, row),
    }


def _support(version: ModelVersion, user: ResolvedUser, row: int) -> schemas.Support:
    """Return how far the score of an item can be trusted."""
    users = int(version.data.item_counts[row])
    support = min(users, _EVENTS_PER_USER * len(user.history))
    if support >= _STRONG_SUPPORT:
        return {"users": users, "evidence": "strong"}
    return {"users": users, "evidence": "fair" if support >= _FAIR_SUPPORT else "weak"}


def _percentile(version: ModelVersion, user: ResolvedUser, score: float) -> float:
    """Return the share of items with a lower score, in per cent, from a sample of the items."""
    sample = version.popular[:: 1 + len(version.popular) // _SAMPLED_ITEMS]
    return round(100 * float((_score(version, user, sample) < score).mean()), 1)


def _explanation(version: ModelVersion, user: ResolvedUser, row: int, top: int) -> Explanation:
    scorer, item = version.scorer, version.items.series[row]
    if user.source == "popular" or not len(user.history):
        raise UnsupportedError(
            "There is no history to explain the score with: send events, or a session with items "
            "that the model knows."
        )
    if user.source == "model":
        known = (user.row, version.users.series[user.row])
        history = version.data.histories[user.row]
        return explanation(scorer, scorer, known, history, item, top, include_seen=True)
    folded_in = scorer.fold_in(Histories.of([user.history], len(version.items)))
    return explanation(scorer, folded_in, None, user.history, item, top, include_seen=True)


def _sentence(version: ModelVersion, found: Explanation) -> str:
    """Return the sentence of an explanation, with titles in place of ids where there are some."""

    def name(item: Id) -> Id:
        return version.title(item) or item

    effects = tuple(replace(entry, item_id=name(entry.item_id)) for entry in found.effects)
    return replace(found, item_id=name(found.item_id), effects=effects).sentence


def _effects(version: ModelVersion, found: Explanation) -> list[schemas.Effect]:
    return [
        {
            "item": json_id(entry.item_id),
            "title": version.title(entry.item_id),
            "effect": round(entry.effect, 6),
            "share": round(entry.share, 6),
        }
        for entry in found.effects
    ]


def explain_user(
    version: ModelVersion,
    events: EventCache,
    user: TextId,
    item: TextId,
    top: Annotated[int, Field(ge=1, le=MAX_EXPLAINED)] = 5,
) -> schemas.Explained:
    """Explain the score of an item for a user."""
    resolved = resolve_users(version, events, [user])[0]
    if resolved.source == "popular":
        raise UnknownIdError(f"user {shown(user)} is unknown: there is nothing to explain.")
    found = _explain(version, resolved, item, top)
    found["user"] = convert_id(version.users, user)
    return found


def explain_session(
    version: ModelVersion, events: EventCache, asked: schemas.ExplainRequest
) -> schemas.Explained:
    """Explain the score of an item for a session."""
    user, _ = resolve_sessions(version, [asked.session])[0]
    return _explain(version, user, asked.item, asked.top)


def _explain(version: ModelVersion, user: ResolvedUser, item: Id, top: int) -> schemas.Explained:
    row = int(version.items.require([convert_id(version.items, item)], "item")[0])
    found = _explanation(version, user, row, top)
    return {
        "version": version.number,
        **_support(version, user, row),
        "user": None if user.row == UNKNOWN else version.users.series[user.row],
        "item": found.item_id,
        "title": version.title(found.item_id),
        "score": float(np.float32(found.score)),
        "percentile": _percentile(version, user, found.score),
        "source": user.source,
        "sentence": _sentence(version, found),
        "meaning": found.meaning,
        "effects": _effects(version, found),
        "others": found.others,
        "others_drew": found.others_drew,
        "others_pushed": found.others_pushed,
        "notes": list(found.notes),
        "details": found.details,
    }


# -- neighbours and scores -----------------------------------------------------------------------


def similar_items(
    version: ModelVersion, events: EventCache, item: TextId, k: Length = 10
) -> schemas.SimilarItems:
    """Return the items most similar to an item."""
    wanted = convert_id(version.items, item)
    table = similar(version.scorer, "item", version.item_similarity, [wanted], k, "raise")
    rows = version.items.rows(table["neighbor_id"]).tolist()
    found: Any = [
        {**version.item_fields(row), "score": score, "rank": rank}
        for row, score, rank in zip(rows, table["score"], table["rank"], strict=True)
    ]
    return {"version": version.number, "item": wanted, "items": found}


def similar_users(
    version: ModelVersion, events: EventCache, user: TextId, k: Length = 10
) -> schemas.SimilarUsers:
    """Return the users most similar to a user."""
    wanted = convert_id(version.users, user)
    table = similar(version.scorer, "user", version.user_similarity, [wanted], k, "raise")
    rows = version.users.rows(table["neighbor_id"]).tolist()
    own = version.data.histories[int(version.users.rows([wanted])[0])]
    found: list[schemas.RankedUser] = [
        {
            **_user_card(version, row),
            "score": score,
            "rank": rank,
            "common": len(np.intersect1d(own, version.data.histories[row])),
        }
        for row, score, rank in zip(rows, table["score"], table["rank"], strict=True)
    ]
    return {"version": version.number, "user": wanted, "users": found}


def _user_card(version: ModelVersion, row: int) -> schemas.UserCard:
    """Return the length of a user's history, and its most frequent categories."""
    history = version.data.histories[row]
    names = Counter(
        name
        for item in history[-_CARD_ITEMS:].tolist()
        for name in version.item_metadata[item].categories
    )
    favourites = [name for name, _ in names.most_common(_CARD_CATEGORIES)]
    return {"user": version.users.series[row], "count": len(history), "categories": favourites}


def scores(
    version: ModelVersion, events: EventCache, asked: schemas.ScoresRequest
) -> schemas.PairScores:
    """Score pairs of users and items."""
    pairs = [(pair.user, pair.item) for pair in asked.pairs]
    users = list(dict.fromkeys(user for user, _ in pairs))
    resolved = dict(zip(users, resolve_users(version, events, users), strict=True))
    items = find_rows(version.items, [item for _, item in pairs])
    found: list[float | None] = [None] * len(pairs)
    places: dict[Id, list[int]] = {}
    for place, ((user, _), row) in enumerate(zip(pairs, items.tolist(), strict=True)):
        known = row != UNKNOWN and version.scorer.rankable[row]
        if known and resolved[user].source != "popular":
            places.setdefault(user, []).append(place)
    for user, some in places.items():
        values = _score(version, resolved[user], items[some]).tolist()
        for place, value in zip(some, values, strict=True):
            found[place] = value
    return {
        "version": version.number,
        "scores": [
            {
                "user": convert_id(version.users, user),
                "item": convert_id(version.items, item),
                "score": score,
            }
            for (user, item), score in zip(pairs, found, strict=True)
        ],
    }


def _score(version: ModelVersion, user: ResolvedUser, items: Rows) -> Scores:
    if user.source == "model":
        return version.scorer.scores(np.full(len(items), user.row, np.int32), items)
    folded_in = version.scorer.fold_in(Histories.of([user.history], len(version.items)))
    return folded_in.scores(np.zeros(len(items), np.int32), items)


# -- facts and search ----------------------------------------------------------------------------


def item_facts(version: ModelVersion, events: EventCache, item: TextId) -> schemas.ItemFacts:
    """Return the metadata of an item."""
    row = int(find_rows(version.items, [item])[0])
    metadata = version.metadata.get(str(item))
    if row == UNKNOWN and metadata is None:
        raise UnknownIdError(f"item {shown(item)} is unknown, and no table of items has it.")
    return {
        "version": version.number,
        **version.describe_item(convert_id(version.items, item)),
        "facts": dict(metadata.others) if metadata else {},
        "users": int(version.data.item_counts[row]) if row != UNKNOWN else 0,
        "known": row != UNKNOWN and bool(version.scorer.rankable[row]),
    }


def user_facts(
    version: ModelVersion,
    events: EventCache,
    user: TextId,
    limit: Annotated[int, Field(ge=0, le=MAX_ITEMS)] = 100,
) -> schemas.UserFacts:
    """Return the history of a user, newest first, with events of items unknown to the model."""
    wanted = convert_id(version.users, user)
    resolved = resolve_users(version, events, [wanted])[0]
    new = {event.item: event.time for event in events.of(str(wanted), version.events_after)}
    known = resolved.row != UNKNOWN
    if not known and not new:
        raise UnknownIdError(f"user {shown(user)} is unknown: no event and no training data.")
    trained = version.items.ids(version.data.histories[resolved.row]).to_list() if known else []
    newest: list[Id] = [convert_id(version.items, item) for item in reversed(new)]
    newest += [item for item in reversed(trained) if str(item) not in new]
    history: list[schemas.PastItem] = [
        {
            **version.describe_item(item),
            "from": "event" if str(item) in new else "training",
            "time": new.get(str(item)),
        }
        for item in newest[:limit]
    ]
    return {
        "version": version.number,
        "user": wanted,
        "known": known,
        "source": resolved.source,
        "count": len(newest),
        "history": history,
    }


def categories(version: ModelVersion, events: EventCache) -> schemas.Categories:
    """Return the categories with their numbers of items."""
    found: list[schemas.Category] = [
        {"category": name, "items": len(rows)} for name, rows in version.items_by_category.items()
    ]
    return {"version": version.number, "categories": found}


def search(
    version: ModelVersion,
    events: EventCache,
    q: Annotated[str, Field(max_length=200)] = "",
    kind: Literal["items", "users", "categories", "all"] = "all",
    k: Length = 20,
) -> schemas.Found:
    """Find items by title and id, categories by name, and users by id; see `TextIndex.find`."""
    found: schemas.Found = {"version": version.number, "items": [], "users": [], "categories": []}
    if kind in ("items", "all"):
        counts = version.data.item_counts
        rows = version.item_index.find(q, k)
        found["items"] = [{**version.item_fields(row), "users": int(counts[row])} for row in rows]
    if kind in ("users", "all"):
        found["users"] = [_user_card(version, row) for row in version.user_index.find(q, k)]
    if kind in ("categories", "all"):
        listed = categories(version, events)["categories"]
        found["categories"] = [listed[row] for row in version.category_index.find(q, k)]
    return found


# -- map -----------------------------------------------------------------------------------------


def item_map(
    version: ModelVersion,
    events: EventCache,
    limit: Annotated[int, Field(ge=0, le=MAX_POINTS)] = 50_000,
    layout: Layout = "pca",
) -> dict[str, Any]:
    """Return items in two dimensions."""
    return version.projection.points(limit, layout)


def position(
    version: ModelVersion, events: EventCache, asked: schemas.PositionRequest
) -> dict[str, Any]:
    """Return the position of a user or a session on the map."""
    if asked.user is not None:
        user = resolve_users(version, events, [asked.user])[0]
    else:
        user, _ = resolve_sessions(version, [asked.session or []])[0]
    return version.projection.position(user, version.rankable_rows(asked.toward), asked.layout)
