"""`transcf recommend`: lists for one user, some, all, or somebody with a history."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from transcf.cli._options import Threads
from transcf.cli._output import JsonFlag, print_facts, print_json, print_table
from transcf.errors import DataError, ParameterError

if TYPE_CHECKING:
    import polars as pl

    from transcf.answers.filters import OnUnknown
    from transcf.data.ids import Id
    from transcf.models.recommender import Recommender

#: DIR of the commands that ask a saved model.
Folder: TypeAlias = Annotated[
    Path, typer.Argument(metavar="DIR", help="A saved model.", show_default=False)
]
Length: TypeAlias = Annotated[int, typer.Option("-k", min=0, help="Longest list.")]


def recommend(
    folder: Folder,
    user: Annotated[str | None, typer.Option(help="One user id.")] = None,
    users_file: Annotated[
        Path | None, typer.Option(help="A text file with one user id a line.")
    ] = None,
    everybody: Annotated[bool, typer.Option("--all", help="Every user; needs --out.")] = False,
    history: Annotated[
        str | None,
        typer.Option(metavar="ID,ID", help="Items of somebody the model does not know, in order."),
    ] = None,
    k: Length = 10,
    out: Annotated[Path | None, typer.Option(help="Parquet file to write instead.")] = None,
    with_seen: Annotated[
        bool, typer.Option("--with-seen", help="Recommend known items, too.")
    ] = False,
    skip_unknown: Annotated[
        bool, typer.Option("--skip-unknown", help="Leave unknown ids out instead of stopping.")
    ] = False,
    threads: Threads = None,
    as_json: JsonFlag = False,
) -> None:
    """Recommend items with the model in DIR."""
    _check_who(user, users_file, everybody, history, out)
    from transcf.models.registry import load

    model = load(folder)
    policy: OnUnknown = "skip" if skip_unknown else "raise"
    if history is not None:
        listed = parse_ids(model, history)
        table = model.recommend_for(listed, k, exclude_seen=not with_seen, on_unknown=policy)
        show(f"{model.name} recommends for this history", table, as_json)
        return
    who = None if everybody else _users(model, user, users_file)
    if out is None:
        table = model.recommend(who, k, exclude_seen=not with_seen, on_unknown=policy)
        show(f"{model.name} recommends", table, as_json)
        return
    model.recommend_all(out, k, users=who, exclude_seen=not with_seen, on_unknown=policy)
    _show_file(out, as_json)


def parse_ids(model: Recommender[Any], text: str) -> list[Id]:
    """Read item ids separated by commas."""
    return [model.items_.parse(word.strip()) for word in text.split(",") if word.strip()]


def _check_who(
    user: str | None,
    users_file: Path | None,
    everybody: bool,
    history: str | None,
    out: Path | None,
) -> None:
    named = [user is not None, users_file is not None, everybody, history is not None]
    if sum(named) != 1:
        raise ParameterError("Say for whom, in one way: --user, --users-file, --all or --history.")
    if everybody and out is None:
        raise ParameterError("--all needs --out FILE: the table may be long.")
    if history is not None and out is not None:
        raise ParameterError("--out is not for --history: use --json.")


def _users(model: Recommender[Any], user: str | None, users_file: Path | None) -> list[Id]:
    if user is not None:
        return [model.users_.parse(user)]
    assert users_file is not None, "checked"
    try:
        lines = users_file.read_text(encoding="utf-8").splitlines()
    except ValueError as error:
        raise DataError(f"{users_file} is not a text file in UTF-8: {error}.") from error
    return [model.users_.parse(line.strip()) for line in lines if line.strip()]


def show(title: str, table: pl.DataFrame, as_json: bool) -> None:
    """Print a table of ids, scores and ranks."""
    if as_json:
        print_json(table.to_dicts())
        return
    rows = [
        [str(cell) if name.endswith("_id") else cell for name, cell in row.items()]
        for row in table.iter_rows(named=True)
    ]
    print_table(title, table.columns, rows)


def _show_file(path: Path, as_json: bool) -> None:
    import polars as pl

    facts = {"file": str(path), "rows": pl.scan_parquet(path).select(pl.len()).collect().item()}
    if as_json:
        print_json(facts)
    else:
        print_facts(f"Wrote {path}", facts)
