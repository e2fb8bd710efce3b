"""Published splits: the authors' prepared folders with candidates, and public parts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl

from transcf.data.csr import offsets
from transcf.data.datasets import parsers
from transcf.data.ids import UNKNOWN
from transcf.data.interactions import Interactions, Mask
from transcf.data.split import Candidates, Recipe, Split
from transcf.data.validate import check_seed
from transcf.errors import DataError

#: Datasets with public parts, and names of their folders.
PUBLIC = ("gowalla", "yelp2018")
#: Share of its training events that are held out for validation.
_VALIDATION = 0.1
_PARTS = {"train": "LOOTrain.dat", "validation": "LOOVal.dat", "test": "LOOTest.dat"}
_RECIPE: Recipe = {"rule": "authors' files", "how": "as the authors published it"}
_PAIR = r"^(?<user>\w+)\t(?<item>\w+)$"


def is_prepared(folder: Path) -> bool:
    """Return whether a folder holds the authors' three parts."""
    return all(parsers.find_file(folder, name) is not None for name in _PARTS.values())


def read_prepared(folder: Path) -> Interactions:
    """Read all pairs of a prepared folder, with the authors' numbers as ids.

    Where the folder has Ciao's `rating.mat`, its ratings and categories are added.
    """
    whole = parsers.find_file(folder, "ratings.dat")
    names = _PARTS.values() if whole is None else ("ratings.dat",)
    pairs = pl.concat([_read_pairs(parsers.require_file(folder, name)) for name in names])
    details = parsers.find_file(folder, "rating.mat")
    if details is None:
        return parsers.table_log(pairs)
    return _with_details(pairs, parsers.ciao_table(details, folder), details)


def read_prepared_split(folder: Path) -> Split:
    """Read the authors' split; their candidates may repeat an item and name held-out ones."""
    if not is_prepared(folder):
        raise DataError(f"{folder} is not prepared: {', '.join(_PARTS.values())} are needed.")
    log = read_prepared(folder)
    masks = {
        name: _events_of(log, _read_pairs(parsers.require_file(folder, file)), file)
        for name, file in _PARTS.items()
    }
    used = np.sum(list(masks.values()), axis=0)
    if (used > 1).any():
        raise DataError(f"{folder}: its three parts share pairs.")
    report = log.report.then(
        "authors' split",
        **{name: int(mask.sum()) for name, mask in masks.items()},
        in_no_part=int((used == 0).sum()),
    )
    candidates, unknown = _read_candidates(folder, log)
    if candidates is not None:
        report = report.then(
            "authors' candidates", candidates=len(candidates.items), unknown_left_out=unknown
        )
    parts = {name: log.select(mask) for name, mask in masks.items()}
    return Split(**parts, candidates=candidates, recipe=_RECIPE, report=report)


def _read_pairs(path: Path) -> pl.DataFrame:
    """Read tab-separated pairs under a header, with integer ids."""
    pairs = parsers.parse_lines(path, _PAIR)[1:]
    try:
        return pairs.cast(pl.Int64)
    except pl.exceptions.PolarsError as problem:
        raise DataError(f"{path}: the authors' ids are integers, these are not.") from problem


def _with_details(pairs: pl.DataFrame, raw: pl.DataFrame, path: Path) -> Interactions:
    """Join ratings and categories by the authors' numbers.

    They dropped repeats, filtered in one pass and numbered what was left by first appearance;
    the same steps must give the very same pairs.
    """
    first = raw.unique(["user", "item"], keep="first", maintain_order=True)
    for column, least in (("user", 5), ("item", 5), ("user", 3)):
        first = first.filter(pl.len().over(column) >= least)
    numbers = {
        column: first.select(pl.col(column).unique(maintain_order=True))
        .with_row_index("number")
        .with_columns(pl.col("number").cast(pl.Int64))
        for column in ("user", "item")
    }
    # Items first: their categories do not depend on which users were kept.
    raw = _renumber(raw, "item", numbers["item"])
    categories = raw.select(item_id="item", category="category")
    known = pairs.join(
        _renumber(raw, "user", numbers["user"]),
        on=["user", "item"],
        how="left",
        maintain_order="left",
    )
    if known["rating"].null_count():
        raise DataError(
            f"{path} does not belong to the pairs in its folder: "
            f"{known['rating'].null_count():,} of {len(known):,} have no rating."
        )
    log = parsers.table_log(known.select("user", "item", "rating"))
    return parsers.with_categories(log, categories)


