"""Retrain a model with the collected events, evaluate it, and deploy it as a new version."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from transcf.data.ids import Id, IdMap
from transcf.data.interactions import Interactions
from transcf.data.readers import open_data, read_interactions
from transcf.errors import DataError, ParameterError, UnsupportedError
from transcf.io.model_dir import Versions
from transcf.models.base import Recommender
from transcf.models.fitted import TrainingData
from transcf.models.registry import load_version
from transcf.serving.events import Event, EventCache, EventStore, invalid_reason
from transcf.serving.model_version import EVENTS_AFTER, VALIDATION, ModelVersion
from transcf.serving.queries import accuracy
from transcf.serving.ranking import resolve

#: Share of the new events that both models are evaluated on: the newest.
_HELD_OUT = 0.2
#: The metric that decides.
_METRIC = "NDCG@10"
#: Description of the data that a model folder holds.
_FOLDER = "the training interactions in the model's folder"
#: What the report of a model keeps.
_KEPT = ("dataset", "reading", "protocol", "split_seed")
#: Integer times above this are milliseconds (as seconds they would be after the year 5000), and
#: above its thousandfold microseconds, and so on.
_MILLISECONDS = 10**11


@dataclass(frozen=True)
class Refreshed:
    """Result of a refresh.

    Attributes:
        version: The new version; None if there were no new events.
        served: The version that is served afterwards.
        events: Events that the old version had not learned from.
        judged: Number of evaluated users, those with held-out events.
        old: NDCG@10 of the old version, which knows the other new events; None without users.
        new: NDCG@10 of a model that was trained up to the same moment.
        fitted_on: Description of the training data of the new version.
        skipped: Events that no model can learn from, see `transcf events list --invalid`.
        deleted: Events that were deleted afterwards because of their age.
    """

    version: int | None
    served: int
    events: int
    judged: int = 0
    old: float | None = None
    new: float | None = None
    fitted_on: str = ""
    skipped: int = 0
    deleted: int = 0

    def title(self, model: object) -> str:
        """Say in one sentence which version of a model is served."""
        if self.version is None:
            return f"There is no event that version {self.served} of {model} has not learned from"
        if self.served == self.version:
            return f"Version {self.version} of {model} is served from now on"
        if self.judged:
            return f"Version {self.version} is worse than version {self.served}, which goes on"
        return (
            f"No user could be evaluated, so version {self.served} goes on (--force serves "
            f"version {self.version})"
        )


def refresh(
    versions: Versions,
    store: EventStore,
    data: str | None = None,
    *,
    quick: bool = False,
    force: bool = False,
    keep_days: float | None = None,
) -> Refreshed:
    """Train a new version on the log and the events; serve it if it is not worse.

    The newest fifth of the new events is held out. A model trained on everything before, and the
    served one, which is given these events as in the service, recommend ten items to every user
    with held-out events; NDCG@10 decides. The new version is then trained on all events.

    Args:
        versions: Versions of the model.
        store: The events.
        data: The log, if the model's report does not name it; see `base_log`.
        quick: Whether events are added by `partial_fit` instead of `refit`.
        force: Whether it is served even if it is worse, or no user can be evaluated.
        keep_days: Delete older events that the served version has learned from; None keeps all.
    """
    current = versions.current()
    served = ModelVersion.load(current, versions.folder(current), {}, EventCache(store))
    found = store.after(served.events_after)
    new = _valid(served, found)
    skipped = len(found) - len(new)
    if not new:
        return Refreshed(None, current, 0, skipped=skipped)
    train, source = _trainer(served, store, data, quick)
    held_out = new[-max(1, int(_HELD_OUT * len(new))) :]
    older = new[: len(new) - len(held_out)]
    # Without older events, `partial_fit` would leave the model as it is.
    candidate = served.model if quick and not older else train(older)
    judged, old_quality, new_quality = _evaluate(served, candidate, store, older, held_out)
    model = train(new)
    fitted_on = f"{source} and {len(new):,} new events"
    validation = {"users": judged, "metric": _METRIC, "old": old_quality, "new": new_quality}
    model.report_ |= {EVENTS_AFTER: found[-1].number, "fitted_on": fitted_on}
    model.report_[VALIDATION] = validation
    version = versions.add(model)
    is_better = new_quality is not None and old_quality is not None and new_quality >= old_quality
    deleted, learned = 0, served.events_after
    if force or is_better:
        versions.switch(version)
        current, learned = version, found[-1].number
    if keep_days is not None:
        deleted = store.delete_learned(learned, time.time() - 86_400 * keep_days)
    return Refreshed(
        version, current, len(new), judged, old_quality, new_quality, fitted_on, skipped, deleted
    )


def _valid(served: ModelVersion, events: Sequence[Event]) -> list[Event]:
    now = time.time()
    return [e for e in events if invalid_reason(e, served.users, served.items, now) is None]


def back_to(versions: Versions, version: int) -> None:
    """Serve an earlier version again, if its files are whole."""
    if version < 1:
        raise ParameterError(f"--back-to {version} is no version: they count from 1.")
    if versions.made(version) is not None:
        load_version(versions.folder(version))
    versions.switch(version)


def _trainer(
    served: ModelVersion, store: EventStore, data: str | None, quick: bool
) -> tuple[Callable[[Sequence[Event]], Recommender[Any]], str]:
    """Return a function that trains a model with some of the new events, and its data source."""
    base, source = base_log(served.model, data)

    def refit(events: Sequence[Event]) -> Recommender[Any]:
        before = [event for event in store.after(0) if event.number <= served.events_after]
        log = with_events(base, [*_valid(served, before), *events])
        model = load_version(served.folder)
        old, report = model.learned_, model.report_
        model.refit(log)
        if source == _FOLDER:  # its times are positions in histories: they say nothing about trends
            model.learned_ = model.learned_.with_trend_after(old, log)
        model.report_ |= {name: report[name] for name in _KEPT if name in report}
        return model

    def partial_fit(events: Sequence[Event]) -> Recommender[Any]:
        model = load_version(served.folder)
        add = getattr(model, "partial_fit", None)
        if add is None:
            raise UnsupportedError(f"{type(model).__name__} has no partial_fit: leave out --quick.")
        add(read_interactions(_event_frame(base, events)))
        return model

    return (partial_fit, f"version {served.number}") if quick else (refit, source)


def _evaluate(
    served: ModelVersion,
    model: Recommender[Any],
    store: EventStore,
    older: Sequence[Event],
    held_out: Sequence[Event],
) -> tuple[int, float | None, float | None]:
    """Return the number of evaluated users, and NDCG@10 of the served model and of the new one."""
    targets: dict[Id, set[str]] = {}
    for event in held_out:
        targets.setdefault(event.user, set()).add(event.item)
    candidate = ModelVersion(0, served.folder, model, {}, served.can, EventCache(store))
    served.events.extend(older)  # the candidate has learned from them
    for user, resolved in zip([*targets], resolve(served, [*targets]), strict=True):
        # Items of the history are not recommended again.
        targets[user] -= {str(item) for item in served.items.ids(resolved.history).to_list()}
    targets = {user: items for user, items in targets.items() if items}
    if not targets:
        return 0, None, None
    users, wanted = [*targets], [*targets.values()]
    current = served.with_events(older)
    old = accuracy(current, resolve(current, users), wanted)
    new = accuracy(candidate, resolve(candidate, users), wanted)
    return len(users), old[_METRIC], new[_METRIC]


# -- events as a log -----------------------------------------------------------------------------


def base_log(model: Recommender[Any], data: str | None) -> tuple[Interactions, str]:
    """Return the log that a model was trained on, and a description of where it comes from.

    `data` names what to read instead of the data in the report: anything that `transcf fit` reads,
    or `"model"` for the training interactions that the model keeps.
    """
    named = data or model.report_.get("dataset")
    if named is None or named == "model":
        return _kept_log(model.learned_.known), _FOLDER
    reading = model.report_.get("reading", {}) if data is None else {}
    try:
        return open_data(named, **reading), str(named)
    except DataError as error:
        raise DataError(
            f"{error} That is the data of the model: name it with --data DATA, or give --data "
            "model to go by the training interactions in its folder (without ratings and times)."
        ) from error


def _kept_log(data: TrainingData) -> Interactions:
    users, items = data.users.ids(data.seen.entry_rows), data.items.ids(data.histories.items)
    columns = {"user_id": users, "item_id": items}
    if data.timed:
        columns["timestamp"] = pl.Series(data.histories.places)
    return read_interactions(pl.DataFrame(columns))


def with_events(base: Interactions, events: Sequence[Event]) -> Interactions:
    """Return a log with events added, after all others if the log has no times.

    Events with a rating of 0 or below are left out, as in logs.
    """
    if not events:
        return base
    frames = [base.to_frame(), _event_frame(base, events)]
    log = read_interactions(pl.concat(frames, how="diagonal"))
    return log.with_categories(base.categories)


def _event_frame(base: Interactions, events: Sequence[Event]) -> pl.DataFrame:
    kept = [event for event in events if event.rating is None or event.rating > 0]
    columns = {
        "user_id": _convert_ids([event.user for event in kept], base.users, "user"),
        "item_id": _convert_ids([event.item for event in kept], base.items, "item"),
    }
    if base.ratings is not None:
        columns["rating"] = pl.Series([event.rating for event in kept], dtype=pl.Float32)
    if base.timestamps is not None:
        columns["timestamp"] = _convert_times([event.time for event in kept], base)
    return pl.DataFrame(columns)


def _convert_times(times: list[float], base: Interactions) -> pl.Series:
    """Return times of events in the unit of a log."""
    assert base.timestamps is not None, "only for logs with times"
    if base.times_are_dates:
        return pl.Series([round(time * 1e6) for time in times]).cast(pl.Datetime("us"))
    newest = int(base.timestamps.max())
    if newest < len(base.timestamps):  # positions in histories: new events come after all of them
        order = np.argsort(np.argsort(times, kind="stable"), kind="stable")
        return pl.Series(newest + 1 + order)
    scale = 1
    while newest > _MILLISECONDS * scale:
        scale *= 1000
    return pl.Series([int(time * scale) for time in times], dtype=pl.Int64)


def _convert_ids(values: list[str], ids: IdMap, what: str) -> pl.Series:
    column = pl.Series(values, dtype=pl.String)
    if ids.is_text:
        return column
    numbers = column.cast(pl.Int64, strict=False)
    if numbers.null_count():
        strange = column.filter(numbers.is_null())[0]
        raise DataError(
            f"An event has the {what} {strange!r}, and ids of the log are integers: delete it."
        )
    return numbers
