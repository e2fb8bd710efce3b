"""`transcf events`: list and delete the events that a service has stored."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from transcf.cli import options, output
from transcf.cli.serve import EventsOption
from transcf.errors import MissingExtraError, ParameterError

if TYPE_CHECKING:
    from transcf.models.base import Recommender
    from transcf.serving.events import EventStore

app = options.CommandGroup(help="List and delete the events that a service has stored.")


@contextmanager
def _open(folder: Path, url: str | None) -> Iterator[EventStore]:
    """Open the events of a model; none are created."""
    try:
        from transcf.serving.events import EventStore, events_url
    except ImportError as error:
        raise MissingExtraError("Reading events", "serve") from error
    name = events_url(folder, url)
    if "://" not in name and not Path(name).is_file():
        raise ParameterError(f"There is no file {name} with events: name it with --events.")
    store = EventStore(name)
    try:
        yield store
    finally:
        store.close()


def _current_model(folder: Path) -> Recommender[Any]:
    from transcf.io.model_dir import Versions
    from transcf.models.registry import load_version

    versions = Versions.of(folder)
    return load_version(versions.folder(versions.current()), mapped=True)


@app.command("list")
def list_events(
    folder: options.ModelDir,
    events: EventsOption = None,
    invalid: bool = False,
    last: options.Count = 50,
    as_json: options.JsonFlag = False,
) -> None:
    """List stored events, oldest first, with what is wrong with them.

    Options:
        invalid: Only events that no model can learn from.
        last (N): Only the newest N.

    Example: transcf events list my-model --invalid
    """
    with _open(folder, events) as store:
        from transcf.serving.events import invalid_reason

        stored, now = store.after(0), time.time()
    known = _current_model(folder).learned_.known
    rows = [
        {
            "number": event.number,
            "user": event.user,
            "item": event.item,
            "time": event.time,
            "rating": event.rating,
            "key": event.key,
            "invalid": invalid_reason(event, known.users, known.items, now),
        }
        for event in stored
    ]
    rows = [row for row in rows if row["invalid"] or not invalid]
    shown = rows[-last:]
    if as_json:
        output.print_json(shown)
        return
    title = f"{len(shown):,} of {len(rows):,} events"
    columns = ("number", "user", "item", "time", "rating", "key", "invalid")
    output.print_table(title, columns, [[str(row[name]) for name in columns] for row in shown])


@app.command()
def delete(
    folder: options.ModelDir,
    numbers: Annotated[list[int], typer.Argument(metavar="NUMBER...", help="Event numbers.")],
    events: EventsOption = None,
) -> None:
    """Delete events by number. A running service forgets them.

    Example: transcf events delete my-model 17 18
    """
    with _open(folder, events) as store:
        there = {event.number for event in store.after(0)}
        missing = [number for number in numbers if number not in there]
        if missing:
            raise ParameterError(f"There is no event {missing[0]}: nothing was deleted.")
        deleted = store.delete(numbers)
    output.print_facts("Deleted events", {"deleted": deleted})


@app.command()
def prune(
    folder: options.ModelDir,
    days: Annotated[float, typer.Argument(min=0, help="Age in days.")],
    events: EventsOption = None,
) -> None:
    """Delete events older than DAYS that the served version has learned from.

    A later refresh does not see them unless its --data has them.

    Example: transcf events prune my-model 90
    """
    report = _current_model(folder).report_
    with _open(folder, events) as store:
        from transcf.serving.model_version import EVENTS_AFTER

        older_than = time.time() - 86_400 * days
        deleted = store.delete_learned(report.get(EVENTS_AFTER, 0), older_than)
    output.print_facts("Deleted events", {"deleted": deleted})
