"""Events as a log that a model can be fitted on, together with what it was fitted on before."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl

from transcf.data.ids import IdMap
from transcf.data.interactions import Interactions
from transcf.data.readers import open_data, read_interactions
from transcf.errors import DataError
from transcf.models.recommender import Recommender
from transcf.models.training_data import TrainingData
from transcf.serving.events.store import Stored

#: Integer times above this are taken to be milliseconds: as seconds they lie beyond the year 5000.
_MILLISECONDS = 10**11


def base_log(model: Recommender[Any], data: str | None) -> tuple[Interactions, str]:
    """Return the events that a model was fitted on, and where they come from, in words.

    Args:
        model: Fitted; its report may name its data.
        data: What to read instead, as for `transcf fit`.

    Raises:
        DataError: What the report names cannot be read: name it, or let the model's own training
            interactions do with `data="model"`.
    """
    named = data or model.report_.get("dataset")
    if named is None or named == "model":
        return _remembered(model.learned_.known), "the training interactions in the model's folder"
    reading = model.report_.get("reading", {}) if data is None else {}
    try:
        return open_data(named, **reading), str(named)
    except DataError as error:
        raise DataError(
            f"{error} That is the data of the model: name it with --data DATA, or give --data "
            "model to go by the training interactions in its folder (without ratings and times)."
        ) from error


def _remembered(known: TrainingData) -> Interactions:
    """Return what a model keeps of its training data, in order."""
    columns = {
        "user_id": known.users.ids(known.seen.entry_rows),
        "item_id": known.items.ids(known.histories.items),
    }
    if known.timed:
        columns["timestamp"] = pl.Series(known.histories.places)
    return read_interactions(pl.DataFrame(columns))


def with_events(base: Interactions, events: Sequence[Stored]) -> Interactions:
    """Return a log with events added, later than all of it where it has no times.

    Events with a rating of 0 or below are no sign of liking and are left out, as in logs.

    Example:
        >>> from transcf import synthesize
        >>> from transcf.serving.events.store import Event
        >>> log = synthesize(users=50, items=30, interactions=500)
        >>> len(with_events(log, [Stored(1, Event("new", "i01", 1.7e9))]))
        501
    """
    if not events:
        return base
    log = read_interactions(pl.concat([base.to_frame(), _frame(base, events)], how="diagonal"))
    return log.with_categories(base.categories).with_links(base.links)


def only_events(base: Interactions, events: Sequence[Stored]) -> Interactions:
    """Return events alone, in the form of a log."""
    return read_interactions(_frame(base, events))


def _frame(base: Interactions, events: Sequence[Stored]) -> pl.DataFrame:
    kept = [found.event for found in events if found.event.rating is None or found.event.rating > 0]
    columns = {
        "user_id": _ids([event.user for event in kept], base.users, "user"),
        "item_id": _ids([event.item for event in kept], base.items, "item"),
    }
    if base.ratings is not None:
        ratings = [event.rating for event in kept]
        columns["rating"] = pl.Series(ratings, dtype=pl.Float32)
    if base.timestamps is not None:
        columns["timestamp"] = _times(base, [event.time for event in kept])
    return pl.DataFrame(columns)


def _times(base: Interactions, times: list[float]) -> pl.Series:
    """Return times of events in the unit of a log."""
    assert base.timestamps is not None, "asked for with times alone"
    if base.times_are_dates:
        return pl.Series([round(time * 1e6) for time in times]).cast(pl.Datetime("us"))
    newest = int(base.timestamps.max())
    if newest < len(base.timestamps):  # places in histories: what is new comes after all of them
        order = np.argsort(np.argsort(times, kind="stable"), kind="stable")
        return pl.Series(newest + 1 + order)
    scale = 1000 if newest > _MILLISECONDS else 1
    return pl.Series([int(time * scale) for time in times], dtype=pl.Int64)


def _ids(values: list[str], ids: IdMap, what: str) -> pl.Series:
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
