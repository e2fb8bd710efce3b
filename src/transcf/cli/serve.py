"""`transcf serve`, `refresh`, `events` and `export`: a saved model in production."""

from __future__ import annotations

import time
from contextlib import ExitStack, closing
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

import transcf
from transcf.cli import options, output
from transcf.errors import ParameterError, check_word, needs_extra
from transcf.interrupts import temporary_folder, unwatch

if TYPE_CHECKING:
    from transcf.serving.events import EventStore

_Events: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help="Where events are stored: a file (SQLite) or postgresql://user@host/name; by default "
        "DIR.events.db.",
    ),
]
_STORES = ("parquet", "pgvector", "lancedb", "index")


def serve(
    folder: options.Argument[Path | None] = None,
    items: Path | None = None,
    events: _Events = None,
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
        folder (DIR): A saved model.
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
    with needs_extra("Serving a model", "serve"):
        from transcf.serving.server import run
        from transcf.serving.settings import load_settings
    given: dict[str, Any] = {
        "model": folder, "items": items, "events": events, "host": host, "port": port,
        "workers": workers, "token_file": token_file,
    }  # fmt: skip
    with ExitStack() as stack:
        if demo:
            place = stack.enter_context(temporary_folder("transcf-demo-"))
            typer.echo("Generating a tea shop and fitting a model to it ...")
            model, table = _demo_shop(place)
            given |= {"model": model, "items": table, "verb": "bought"}
        settings = load_settings(given, config)
        unwatch()  # the server finishes requests in progress
        start = f"Serving {settings.model} at"
        run(settings, lambda address: typer.echo(f"{start} {address} (Ctrl-C ends it)"))


def _demo_shop(folder: Path) -> tuple[Path, Path]:
    """Generate a shop in a folder, and fit a model to it; return the model and table of items."""
    from transcf.data.splitters import split_log, usual_protocol
    from transcf.data.synthetic import item_table, synthesize
    from transcf.evaluation import Validation
    from transcf.experiments.run import fit_for_use
    from transcf.models.registry import create

    # As in real logs: items appear and fade, and an event depends on the one before.
    log = synthesize(1000, 500, 20_000, drift=4.0, sequences=0.5, seed=0)
    assert log.categories is not None, "synthetic data has categories"
    items, events = folder / "items.csv", folder / "events.csv"
    item_table(log.categories).write_csv(items)
    log.to_frame().write_csv(events)
    split, model = split_log(log), create("transcf-mixture")
    done = fit_for_use(model, log, split, Validation.of(split, usual_protocol(split)))
    model.report_ |= {"fitted_on": done, "held_out": False, "dataset": str(events.absolute())}
    return model.save(folder / "tea-shop"), items


def refresh(
    folder: options.ModelDir,
    events: _Events = None,
    data: str | None = None,
    quick: bool = False,
    force: bool = False,
    back_to: int | None = None,
    keep_days: Annotated[float | None, typer.Option(min=0)] = None,
    *,
    answer: output.Answer,
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
    with needs_extra("Refreshing a model", "serve"):
        from transcf.serving import refresh as refreshing
        from transcf.serving.events import EventStore, events_url
    if back_to is not None:
        refreshing.back_to(versions, back_to)
        answer.show_facts(f"Version {back_to} of {folder} is served", {"served": back_to})
        return
    with closing(EventStore(events_url(folder, events))) as store:
        done = refreshing.refresh(
            versions, store, data, quick=quick, force=force, keep_days=keep_days
        )
    if done.skipped:
        output.note(
            f"{done.skipped:,} events were skipped: `transcf events list {folder} --invalid` says "
            "why, `transcf events delete` removes them."
        )
    answer.show_facts(done.title(folder), asdict(done))


def export(folder: options.ModelDir, to: str, out: str, answer: output.Answer) -> None:
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

    check_word("--to", to, _STORES)
    if (to == "pgvector") != out.startswith(("postgresql://", "postgres://")):
        raise ParameterError(
            f"--to {to} does not go with --out {out}: pgvector needs "
            "postgresql://user:password@host/database, and the others a path."
        )
    done = asdict(getattr(exports, f"export_{to}")(options.open_model(folder), out))
    answer.show_facts(f"Exported {folder}", {"model": str(folder), "to": to, **done})


events = options.CommandGroup(help="List and delete the events that a service has stored.")


def _stored_events(folder: Path, url: str | None) -> EventStore:
    """Open the events of a model; none are created."""
    with needs_extra("Reading events", "serve"):
        from transcf.serving.events import EventStore, events_url
    name = events_url(folder, url)
    if "://" not in name and not Path(name).is_file():
        raise ParameterError(f"There is no file {name} with events: name it with --events.")
    return EventStore(name)


@events.command("list")
def list_events(
    folder: options.ModelDir,
    events: _Events = None,
    invalid: bool = False,
    last: options.Count = 50,
    *,
    answer: output.Answer,
) -> None:
    """List stored events, oldest first, with what is wrong with them.

    Options:
        invalid: Only events that no model can learn from.
        last (N): Only the newest N.

    Example: transcf events list my-model --invalid
    """
    with closing(_stored_events(folder, events)) as store:
        from transcf.serving.events import invalid_reason

        stored, now = store.after(0), time.time()
    known = transcf.load(folder, mapped=True).learned_.known
    columns = ("number", "user", "item", "time", "rating", "key")
    rows = [
        {name: getattr(event, name) for name in columns}
        | {"invalid": invalid_reason(event, known.users, known.items, now)}
        for event in stored
    ]
    rows = [row for row in rows if row["invalid"] or not invalid]
    shown = rows[-last:]
    title = f"{len(shown):,} of {len(rows):,} events"
    cells = [[None if cell is None else str(cell) for cell in row.values()] for row in shown]
    answer.show(shown, output.values_table(title, (*columns, "invalid"), cells))


@events.command()
def delete(
    folder: options.ModelDir,
    numbers: Annotated[list[int], typer.Argument(metavar="NUMBER...", help="Event numbers.")],
    events: _Events = None,
    *,
    answer: output.Answer,
) -> None:
    """Delete events by number. A running service forgets them.

    Example: transcf events delete my-model 17 18
    """
    with closing(_stored_events(folder, events)) as store:
        there = {event.number for event in store.after(0)}
        missing = [number for number in numbers if number not in there]
        if missing:
            raise ParameterError(f"There is no event {missing[0]}: nothing was deleted.")
        deleted = store.delete(numbers)
    answer.show_facts("Deleted events", {"deleted": deleted})


@events.command()
def prune(
    folder: options.ModelDir,
    days: Annotated[float, typer.Argument(min=0, help="Age in days.")],
    events: _Events = None,
    *,
    answer: output.Answer,
) -> None:
    """Delete events older than DAYS that the served version has learned from.

    A later refresh does not see them unless its --data has them.

    Example: transcf events prune my-model 90
    """
    report = transcf.load(folder, mapped=True).report_
    with closing(_stored_events(folder, events)) as store:
        from transcf.serving.model_version import EVENTS_AFTER

        older_than = time.time() - 86_400 * days
        deleted = store.delete_learned(report.get(EVENTS_AFTER, 0), older_than)
    answer.show_facts("Deleted events", {"deleted": deleted})
