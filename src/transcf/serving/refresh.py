"""From events to the next version: fitted anew, judged on the newest events, put beside the old."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from transcf.data.ids import Id
from transcf.errors import ParameterError, UnsupportedError
from transcf.evaluation.metrics import METRICS, Ranks
from transcf.models.base import Recommender
from transcf.models.registry import load_version
from transcf.serving.events.store import Event, EventStore, Stored
from transcf.serving.loaded_model import EVENTS_AFTER, LoadedModel
from transcf.serving.ranking import RecommendOptions, rank
from transcf.serving.renewal import base_log, only_events, with_events
from transcf.serving.users import Known, find_people
from transcf.serving.versions import Versions

#: Share of the new events that both models are judged on: the newest.
_HELD_OUT = 0.2
#: Length of the lists that are judged, and the metric.
_LENGTH, _METRIC = 10, "N"
#: People of one call of the ranking.
_BLOCK = 256


@dataclass(frozen=True)
class Refreshed:
    """What came of it.

    Attributes:
        version: The new version; None where there was nothing new.
        served: The version that is served afterwards.
        events: Events that the old version had not learned from.
        judged: People with newer events, on whom both were judged.
        old: N@10 of the old version, with what it is told of events; None without anybody.
        new: N@10 of a model that was fitted up to the same moment.
        fitted_on: What the new version has learned from, in words.
    """

    version: int | None
    served: int
    events: int
    judged: int = 0
    old: float | None = None
    new: float | None = None
    fitted_on: str = ""


def refresh(
    versions: Versions,
    store: EventStore,
    data: str | None = None,
    *,
    quick: bool = False,
    force: bool = False,
) -> Refreshed:
    """Make a new version from the log and the events, and serve it if it is not worse.

    The newest fifth of the events that the served version has not learned from is held out. A model
    that is fitted on all before them, and the served one, which is told of these events as a
    service tells it, recommend ten items to everybody with held-out events; N@10 decides. Then the
    new version is fitted on everything and written beside the old one.

    Args:
        versions: Of the model.
        store: The events.
        data: The log, where the model's report does not name it; see `base_log`.
        quick: Whether events are added by `partial_fit` instead of fitting again.
        force: Whether it is served even if it is worse, or nobody can be judged.
    """
    current = versions.current()
    served = LoadedModel.load(current, versions.folder(current), {})
    new = store.after(served.after)
    if not new:
        return Refreshed(None, current, 0)
    learn, words = _learner(versions, served, store, data, quick)
    held = new[-max(1, int(_HELD_OUT * len(new))) :]
    older = new[: len(new) - len(held)]
    # Without events before them, adding none leaves the model as it is.
    until = served.model if quick and not older else learn(older)
    judged, old, made = _judged(served, until, older, held)
    model = learn(new)
    last = new[-1].number
    model.report_ |= {EVENTS_AFTER: last, "fitted_on": f"{words} and {len(new):,} new events"}
    version = versions.add(model)
    is_better = made is not None and old is not None and made >= old
    if force or is_better:
        versions.switch(version)
        current = version
    return Refreshed(version, current, len(new), judged, old, made, model.report_["fitted_on"])


def _learner(
    versions: Versions, served: LoadedModel, store: EventStore, data: str | None, quick: bool
) -> tuple[Callable[[Sequence[Stored]], Recommender[Any]], str]:
    """Return what fits a model to the log and some of the new events, and what it does in words."""
    base, where = base_log(served.model, data)
    kept: dict[str, Any] = {
        key: served.model.report_[key]
        for key in ("dataset", "reading", "protocol", "split_seed")
        if key in served.model.report_
    }

    def anew(events: Sequence[Stored]) -> Recommender[Any]:
        before = [found for found in store.after(0) if found.number <= served.after]
        model = load_version(served.folder).refit(with_events(base, [*before, *events]))
        model.report_ |= kept
        return model

    def added(events: Sequence[Stored]) -> Recommender[Any]:
        model = load_version(served.folder)
        add = getattr(model, "partial_fit", None)
        if add is None:
            raise UnsupportedError(
                f"{type(model).__name__} cannot take in events without learning anew: leave out "
                "--quick."
            )
        add(only_events(base, events))
        return model

    if quick:
        return added, f"version {served.version}"
    return anew, where


def _judged(
    served: LoadedModel, model: Recommender[Any], older: Sequence[Stored], held: Sequence[Stored]
) -> tuple[int, float | None, float | None]:
    """Return how many people were judged, and N@10 of the old model and of the new one."""
    targets: dict[str, list[str]] = {}
    for found in held:
        targets.setdefault(found.event.user, []).append(found.event.item)
    users = list(targets)
    told, untold = _Told(older), _Told([])
    candidate = LoadedModel(0, served.folder, model, {}, served.can)
    wanted = [set(targets[user]) - _had(served, told, user) for user in users]
    kept = [place for place, items in enumerate(wanted) if items]
    if not kept:
        return 0, None, None
    some, sought = [users[place] for place in kept], [wanted[place] for place in kept]
    quality = [_quality(served, told, some, sought), _quality(candidate, untold, some, sought)]
    return len(kept), quality[0], quality[1]


class _Told:
    """Events that a model is told of."""

    def __init__(self, events: Sequence[Stored]) -> None:
        self._by_user: dict[str, list[Event]] = {}
        for found in events:
            self._by_user.setdefault(found.event.user, []).append(found.event)

    def of(self, user: str, after: int = 0) -> list[Event]:
        return self._by_user.get(user, [])


def _had(served: LoadedModel, recent: Known, user: str) -> set[str]:
    """Return the items that somebody has, which are not recommended again."""
    person = find_people(served, recent, [user])[0]
    return {str(item) for item in served.items.ids(person.history).to_list()}


def _quality(
    served: LoadedModel, recent: Known, users: Sequence[Id], sought: Sequence[set[str]]
) -> float:
    """Return N@10 of the lists that a service would give."""
    ranks: list[float] = []
    for first in range(0, len(users), _BLOCK):
        some = users[first : first + _BLOCK]
        people = find_people(served, recent, some)
        lists = rank(served, people, [RecommendOptions(_LENGTH)] * len(some))
        for ranked, wanted in zip(lists, sought[first : first + _BLOCK], strict=True):
            got = [str(item) for item in served.items.ids(ranked.items).to_list()]
            places = {item: place for place, item in enumerate(got, 1)}
            ranks += sorted(places.get(item, np.inf) for item in wanted)
    ends = np.cumsum([0, *map(len, sought)])
    rows = np.arange(len(users), dtype=np.int32)
    return float(METRICS[_METRIC](Ranks(rows, ends, np.array(ranks)), _LENGTH).mean())


def back_to(versions: Versions, version: int) -> None:
    """Serve an earlier version again, if it is whole.

    Raises:
        ParameterError: There is no such version.
        ModelFileError: It is damaged.
    """
    if version < 1:
        raise ParameterError(f"--back-to {version} is no version: they count from 1.")
    if versions.made(version) is not None:
        load_version(versions.folder(version))
    versions.switch(version)
