"""Queries about one model version: neighbours, scores, facts, search, map, quality.

Most functions are routes as well (see `app`): their parameters after `version` are those of the
route, and their annotations limit them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Annotated, Any, Literal

import numpy as np
import polars as pl
from pydantic import Field

from transcf.data.csr import offsets
from transcf.data.ids import UNKNOWN, Id, IdMap, Rows
from transcf.errors import UnknownIdError, shown
from transcf.evaluation.metrics import METRICS, Ranks
from transcf.models.tables import similar
from transcf.serving import schemas
from transcf.serving.model_version import ModelVersion, convert_id, find_rows
from transcf.serving.projection import Layout
from transcf.serving.ranking import ResolvedUser, rank, resolve, score
from transcf.serving.schemas import Length, TextId

#: Categories that describe a user, and items of the history that they are counted in.
_CARD_CATEGORIES, _CARD_ITEMS = 3, 200
#: Length of the lists whose quality is measured, and users that are ranked at once.
_K, _BLOCK = 10, 256
#: Largest and smallest number of users that are compared; scores of pairs that are computed.
_MAX_USERS, _MIN_USERS, _MAX_SCORES = 500, 20, 2_000_000


# -- neighbours and scores -----------------------------------------------------------------------


def similar_items(version: ModelVersion, item: TextId, k: Length = 10) -> schemas.SimilarItems:
    """Return the items most similar to an item."""
    wanted = convert_id(version.items, item)
    table = similar(version.scorer, "item", version.item_similarity, [wanted], k, "raise")
    found: Any = [version.item_fields(row) | place for row, place in _rows_of(version.items, table)]
    return {"version": version.number, "item": wanted, "items": found}


def similar_users(version: ModelVersion, user: TextId, k: Length = 10) -> schemas.SimilarUsers:
    """Return the users most similar to a user."""
    wanted = convert_id(version.users, user)
    table = similar(version.scorer, "user", version.user_similarity, [wanted], k, "raise")
    own = version.data.histories[int(version.users.rows([wanted])[0])]
    found: Any = [
        _user_card(version, row)
        | place
        | {"common": len(np.intersect1d(own, version.data.histories[row]))}
        for row, place in _rows_of(version.users, table)
    ]
    return {"version": version.number, "user": wanted, "users": found}


def _rows_of(ids: IdMap, neighbours: pl.DataFrame) -> Iterator[tuple[int, dict[str, Any]]]:
    """Pair the row of each neighbour with its score and rank."""
    rows = ids.rows(neighbours["neighbor_id"]).tolist()
    return zip(rows, neighbours.select("score", "rank").to_dicts(), strict=True)


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


def scores(version: ModelVersion, asked: schemas.ScoresRequest) -> schemas.PairScores:
    """Score pairs of users and items."""
    users = list(dict.fromkeys(pair.user for pair in asked.pairs))
    resolved = dict(zip(users, resolve(version, users), strict=True))
    rows = find_rows(version.items, [pair.item for pair in asked.pairs])
    rankable = (rows != UNKNOWN) & version.scorer.rankable[rows]
    places: dict[Id, list[int]] = {}
    for place, pair in enumerate(asked.pairs):
        if rankable[place] and resolved[pair.user].source != "popular":
            places.setdefault(pair.user, []).append(place)
    found: dict[int, float] = {}
    for user, some in places.items():
        values = score(version, resolved[user], rows[some]).tolist()
        found |= zip(some, values, strict=True)
    answers: list[schemas.PairScore] = []
    for place, pair in enumerate(asked.pairs):
        user, one = convert_id(version.users, pair.user), convert_id(version.items, pair.item)
        answers.append({"user": user, "item": one, "score": found.get(place)})
    return {"version": version.number, "scores": answers}


# -- facts and search ----------------------------------------------------------------------------


def item_facts(version: ModelVersion, item: TextId) -> schemas.ItemFacts:
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
    user: TextId,
    limit: Annotated[int, Field(ge=0, le=schemas.MAX_ITEMS)] = 100,
) -> schemas.UserFacts:
    """Return the history of a user, newest first, with events of items unknown to the model."""
    wanted = convert_id(version.users, user)
    resolved = resolve(version, [wanted])[0]
    new = {event.item: event.time for event in version.new_events(wanted)}
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


def categories(version: ModelVersion) -> schemas.Categories:
    """Return the categories with their numbers of items."""
    found: list[schemas.Category] = [
        {"category": name, "items": len(rows)} for name, rows in version.items_by_category.items()
    ]
    return {"version": version.number, "categories": found}


def search(
    version: ModelVersion,
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
        listed = categories(version)["categories"]
        found["categories"] = [listed[row] for row in version.category_index.find(q, k)]
    return found


# -- map -----------------------------------------------------------------------------------------


def item_map(
    version: ModelVersion,
    limit: Annotated[int, Field(ge=0, le=schemas.MAX_POINTS)] = 50_000,
    layout: Layout = "pca",
) -> dict[str, Any]:
    """Return items in two dimensions."""
    return version.projection.points(limit, layout)


def item_attribute(
    version: ModelVersion,
    name: str,
    limit: Annotated[int, Field(ge=0, le=schemas.MAX_POINTS)] = 50_000,
) -> schemas.Attribute:
    """Return a numeric column of the table of items, in the order of the map."""
    if name not in version.attributes:
        raise UnknownIdError(f"The table of items has no numeric column {shown(name)}.")
    rows = version.popular[:limit].tolist()
    values = [version.item_metadata[row].others.get(name) for row in rows]
    return {"version": version.number, "name": name, "values": values}


def position(version: ModelVersion, asked: schemas.PositionRequest) -> dict[str, Any]:
    """Return the position of a user or a session on the map."""
    user = resolve(version, [asked.session or [] if asked.user is None else asked.user])[0]
    return version.projection.position(user, version.rankable_rows(asked.toward), asked.layout)


# -- quality -------------------------------------------------------------------------------------


def quality(version: ModelVersion) -> schemas.Quality:
    """Compare the model with popularity on events that it has not learned from.

    `new_events` came after the model was trained. `held_out` is the comparison of `fit` (or `auto`)
    on the events that were held out, before the model was fitted on all events.
    """
    checks = _new_events(version)
    compared = version.model.report_.get("held_out_metric")
    if isinstance(compared, dict):
        metric, users = compared["metric"], compared["users"]
        model, popularity = ({metric: round(compared[name], 4)} for name in ("model", "popularity"))
        checks.append(
            {"basis": "held_out", "users": users, "model": model, "popularity": popularity}
        )
    return {"version": version.number, "k": _K, "coverage": _coverage(version), "checks": checks}


@lru_cache(maxsize=1)
def _coverage(version: ModelVersion) -> float | None:
    """Return the share of the items that are in the lists of a sample of users."""
    rows = np.flatnonzero(version.data.active)
    most = max(50, min(_MAX_USERS, _MAX_SCORES // len(version.items)))
    some = rows[np.linspace(0, len(rows) - 1, min(most, len(rows))).astype(int)]
    histories = version.data.histories
    users = [ResolvedUser(int(row), histories[int(row)], "model") for row in some]
    lists = rank(version, users, [schemas.RecommendOptions(k=_K)] * len(users))
    shown = np.unique(np.concatenate([ranked.items for ranked in lists]))
    return round(len(shown) / len(version.popular), 4)


def _new_events(version: ModelVersion) -> list[schemas.Check]:
    histories: list[Rows] = []
    targets: list[set[str]] = []
    for user, new in list(version.events.by_user.items())[-_MAX_USERS:]:
        row = int(find_rows(version.users, [user])[0])
        if row == UNKNOWN:
            continue
        history = version.data.histories[row]
        chosen = version.rankable_rows([event.item for event in new])
        unseen = np.setdiff1d(chosen, history)
        if len(unseen):
            histories.append(history)
            targets.append(set(map(str, version.items.ids(unseen))))
    if len(targets) < _MIN_USERS or not version.can["fold_in"]:
        return []

    def measure(source: schemas.Source) -> dict[str, float]:
        users = [ResolvedUser(UNKNOWN, history, source) for history in histories]
        return {name: round(value, 4) for name, value in accuracy(version, users, targets).items()}

    model, popularity, users = measure("folded_in"), measure("popular"), len(targets)
    return [{"basis": "new_events", "users": users, "model": model, "popularity": popularity}]


def accuracy(
    version: ModelVersion, users: Sequence[ResolvedUser], targets: Sequence[set[str]]
) -> dict[str, float]:
    """Return the accuracy of the service's lists; each user has at least one target item."""
    ranks: list[float] = []
    for first in range(0, len(users), _BLOCK):
        some = users[first : first + _BLOCK]
        lists = rank(version, some, [schemas.RecommendOptions(k=_K)] * len(some))
        for ranked, items in zip(lists, targets[first : first + _BLOCK], strict=True):
            places = {str(item): n for n, item in enumerate(version.items.ids(ranked.items), 1)}
            ranks += sorted(places.get(item, np.inf) for item in items)
    rows, ends = np.arange(len(users), dtype=np.int32), offsets([len(items) for items in targets])
    found = Ranks(rows, ends, np.array(ranks))
    return {f"{name}@{_K}": float(METRICS[name](found, _K).mean()) for name in ("HitRate", "NDCG")}
