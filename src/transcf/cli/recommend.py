"""`transcf recommend`: lists for one user, some, all, or somebody with a history."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, cast

import typer

from transcf.cli._options import ClusterAddress, Threads, Workers, open_model, parse_cluster
from transcf.cli._output import JsonFlag, print_facts, print_json, print_table
from transcf.errors import DataError, ParameterError, did_you_mean

if TYPE_CHECKING:
    import polars as pl

    from transcf.data.ids import Id, IdMap
    from transcf.data.interactions import Mask
    from transcf.distributed import Cluster
    from transcf.models.base import Recommender
    from transcf.models.item_filters import Fallback

#: DIR of the commands that ask a saved model.
Folder: TypeAlias = Annotated[
    Path,
    typer.Argument(
        metavar="DIR",
        help="A saved model; if `transcf refresh` has added versions, the current one is used.",
        show_default=False,
    ),
]
Length: TypeAlias = Annotated[int, typer.Option("-k", min=0, help="Longest list.")]
Out: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="FILE",
        help="Write the table to a file, by its ending .csv, .tsv, .jsonl (each also with .gz) or "
        ".parquet; - for the output.",
    ),
]
Form: TypeAlias = Annotated[
    str | None, typer.Option("--format", help="With --out -: csv (default), tsv or jsonl.")
]

_POLICIES = ("raise", "skip", "popular")


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
    out: Out = None,
    form: Form = None,
    with_seen: Annotated[
        bool, typer.Option("--with-seen", help="Recommend known items, too.")
    ] = False,
    exclude: Annotated[
        list[str] | None,
        typer.Option(metavar="ID", help="An item not to recommend; repeatable."),
    ] = None,
    items_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Recommend only items of this file: a table with item_id (.csv, .tsv, .jsonl or "
            ".parquet), or a text file with one item id a line.",
        ),
    ] = None,
    categories: Annotated[
        list[str] | None,
        typer.Option(
            "--category",
            metavar="NAME",
            help="Recommend only items of this category, by the column category of --items-file; "
            "repeatable.",
        ),
    ] = None,
    on_unknown: Annotated[
        str,
        typer.Option(
            help="Unknown users, and unknown items of --history: raise (stop), skip (leave them "
            "out), or popular (the most popular items; a column `source` then says where a row "
            "comes from). Unknown items of --exclude and --items-file are skipped and counted.",
        ),
    ] = "raise",
    threads: Threads = None,
    workers: Workers = None,
    cluster: ClusterAddress = None,
    as_json: JsonFlag = False,
) -> None:
    """Recommend items with the model in DIR.

    With --all and --workers, lists are made by processes of a Ray cluster, and --out is a folder
    of Parquet files; the same command goes on with those that are missing.
    """
    _check_who(user, users_file, everybody, history, out)
    spread = parse_cluster(workers, cluster)
    if spread is not None:
        from transcf.data.paths import path_of

        narrowed = exclude or items_file or categories
        if not everybody or form is not None or out == "-" or on_unknown != "raise" or narrowed:
            raise ParameterError("--workers and --cluster are for --all with --out FOLDER alone.")
        _recommend_on(spread, folder, path_of(str(out)), k, not with_seen, as_json)
        return
    check_out(out, form, as_json)
    if on_unknown not in _POLICIES:
        raise ParameterError(
            f"--on-unknown {on_unknown} is not understood: use {', '.join(_POLICIES)}."
        )
    if categories and items_file is None:
        raise ParameterError("--category needs --items-file FILE, a table of items and categories.")
    from transcf.models.item_filters import Filters
    from transcf.models.tables import recommendation_pieces

    model = open_model(folder)
    policy = cast("Fallback", on_unknown)
    allowed = None if items_file is None else _items(model.items_, items_file, categories or [])
    denied = [model.items_.parse(item) for item in exclude or []]
    if history is not None:
        items = parse_ids(model.items_, history, "--history")
        if policy == "skip":
            _say_skipped(model.items_, items, model.learned_.rankable, "item")
        table = model.recommend_for(
            items,
            k,
            exclude_seen=not with_seen,
            items=allowed,
            exclude=denied,
            on_unknown=policy,
        )
        show(f"{model.name} recommends for this history", [table], out, form, as_json)
        return
    who = None if everybody else _users(model, user, users_file)
    if policy == "skip" and who is not None:
        _say_skipped(model.users_, who, model.learned_.known.active, "user")
    filters = Filters.of(
        model.items_,
        exclude_seen=not with_seen,
        items=allowed,
        exclude=denied,
        on_unknown=policy,
    )
    pieces = recommendation_pieces(model.learned_, who, k, filters)
    show(f"{model.name} recommends", pieces, out, form, as_json)


def _recommend_on(
    spread: Cluster, folder: Path, out: Path, k: int, exclude_seen: bool, as_json: bool
) -> None:
    """Let a cluster write the lists of everybody."""
    from transcf.distributed.lists import recommend_all

    recommend_all(folder, out, k, cluster=spread, exclude_seen=exclude_seen)
    facts = {"folder": str(out), "parts": len(list(out.glob("*.parquet")))}
    if as_json:
        print_json(facts)
    else:
        print_facts(f"Wrote {out}", facts)


def _say_skipped(ids: IdMap, asked: Sequence[Id], usable: Mask, what: str) -> None:
    """Say how many ids are left out for want of training interactions, beside the output."""
    from transcf.data.ids import UNKNOWN
    from transcf.data.report import counted

    rows = ids.rows(list(dict.fromkeys(asked)))
    skipped = int(((rows == UNKNOWN) | ~usable[rows]).sum())
    if skipped:
        said = f"skipped {counted(skipped, what)} without training interactions"
        typer.echo(f"transcf: {said} (--on-unknown skip).", err=True)


def parse_ids(ids: IdMap, text: str, option: str) -> list[Id]:
    """Read ids separated by commas; each part is taken as it is.

    Raises:
        ParameterError: A part is empty.
    """
    parts = text.split(",")
    if "" in parts:
        raise ParameterError(
            f"{option} {text} has an empty id in it: write ids with one comma between them."
        )
    return [ids.parse(part) for part in parts]


def _check_who(
    user: str | None,
    users_file: Path | None,
    everybody: bool,
    history: str | None,
    out: str | None,
) -> None:
    named = [user is not None, users_file is not None, everybody, history is not None]
    if sum(named) != 1:
        raise ParameterError("Say for whom, in one way: --user, --users-file, --all or --history.")
    if everybody and out is None:
        raise ParameterError("--all needs --out FILE (or --out -): the table may be long.")


def _users(model: Recommender[Any], user: str | None, users_file: Path | None) -> list[Id]:
    if user is not None:
        return [model.users_.parse(user)]
    assert users_file is not None, "checked"
    return _read_ids(model.users_, users_file)


def _read_ids(ids: IdMap, path: Path) -> list[Id]:
    """Read a text file with one id a line; empty lines are left out."""
    try:
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    except ValueError as error:
        raise DataError(f"{path} is not a text file in UTF-8: {error}.") from error
    return [ids.parse(line) for line in lines if line]


def _items(ids: IdMap, path: Path, categories: Sequence[str]) -> list[Id]:
    """Read the items of a file; with categories, those of any of them."""
    from transcf.serving.item_metadata import is_table, read_item_metadata

    if not is_table(path):
        if categories:
            raise ParameterError(f"--category needs a table of items, and {path} is a list of ids.")
        return _read_ids(ids, path)
    facts = read_item_metadata(path)
    known = {name for fact in facts.values() for name in fact.categories}
    for name in categories:
        if name not in known:
            raise ParameterError(
                f"No item of {path} is of category {name!r}.{did_you_mean(name, known)}"
            )
    wanted = set(categories)
    return [
        ids.parse(item)
        for item, fact in facts.items()
        if not wanted or wanted.intersection(fact.categories)
    ]


def check_out(out: str | None, form: str | None, as_json: bool) -> None:
    """Check where a table should go, before anything is loaded."""
    from transcf.data.paths import path_of
    from transcf.data.writing import check_file, text_form

    if form is not None and out != "-":
        raise ParameterError("--format is for --out -: the ending of a file says what it holds.")
    if out == "-":
        if as_json:
            raise ParameterError("--json and --out - contradict each other: use --format jsonl.")
        text_form(form or "csv")
    elif out is not None:
        check_file(path_of(out))


def show(
    title: str,
    pieces: Iterable[pl.DataFrame],
    out: str | None,
    form: str | None,
    as_json: bool,
) -> None:
    """Print a table of ids, scores and ranks that comes in pieces, or write it to a file."""
    if out is None:
        tables = list(pieces)
        if as_json:
            print_json([row for table in tables for row in table.to_dicts()])
        else:
            print_lists(title, tables)
        return
    from transcf.data.paths import path_of
    from transcf.data.writing import TextWriter, write_pieces

    if out == "-":
        writer = TextWriter(sys.stdout.buffer, form or "csv")
        for piece in pieces:
            writer.write(piece)
        sys.stdout.buffer.flush()
        return
    rows = write_pieces(pieces, path_of(out))
    facts = {"file": out, "rows": rows}
    if as_json:
        print_json(facts)
    else:
        print_facts(f"Wrote {out}", facts)


def print_lists(title: str, tables: list[pl.DataFrame]) -> None:
    """Print tables of the same columns as one, ids as they are."""
    rows = [
        [str(cell) if name.endswith("_id") else cell for name, cell in row.items()]
        for table in tables
        for row in table.iter_rows(named=True)
    ]
    print_table(title, tables[0].columns, rows)
