"""Quality of the lists of a model version: accuracy against popularity, and coverage."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from transcf.data.csr import offsets
from transcf.data.ids import UNKNOWN, Rows
from transcf.evaluation.metrics import METRICS, Ranks
from transcf.serving import schemas
from transcf.serving.events import EventCache
from transcf.serving.model_version import ModelVersion, find_rows
from transcf.serving.ranking import ResolvedUser, rank
from transcf.serving.schemas import RecommendOptions, Source

#: Length of the lists, and users that are ranked at once.
_K, _BLOCK = 10, 256
#: Largest and smallest number of users that are compared; scores of pairs that are computed.
_MAX_USERS, _MIN_USERS, _MAX_SCORES = 500, 20, 2_000_000


def quality(version: ModelVersion, events: EventCache) -> schemas.Quality:
    """Compare the model with popularity on events that it has not learned from.

    `new_events` came after the model was trained. `held_out` is the comparison of `fit` (or `auto`)
    on the events that were held out, before the model was fitted on all events.
    """
    checks = [_new_events(version, events), _held_out(version)]
    found: list[schemas.Check] = [check for check in checks if check is not None]
    return {"version": version.number, "k": _K, "coverage": _coverage(version), "checks": found}


def _held_out(version: ModelVersion) -> schemas.Check | None:
    compared = version.model.report_.get("held_out_metric")
    if not isinstance(compared, dict):
        return None
    metric = compared["metric"]
    return {
        "basis": "held_out",
        "users": compared["users"],
        "model": {metric: round(compared["model"], 4)},
        "popularity": {metric: round(compared["popularity"], 4)},
    }


@lru_cache(maxsize=1)
def _coverage(version: ModelVersion) -> float | None:
    """Return the share of the items that are in the lists of a sample of users."""
    rows = np.flatnonzero(version.data.active)
    most = max(50, min(_MAX_USERS, _MAX_SCORES // len(version.items)))
    some = rows[np.linspace(0, len(rows) - 1, min(most, len(rows))).astype(int)]
    histories = version.data.histories
    users = [ResolvedUser(int(row), histories[int(row)], "model") for row in some]
    lists = rank(version, users, [RecommendOptions(k=_K)] * len(users))
    shown = np.unique(np.concatenate([ranked.items for ranked in lists]))
    return round(len(shown) / len(version.popular), 4)


def _new_events(version: ModelVersion, events: EventCache) -> schemas.Check | None:
    histories: list[Rows] = []
    targets: list[set[str]] = []
    for user, new in list(events.by_user.items())[-_MAX_USERS:]:
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
        return None

    def measure(source: Source) -> dict[str, float]:
        users = [ResolvedUser(UNKNOWN, history, source) for history in histories]
        return {name: round(value, 4) for name, value in accuracy(version, users, targets).items()}

    return {
        "basis": "new_events",
        "users": len(targets),
        "model": measure("folded_in"),
        "popularity": measure("popular"),
    }


def accuracy(
    version: ModelVersion, users: Sequence[ResolvedUser], targets: Sequence[set[str]]
) -> dict[str, float]:
    """Return the accuracy of the service's lists; each user has at least one target item."""
    ranks: list[float] = []
    for first in range(0, len(users), _BLOCK):
        some = users[first : first + _BLOCK]
        lists = rank(version, some, [RecommendOptions(k=_K)] * len(some))
        for ranked, items in zip(lists, targets[first : first + _BLOCK], strict=True):
            places = {str(item): n for n, item in enumerate(version.items.ids(ranked.items), 1)}
            ranks += sorted(places.get(item, np.inf) for item in items)
    rows, ends = np.arange(len(users), dtype=np.int32), offsets([len(items) for items in targets])
    found = Ranks(rows, ends, np.array(ranks))
    return {f"{name}@{_K}": float(METRICS[name](found, _K).mean()) for name in ("HitRate", "NDCG")}
