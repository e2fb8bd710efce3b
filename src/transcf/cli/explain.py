"""`transcf explain`: which past items drew another one, by a saved model."""

from __future__ import annotations

from typing import Annotated

import typer

from transcf.cli._options import open_model
from transcf.cli._output import JsonFlag, print_json, print_table
from transcf.cli.recommend import Folder, parse_ids
from transcf.errors import ParameterError


def explain(
    folder: Folder,
    item: Annotated[str, typer.Option(help="An item id.")],
    user: Annotated[str | None, typer.Option(help="A user id.")] = None,
    history: Annotated[
        str | None,
        typer.Option(metavar="ID,ID", help="Items of somebody the model does not know, in order."),
    ] = None,
    top: Annotated[
        int,
        typer.Option(
            min=1, help="Past items to show that drew it, and half as many that pushed it away."
        ),
    ] = 5,
    with_seen: Annotated[
        bool, typer.Option("--with-seen", help="Explain an item that is in the history, too.")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Say which items of a user (or of a history) drew another one, by the model in DIR."""
    if (user is None) == (history is None):
        raise ParameterError("Say for whom: --user or --history.")

    model = open_model(folder)
    target = model.items_.parse(item)
    if user is not None:
        who = model.users_.parse(user)
        found = model.explain(who, target, top, include_seen=with_seen)
    else:
        assert history is not None, "checked"
        listed = parse_ids(model.items_, history, "--history")
        found = model.explain_for(listed, target, top, include_seen=with_seen)
    if as_json:
        print_json(found.to_dict())
        return
    print_table(
        f"{found.title}\n{found.sentence}",
        ("past item", "share", "effect"),
        found.rows,
        notes=(found.reading, *found.notes),
    )
