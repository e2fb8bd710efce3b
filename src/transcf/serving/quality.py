"""Quality of the lists of a model version: accuracy against popularity, and coverage."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from transcf.data.ids import UNKNOWN, Rows
from transcf.serving import schemas
from transcf.serving.events import EventCache
from transcf.serving.model_version import ModelVersion, find_rows
from transcf.serving.ranking import Ranked, ResolvedUser, rank
from transcf.serving.schemas import RecommendOptions

#: Length of the lists.
_K = 10
#: Largest and smallest number of users that are compared; scores of pairs that are computed.
_MAX_USERS, _MIN_USERS, _MAX_SCORES = 500, 20, 2_000_000


class _Case(NamedTuple):
    """What is known about a user, and the items that the lists should have."""

    history: Rows
    targets: Rows


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
    cases = _new_cases(version, events)
    if len(cases) < _MIN_USERS or not version.can["fold_in"]:
        return None
    options = [RecommendOptions(k=_K)] * len(cases)
    own = [ResolvedUser(UNKNOWN, case.history, "folded_in") for case in cases]
    floor = [ResolvedUser(UNKNOWN, case.history, "popular") for case in cases]
    return {
        "basis": "new_events",
        "users": len(cases),
        "model": _accuracy(rank(version, own, options), cases),
        "popularity": _accuracy(rank(version, floor, options), cases),
    }


def _new_cases(version: ModelVersion, events: EventCache) -> list[_Case]:
    cases = []
    for user, new in list(events.by_user.items())[-_MAX_USERS:]:
        row = int(find_rows(version.users, [user])[0])
        if row == UNKNOWN:
            continue
        history = version.data.histories[row]
        chosen = version.rankable_rows([event.item for event in new])
        targets = np.setdiff1d(chosen, history)
        if len(targets):
            cases.append(_Case(history, targets))
    return cases


def _accuracy(lists: Sequence[Ranked], cases: Sequence[_Case]) -> dict[str, float]:
    hits, gains = [], []
    weights = 1 / np.log2(np.arange(2, _K + 2))
    for ranked, case in zip(lists, cases, strict=True):
        found = np.isin(ranked.items, case.targets)
        hits.append(found.any())
        gains.append(weights[: len(found)][found].sum() / weights[: len(case.targets)].sum())
    hit_rate, ndcg = float(np.mean(hits)), float(np.mean(gains))
    return {f"HitRate@{_K}": round(hit_rate, 4), f"NDCG@{_K}": round(ndcg, 4)}
