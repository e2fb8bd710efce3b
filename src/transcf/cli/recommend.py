"""`transcf recommend`: lists for one user, some, all, or somebody with a history."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, cast

import typer

from transcf.cli._options import ClusterAddress, Threads, Workers, parse_cluster
from transcf.cli._output import JsonFlag, print_facts, print_json, print_table
from transcf.errors import DataError, ParameterError

if TYPE_CHECKING:
    import polars as pl

    from transcf.answers.filters import Fallback
    from transcf.cluster import Cluster
    from transcf.data.ids import Id, IdMap
    from transcf.data.interactions import Mask
    from transcf.models.recommender import Recommender

#: DIR of the commands that ask a saved model.
Folder: TypeAlias = Annotated[
    Path, typer.Argument(metavar="DIR", help="A saved model.", show_default=False)
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
    on_unknown: Annotated[
        str,
        typer.Option(
            help="Unknown ids: raise (stop), skip (leave them out), or popular (the most popular "
            "items; a column `source` then says where a row comes from).",
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
        if not everybody or form is not None or out == "-" or on_unknown != "raise":
            raise ParameterError("--workers and --cluster are for --all with --out FOLDER alone.")
        _recommend_on(spread, folder, Path(str(out)).expanduser(), k, not with_seen, as_json)
        return
    check_out(out, form, as_json)
    if on_unknown not in _POLICIES:
        raise ParameterError(
            f"--on-unknown {on_unknown} is not understood: use {', '.join(_POLICIES)}."
        )
    from transcf.answers.filters import Filters
    from transcf.answers.streams import recommendation_pieces
    from transcf.models.registry import load

    model = load(folder)
    policy = cast("Fallback", on_unknown)
    if history is not None:
        items = parse_ids(model, history)
        if policy == "skip":
            _say_skipped(model.items_, items, model.learned_.rankable, "item")
        table = model.recommend_for(items, k, exclude_seen=not with_seen, on_unknown=policy)
        show(f"{model.name} recommends for this history", [table], out, form, as_json)
        return
    who = None if everybody else _users(model, user, users_file)
    if policy == "skip" and who is not None:
        _say_skipped(model.users_, who, model.learned_.known.active, "user")
    filters = Filters(exclude_seen=not with_seen, on_unknown=policy)
    pieces = recommendation_pieces(model.learned_, who, k, filters)
    show(f"{model.name} recommends", pieces, out, form, as_json)


def _recommend_on(
    spread: Cluster, folder: Path, out: Path, k: int, exclude_seen: bool, as_json: bool
) -> None:
    """Let a cluster write the lists of everybody."""
    from transcf.cluster.scoring import recommend_all

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


def parse_ids(model: Recommender[Any], text: str) -> list[Id]:
    """Read item ids separated by commas."""
    return [model.items_.parse(word.strip()) for word in text.split(",") if word.strip()]


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
    try:
        lines = users_file.read_text(encoding="utf-8").splitlines()
    except ValueError as error:
        raise DataError(f"{users_file} is not a text file in UTF-8: {error}.") from error
    return [model.users_.parse(line.strip()) for line in lines if line.strip()]


def check_out(out: str | None, form: str | None, as_json: bool) -> None:
    """Check where a table should go, before anything is loaded."""
    from transcf.data.writing import check_file, text_form

    if form is not None and out != "-":
        raise ParameterError("--format is for --out -: the ending of a file says what it holds.")
    if out == "-":
        if as_json:
            raise ParameterError("--json and --out - contradict each other: use --format jsonl.")
        text_form(form or "csv")
    elif out is not None:
        check_file(Path(out).expanduser())


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
    from transcf.data.writing import text_writer, write_pieces

    if out == "-":
        writer = text_writer(sys.stdout.buffer, form or "csv")
        for piece in pieces:
            writer.write(piece)
        sys.stdout.buffer.flush()
        return
    rows = write_pieces(pieces, Path(out).expanduser())
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
