"""`transcf serve`: a saved model on a port."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from transcf.errors import MissingExtraError, ParameterError
from transcf.interrupts import temporary_folder, unwatch

Events: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help="Where events are kept: a file (SQLite) or postgresql://user@host/name; "
        "MODEL.events.db unless given.",
    ),
]
_Host: TypeAlias = Annotated[
    str, typer.Option(help="Address; any but loopback needs --token-file.")
]
_Port: TypeAlias = Annotated[int, typer.Option(min=0, max=65535, help="Port.")]


def serve(
    folder: Annotated[
        Path | None,
        typer.Argument(metavar="MODEL", help="A saved model.", show_default=False),
    ] = None,
    items: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="A table of items: item_id, and title, category and whatever else there is.",
        ),
    ] = None,
    events: Events = None,
    host: _Host = "127.0.0.1",
    port: _Port = 8080,
    workers: Annotated[int, typer.Option(min=1, help="Processes that share the port.")] = 1,
    token_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A file with a token that requests need.")
    ] = None,
    demo: Annotated[
        bool, typer.Option("--demo", help="Serve a model of made-up data with made-up titles.")
    ] = False,
) -> None:
    """Serve MODEL: recommendations, sessions, events and a page to look around; Ctrl-C ends it."""
    if demo == (folder is not None):
        raise ParameterError("Name a MODEL to serve, or give --demo.")
    try:
        from transcf.serving.app import plotly_script, run
        from transcf.serving.service import ServiceSettings
    except ImportError as error:
        raise MissingExtraError("Serving a model", "serve") from error
    plotly_script()  # raises now instead of at the first request for the page
    name = f"[{host}]" if ":" in host else host

    def start(settings: ServiceSettings) -> None:
        words = f"Serving {settings.model} at http://{name}:{port}/ (Ctrl-C ends it)"
        unwatch()  # the server finishes requests in progress
        run(settings, host, port, workers, lambda: typer.echo(words))

    if folder is not None:
        start(ServiceSettings(folder, events, items, token_file))
        return
    from transcf.serving.demo import demo_shop

    with temporary_folder("transcf-demo-") as place:
        typer.echo("Making up a tea shop and fitting a model to it ...")
        shop = demo_shop(place)
        start(ServiceSettings(shop.model, events, shop.items, token_file))
