"""`transcf refresh`: the next version of a served model, from the events that came in."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from transcf.cli._options import Threads
from transcf.cli._output import JsonFlag, print_facts, print_json
from transcf.cli.serve import Events
from transcf.errors import MissingExtraError, ParameterError

if TYPE_CHECKING:
    from transcf.serving.refresh import Refreshed


def refresh(
    folder: Annotated[
        Path, typer.Argument(metavar="MODEL", help="A saved model.", show_default=False)
    ],
    events: Events = None,
    data: Annotated[
        str | None,
        typer.Option(
            metavar="DATA",
            help="The log that MODEL was fitted on, where it does not say; 'model' goes by the "
            "training interactions in its folder.",
        ),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Add the events by partial_fit; for models that can.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Serve the new version even if it is worse.")
    ] = False,
    back_to: Annotated[
        int | None,
        typer.Option(metavar="VERSION", help="Serve an earlier version again; nothing is fitted."),
    ] = None,
    threads: Threads = None,
    as_json: JsonFlag = False,
) -> None:
    """Fit MODEL again with the events that came in, and serve it if it is not worse.

    The new version lies beside the old ones in MODEL.versions; a running service picks it up by
    itself.
    """
    if back_to is not None and (quick or force or data or events):
        raise ParameterError("--back-to goes alone: it changes which version is served, no more.")
    from transcf.serving.versions import Versions

    versions = Versions(folder.absolute())
    versions.check()
    try:
        from transcf.serving import refresh as refreshing
        from transcf.serving.events import EventStore, events_url
    except ImportError as error:
        raise MissingExtraError("Refreshing a model", "serve") from error
    if back_to is not None:
        refreshing.back_to(versions, back_to)
        _show(f"Version {back_to} of {folder} is served", {"served": back_to}, as_json)
        return
    store = EventStore(events_url(folder, events))
    try:
        done = refreshing.refresh(versions, store, data, quick=quick, force=force)
    finally:
        store.close()
    _show(_title(folder, done), asdict(done), as_json)


def _title(folder: Path, done: Refreshed) -> str:
    """Say in a line what was done."""
    if done.version is None:
        return f"There is no event that version {done.served} of {folder} has not learned from"
    if done.served == done.version:
        return f"Version {done.version} of {folder} is served from now on"
    if done.judged:
        return f"Version {done.version} is worse than version {done.served}, which goes on"
    return (
        f"Nobody could be judged, so version {done.served} goes on (--force serves "
        f"version {done.version})"
    )


def _show(title: str, facts: dict[str, object], as_json: bool) -> None:
    if as_json:
        print_json(facts)
    else:
        print_facts(title, facts)