def _renumber(table: pl.DataFrame, column: str, numbers: pl.DataFrame) -> pl.DataFrame:
    """Replace ids by numbers; rows without a number are dropped."""
    joined = table.join(numbers, on=column, maintain_order="left")
    return joined.drop(column).rename({"number": column})


def _events_of(log: Interactions, pairs: pl.DataFrame, file: str) -> Mask:
    """(n,) which events of the log are among the pairs; all of the pairs must be."""
    users, items = log.users.rows(pairs["user"]), log.items.rows(pairs["item"])
    wanted = users.astype(np.int64) * log.n_items + items
    present = log.user_rows.astype(np.int64) * log.n_items + log.item_rows
    places = np.minimum(np.searchsorted(present, wanted), len(present) - 1)
    if ((users == UNKNOWN) | (items == UNKNOWN) | (present[places] != wanted)).any():
        raise DataError(f"{file} holds pairs that ratings.dat in its folder does not.")
    mask = np.zeros(len(log), dtype=bool)
    mask[places] = True
    return mask


def _read_candidates(folder: Path, log: Interactions) -> tuple[Candidates | None, int]:
    """Read `uid, item, item, ...` lines; also return the number of entries with unknown ids."""
    path = parsers.find_file(folder, "LOONegatives.dat")
    if path is None:
        return None, 0
    with parsers.as_published(path):
        fields = parsers.read_lines(path).str.split("\t").list.eval(pl.element().cast(pl.Int64))
    table = pl.DataFrame({"user": fields.list.first(), "item": fields.list.slice(1)})
    table = table.explode("item")
    users, items = log.users.rows_of_column(table["user"]), log.items.rows_of_column(table["item"])
    known = (users != UNKNOWN) & (items != UNKNOWN)
    users, items = users[known], items[known]
    order = np.argsort(users, kind="stable")
    indptr = offsets(np.bincount(users, minlength=log.n_users))
    return Candidates(indptr, items[order], path.name), int((~known).sum())


def is_public_split(folder: Path) -> bool:
    """Return whether a folder, which has to be called as its dataset, holds the public parts."""
    files = (parsers.find_file(folder, f"{part}.txt") for part in ("train", "test"))
    return folder.name in PUBLIC and None not in files


def read_public_split(folder: Path, *, seed: int = 0) -> Split:
    """Read a log with its public test part, as graph recommenders are compared on it.

    A share of the training part at random, by the seed and the ids, is for validation.
    """
    from transcf.kernels.splitting import event_keys

    paths = [parsers.require_file(folder, f"{part}.txt") for part in ("train", "test")]
    train, test = map(parsers.item_lists, paths)
    log = parsers.text_log(pl.concat([train, test]), paths[0])
    is_test = _events_of(log, test.cast(pl.Int64), "test.txt")
    keys = event_keys(log.by_user.indptr, log.item_rows, check_seed(seed), 0)
    order = np.argsort(keys, kind="stable")
    order = order[~is_test[order]]
    is_validation = np.zeros(len(log), np.bool_)
    is_validation[order[: round(_VALIDATION * len(order))]] = True
    recipe: Recipe = {
        "rule": "public split",
        "seed": seed,
        "how": f"the public test part for test, {100 * _VALIDATION:g} % of the public training "
        f"part at random for validation, seed {seed}",
    }
    return Split(
        train=log.select(~is_test & ~is_validation),
        validation=log.select(is_validation),
        test=log.select(is_test),
        recipe=recipe,
        report=log.report,
    )
