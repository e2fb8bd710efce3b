"""`transcf serve`, `transcf refresh` and `transcf export`: a saved model in production."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from transcf.cli import options, output
from transcf.errors import MissingExtraError, ParameterError
from transcf.interrupts import temporary_folder, unwatch

if TYPE_CHECKING:
    from collections.abc import Callable

    from transcf.retrieval.export import Exported
    from transcf.serving.refresh import Refreshed

EventsOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help="Where events are stored: a file (SQLite) or postgresql://user@host/name; by default "
        "DIR.events.db.",
    ),
]
_STORES = ("parquet", "pgvector", "lancedb", "index")


def serve(
    folder: Annotated[
        Path | None, typer.Argument(metavar="DIR", help="A saved model.", show_default=False)
    ] = None,
    items: Path | None = None,
    events: EventsOption = None,
    host: str | None = None,
    port: Annotated[int | None, typer.Option(min=0, max=65535)] = None,
    workers: Annotated[int | None, typer.Option(min=1)] = None,
    token_file: Path | None = None,
    config: Path | None = None,
    demo: bool = False,
) -> None:
    """Serve a saved model over HTTP.

    It answers requests for recommendations, sessions and events, and has a page to explore the
    model. Ctrl-C ends it.

    Options:
        items (FILE): A table of items: item_id, and title, category and other columns.
        host: Address (127.0.0.1); any but loopback needs --token-file.
        port: Port (8080).
        workers: Processes that share the port (1).
        token_file (FILE): A file with tokens that requests need.
        config (FILE): A TOML file with these and further settings, such as limits and logs;
            TRANSCF_SERVE_NAME in the environment sets NAME.
        demo: Serve a model of synthetic data with titles.

    Example: transcf serve my-model --items items.csv
    """
    if demo and folder is not None:
        raise ParameterError("Name a DIR to serve, or give --demo.")
    try:
        from transcf.serving.server import run
        from transcf.serving.settings import load_settings
    except ImportError as error:
        raise MissingExtraError("Serving a model", "serve") from error
    common: dict[str, Any] = {
        "items": items, "events": events, "host": host, "port": port, "workers": workers,
        "token_file": token_file,
    }  # fmt: skip

    def start(given: dict[str, Any]) -> None:
        settings = load_settings(common | given, config)

        def say(address: str) -> None:
            typer.echo(f"Serving {settings.model} at {address} (Ctrl-C ends it)")

        unwatch()  # the server finishes requests in progress
        run(settings, say)

    if not demo:
        start({"model": folder})
        return
    from transcf.serving.demo import demo_shop

    with temporary_folder("transcf-demo-") as place:
        typer.echo("Generating a tea shop and fitting a model to it ...")
        shop = demo_shop(place)
        start({"model": shop.model, "items": shop.items, "verb": "bought"})


def refresh(
    folder: options.ModelDir,
    events: EventsOption = None,
    data: str | None = None,
    quick: bool = False,
    force: bool = False,
    back_to: int | None = None,
    keep_days: Annotated[float | None, typer.Option(min=0)] = None,
    as_json: options.JsonFlag = False,
) -> None:
    """Retrain a saved model with the collected events.

    The new version is deployed if its validation metric is not worse. Versions are stored in
    DIR.versions; a running service loads a new version by itself.

    Options:
        data (DATA): The log that the model was fitted on, if it does not say; 'model' uses the
            training interactions in its folder.
        quick: Add the events by partial_fit, if the model can.
        force: Deploy the new version even if it is worse.
        back_to (VERSION): Deploy an earlier version; nothing is fitted.
        keep_days (DAYS): Afterwards delete older events that the served version has learned from.

    Example: transcf refresh my-model
    """
    if back_to is not None and (quick or force or data or events or keep_days is not None):
        raise ParameterError(
            "--back-to takes no other options: it only changes which version is served."
        )
    from transcf.io.model_dir import Versions

    versions = Versions.of(folder)
    try:
        from transcf.serving import refresh as refreshing
        from transcf.serving.events import EventStore, events_url
    except ImportError as error:
        raise MissingExtraError("Refreshing a model", "serve") from error
    if back_to is not None:
        refreshing.back_to(versions, back_to)
        output.print_facts(f"Version {back_to} of {folder} is served", {"served": back_to}, as_json)
        return
    store = EventStore(events_url(folder, events))
    try:
        done = refreshing.refresh(
            versions, store, data, quick=quick, force=force, keep_days=keep_days
        )
    finally:
        store.close()
    if done.skipped:
        output.note(
            f"{done.skipped:,} events were skipped: `transcf events list {folder} --invalid` says "
            "why, `transcf events delete` removes them."
        )
    output.print_facts(_title(folder, done), asdict(done), as_json)


def _title(folder: Path, done: Refreshed) -> str:
    if done.version is None:
        return f"There is no event that version {done.served} of {folder} has not learned from"
    if done.served == done.version:
        return f"Version {done.version} of {folder} is served from now on"
    if done.judged:
        return f"Version {done.version} is worse than version {done.served}, which goes on"
    return (
        f"No user could be evaluated, so version {done.served} goes on (--force serves "
        f"version {done.version})"
    )


def export(
    folder: options.ModelDir,
    to: str,
    out: str,
    as_json: options.JsonFlag = False,
) -> None:
    """Export the vectors of a saved model.

    The largest inner products are the recommended items. TransCFMixture has one vector for each
    item of a history; the output says how to merge results.

    Options:
        to: parquet, pgvector, lancedb, index.
        out (PATH|URL): Folder (parquet, lancedb), file (index), or database of pgvector:
            postgresql://user:password@host/database.

    Example: transcf export my-model --to parquet --out vectors
    """
    from transcf.retrieval import export as exports

    if to not in _STORES:
        raise ParameterError(f"--to {to} is not known: use one of {', '.join(_STORES)}.")
    if (to == "pgvector") != out.startswith(("postgresql://", "postgres://")):
        raise ParameterError(
            f"--to {to} does not go with --out {out}: pgvector needs "
            "postgresql://user:password@host/database, and the others a path."
        )
    writers: dict[str, Callable[..., Exported]] = {
        "parquet": exports.export_parquet,
        "lancedb": exports.export_lancedb,
        "index": exports.export_index,
        "pgvector": exports.export_pgvector,
    }
    done = asdict(writers[to](options.open_model(folder), out))
    output.print_facts(f"Exported {folder}", {"model": str(folder), "to": to, **done}, as_json)
