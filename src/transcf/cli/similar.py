"""`transcf similar`: what a saved model holds to be alike."""

from __future__ import annotations

from typing import Annotated

import typer

from transcf.cli._options import open_model
from transcf.cli._output import JsonFlag
from transcf.cli.recommend import Folder, Form, Length, Out, check_out, show
from transcf.errors import ParameterError


def similar(
    folder: Folder,
    item: Annotated[str | None, typer.Option(help="An item id.")] = None,
    user: Annotated[str | None, typer.Option(help="A user id.")] = None,
    k: Length = 10,
    out: Out = None,
    form: Form = None,
    as_json: JsonFlag = False,
) -> None:
    """List the items like an item, or the users like a user, by the model in DIR."""
    if (item is None) == (user is None):
        raise ParameterError("Say what to compare with: --item or --user.")
    check_out(out, form, as_json)

    model = open_model(folder)
    if item is not None:
        table = model.similar_items(model.items_.parse(item), k)
    else:
        assert user is not None, "checked"
        table = model.similar_users(model.users_.parse(user), k)
    show(f"Most similar by {model.name}", [table], out, form, as_json)
