"""`transcf explain`: why a saved model recommends something."""

from __future__ import annotations

from typing import Annotated

import typer

from transcf.cli._output import JsonFlag, print_json
from transcf.cli.recommend import Folder, parse_ids
from transcf.errors import ParameterError, UnsupportedError


def explain(
    folder: Folder,
    item: Annotated[str, typer.Option(help="An item id.")],
    user: Annotated[str | None, typer.Option(help="A user id.")] = None,
    history: Annotated[
        str | None,
        typer.Option(metavar="ID,ID", help="Items of somebody the model does not know, in order."),
    ] = None,
    top: Annotated[int, typer.Option(min=1, help="Past items and other users to show.")] = 5,
    as_json: JsonFlag = False,
) -> None:
    """Explain the score of an item for a user, by the TransCF model in DIR."""
    if (user is None) == (history is None):
        raise ParameterError("Say for whom: --user or --history.")
    from transcf.models.registry import load
    from transcf.models.transcf import TransCF

    model = load(folder)
    if not isinstance(model, TransCF):
        raise UnsupportedError(
            f"{folder} holds a {type(model).__name__}, which cannot explain scores: use TransCF."
        )
    target = model.items_.parse(item)
    if user is not None:
        found = model.explain(model.users_.parse(user), target, top)
    else:
        assert history is not None, "checked"
        found = model.explain_for(parse_ids(model, history), target, top)
    if as_json:
        print_json(found.to_dict())
    else:
        typer.echo(str(found))
