"""`transcf export`: hand a saved model's vectors to another store."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from transcf.cli._options import open_model
from transcf.cli._output import JsonFlag, print_facts, print_json
from transcf.errors import ParameterError

if TYPE_CHECKING:
    from transcf.models.base import Recommender
    from transcf.retrieval.export import Exported

_STORES = ("parquet", "pgvector", "lancedb", "index")


def export(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="A saved model.", show_default=False)
    ],
    to: Annotated[str, typer.Option(help=f"Where to: {', '.join(_STORES)}.")],
    out: Annotated[
        str | None,
        typer.Option(
            metavar="PATH",
            help="Folder (parquet, lancedb) or file (index); for pgvector, what the names of the "
            "tables begin with (transcf unless given).",
        ),
    ] = None,
    url: Annotated[
        str | None,
        typer.Option(help="Database for pgvector: postgresql://user:password@host/database."),
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Export the vectors of a model, such that the largest inner products are the best items.

    A mixture (TransCFMixture) has a vector for each item of a history: the output says how what
    they find is merged.
    """
    _check(to, out, url)

    done = _run(open_model(folder), to, out, url).to_dict()
    facts = {"model": str(folder), "to": to, **done}
    if as_json:
        print_json(facts)
    else:
        print_facts(f"Exported {folder}", facts)


def _check(to: str, out: str | None, url: str | None) -> None:
    if to not in _STORES:
        raise ParameterError(f"--to {to} is not known: use one of {', '.join(_STORES)}.")
    if to == "pgvector" and url is None:
        raise ParameterError("--to pgvector needs --url postgresql://user:password@host/database.")
    if to != "pgvector" and url is not None:
        raise ParameterError(f"--url is for --to pgvector: leave it out with --to {to}.")
    if to != "pgvector" and out is None:
        raise ParameterError(f"--to {to} needs --out PATH.")


def _run(model: Recommender[Any], to: str, out: str | None, url: str | None) -> Exported:
    from transcf.retrieval import export as exports

    if to == "pgvector":
        assert url is not None, "checked"
        return exports.export_pgvector(model, url, tables=out or "transcf")
    assert out is not None, "checked"
    write = {
        "parquet": exports.export_parquet,
        "lancedb": exports.export_lancedb,
        "index": exports.export_index,
    }[to]
    return write(model, out)
