"""`transcf recommend`, `transcf similar` and `transcf explain`: query a saved model."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from transcf.cli import options, output
from transcf.errors import DataError, ParameterError, check_word

if TYPE_CHECKING:
    import polars as pl

    from transcf.data.ids import Id, IdMap
    from transcf.data.interactions import Mask
    from transcf.tables import Table

_Length: TypeAlias = Annotated[int, typer.Option("-k", min=0, help="Length of the lists.")]
#: Values of `--out` that print a table.
_FORMATS = {"-": "csv", "csv": "csv", "tsv": "tsv", "jsonl": "jsonl"}


def recommend(
    folder: options.ModelDir,
    user: str | None = None,
    users_file: Path | None = None,
    all_users: Annotated[bool, typer.Option("--all")] = False,
    history: str | None = None,
    k: _Length = 10,
    out: str | None = None,
    with_seen: bool = False,
    exclude: list[str] | None = None,
    items_file: Path | None = None,
    on_unknown: str = "raise",
    workers: options.Workers = None,
    *,
    answer: output.Answer,
) -> None:
    """Recommend items with a saved model.

    With --all and --workers, Ray workers write a folder of Parquet files to --out; the same
    command continues an interrupted one.

    Options:
        user: One user id.
        users_file (FILE): A text file with one user id per line.
        all_users: All users; needs --out.
        history (ID,ID): Items of a user unknown to the model, in order.
        out (FILE|FORMAT): Write the table to FILE (.csv, .tsv, .jsonl, each also with .gz, or
            .parquet), or print it as csv, tsv or jsonl.
        with_seen: Recommend items of the history, too.
        exclude (ID): An item not to recommend; repeatable.
        items_file (FILE): Recommend only items of this file: a table with item_id (.csv, .tsv,
            .jsonl or .parquet), or a text file with one item id per line.
        on_unknown: Unknown users, and unknown items of --history: raise (stop), skip, or popular
            (recommend popular items; the column `source` says so). Unknown items of --exclude and
            --items-file are skipped.

    Example: transcf recommend my-model --user ann -k 5

    Example: transcf recommend my-model --all --out lists.parquet
    """
    named = [user is not None, users_file is not None, all_users, history is not None]
    if sum(named) != 1:
        raise ParameterError("Say for whom, in one way: --user, --users-file, --all or --history.")
    if all_users and out is None:
        raise ParameterError("--all needs --out FILE (or --out -): the table may be long.")
    cluster = options.parse_workers(workers)
    if cluster is not None:
        narrowed = exclude or items_file
        if not all_users or out in _FORMATS or on_unknown != "raise" or narrowed:
            raise ParameterError("--workers is for --all with --out FOLDER alone.")
        from transcf.data.files import path_of
        from transcf.distributed.lists import recommend_all

        target = path_of(str(out))
        output.check_folder(target)
        recommend_all(folder, target, k, cluster=cluster, exclude_seen=not with_seen)
        facts = {"folder": str(target), "parts": len(list(target.glob("*.parquet")))}
        answer.show_facts(f"Wrote {target}", facts)
        return
    if out in _FORMATS and answer.as_json:
        raise ParameterError(f"--json and --out {out} contradict each other: use --out jsonl.")
    check_word("--on-unknown", on_unknown, ("raise", "skip", "popular"))
    from transcf.models.tables import Filters, recommendation_pieces

    model = options.open_model(folder)
    filters: dict[str, Any] = {
        "exclude_seen": not with_seen,
        "items": None if items_file is None else _items(model.items_, items_file),
        "exclude": [model.items_.parse(item) for item in exclude or []],
        "on_unknown": on_unknown,
    }
    if history is not None:
        items = _parse_ids(model.items_, history, "--history")
        if on_unknown == "skip":
            _note_skipped(model.items_, items, model.learned_.rankable, "item")
        table = model.recommend_for(items, k, **filters)
        _show(f"{model.name} recommends for this history", [table], out, answer)
        return
    who: list[Id] | None = None
    if users_file is not None:
        who = _read_ids(model.users_, users_file)
    elif user is not None:
        who = [model.users_.parse(user)]
    if on_unknown == "skip" and who is not None:
        _note_skipped(model.users_, who, model.learned_.known.active, "user")
    made = Filters.of(model.items_, **filters)
    pieces = recommendation_pieces(model.learned_, who, k, made)
    _show(f"{model.name} recommends", pieces, out, answer)


def similar(
    folder: options.ModelDir,
    item: str | None = None,
    user: str | None = None,
    k: _Length = 10,
    *,
    answer: output.Answer,
) -> None:
    """List items similar to an item, or users similar to a user.

    Options:
        item: An item id.
        user: A user id.

    Example: transcf similar my-model --item tea-42
    """
    if (item is None) == (user is None):
        raise ParameterError("Say what to compare with: --item or --user.")
    model = options.open_model(folder)
    if item is not None:
        table = model.similar_items(model.items_.parse(item), k)
    else:
        table = model.similar_users(model.users_.parse(str(user)), k)
    _show(f"Most similar by {model.name}", [table], None, answer)


def explain(
    folder: options.ModelDir,
    item: str,
    user: str | None = None,
    history: str | None = None,
    top: options.Count = 5,
    *,
    answer: output.Answer,
) -> None:
    """Explain a recommendation by the user's past items.

    Options:
        item: An item id.
        user: A user id.
        history (ID,ID): Items of a user unknown to the model, in order.
        top: Past items with a positive effect, and half as many negative.

    Example: transcf explain my-model --user ann --item tea-42
    """
    if (user is None) == (history is None):
        raise ParameterError("Say for whom: --user or --history.")
    model = options.open_model(folder)
    target = model.items_.parse(item)
    if history is None:
        who = model.users_.parse(str(user))
        found = model.explain(who, target, top, include_seen=True)
    else:
        listed = _parse_ids(model.items_, history, "--history")
        found = model.explain_for(listed, target, top, include_seen=True)
    title, columns = f"{found.title}\n{found.sentence}", ("past item", "share", "effect")
    notes = (found.reading, *found.notes)
    answer.show(found.to_dict(), output.values_table(title, columns, found.rows, notes))


def _note_skipped(ids: IdMap, asked: Sequence[Id], usable: Mask, what: str) -> None:
    from transcf.data.ids import UNKNOWN
    from transcf.data.report import counted

    rows = ids.rows(list(dict.fromkeys(asked)))
    skipped = int(((rows == UNKNOWN) | ~usable[rows]).sum())
    if skipped:
        what = counted(skipped, what)
        output.note(f"skipped {what} without training interactions (--on-unknown skip).")


def _parse_ids(ids: IdMap, text: str, option: str) -> list[Id]:
    """Read ids separated by commas; each part is taken as it is."""
    parts = text.split(",")
    if "" in parts:
        raise ParameterError(
            f"{option} {text} has an empty id in it: write ids with one comma between them."
        )
    return [ids.parse(part) for part in parts]


def _read_ids(ids: IdMap, path: Path) -> list[Id]:
    """Read a text file with one id per line; empty lines are skipped."""
    try:
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    except ValueError as error:
        raise DataError(f"{path} is not a text file in UTF-8: {error}.") from error
    return [ids.parse(line) for line in lines if line]


def _items(ids: IdMap, path: Path) -> list[Id]:
    """Read the item ids of a table, or of a text file with one per line."""
    from transcf.serving.items import is_table, read_item_metadata

    if is_table(path):
        return [ids.parse(item) for item in read_item_metadata(path)]
    return _read_ids(ids, path)


def _show(
    title: str, pieces: Iterable[pl.DataFrame], out: str | None, answer: output.Answer
) -> None:
    """Print a table of ids, scores and ranks that comes in pieces, or write it to a file."""
    if out is None:
        tables = list(pieces)
        answer.show(
            [row for table in tables for row in table.to_dicts()], lists_table(title, tables)
        )
        return
    from transcf.data.files import path_of
    from transcf.data.writing import encode, write_pieces

    if out in _FORMATS:
        sys.stdout.buffer.writelines(encode(pieces, _FORMATS[out]))
        sys.stdout.buffer.flush()
        return
    rows = write_pieces(pieces, path_of(out))
    answer.show_facts(f"Wrote {out}", {"file": out, "rows": rows})


def lists_table(title: str, tables: list[pl.DataFrame]) -> Table:
    """Return tables of the same columns as one; ids are not formatted."""
    rows = [
        [str(cell) if name.endswith("_id") else cell for name, cell in row.items()]
        for table in tables
        for row in table.iter_rows(named=True)
    ]
    return output.values_table(title, tables[0].columns, rows)
