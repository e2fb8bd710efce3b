"""Readers of the catalog's datasets and splits in the format in which they were published.

All events are kept whatever their ratings: published counts and filters include them, and a 0 of
Book-Crossing means that the book was read but not rated.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from polars.exceptions import PolarsError

from transcf.data.csr import offsets
from transcf.data.files import unpack
from transcf.data.filters import ANY_RATING
from transcf.data.ids import UNKNOWN
from transcf.data.interactions import Interactions, Mask
from transcf.data.readers import read_interactions, read_source
from transcf.data.split import Candidates, Recipe, Split
from transcf.data.tables import first_line, frame_source
from transcf.data.validate import usual_roles
from transcf.errors import DataError, check_integer, needs_extra

#: Datasets with public parts, and names of their folders.
PUBLIC = ("gowalla", "yelp2018")
#: Share of its training events that are held out for validation.
_VALIDATION = 0.1
_PARTS = {"train": "LOOTrain.dat", "validation": "LOOVal.dat", "test": "LOOTest.dat"}
_RECIPE: Recipe = {"rule": "authors' files", "how": "as the authors published it"}
_PAIR = r"^(?<user>\w+)\t(?<item>\w+)$"


def find_file(folder: Path, *names: str) -> Path | None:
    """Return the first of some files that exists in a folder, plain or gzipped, or None."""
    candidates = (folder / f"{name}{ending}" for name in names for ending in ("", ".gz"))
    return next((path for path in candidates if path.is_file()), None)


def require_file(folder: Path, *names: str) -> Path:
    """Return what `find_file` finds; raise a `DataError` if there is none."""
    if (path := find_file(folder, *names)) is None:
        raise DataError(f"{folder} has none of {', '.join(names)} (plain or .gz).")
    return path


def read_text(path: Path, encoding: str = "utf-8") -> str:
    """Return the text of a file, plain or gzipped."""
    try:
        content = unpack(path) if path.suffix == ".gz" else path.read_bytes()
        return content.decode(encoding)
    except UnicodeDecodeError as problem:
        raise DataError(f"{path} is not {encoding} text: {problem.reason}.") from problem


def read_lines(path: Path, encoding: str = "utf-8") -> pl.Series:
    """Return the lines of a text file that are not empty."""
    lines = pl.Series("line", read_text(path, encoding).split("\n")).str.strip_chars_end("\r")
    return lines.filter(lines != "")


def parse_lines(path: Path, pattern: str, encoding: str = "utf-8") -> pl.DataFrame:
    """Split each line by a pattern with named groups; a line that does not fit is an error."""
    lines = read_lines(path, encoding)
    groups = lines.str.extract_groups(pattern).struct.unnest()
    odd = groups[:, 0].is_null()
    if odd.any():
        row = int(np.argmax(odd.to_numpy()))
        raise DataError(f"{path}: line {row + 1:,} is not as published: {lines[row][:60]!r}.")
    return groups


@contextmanager
def as_published(path: Path) -> Iterator[None]:
    """Name the file if polars cannot parse it in its published format."""
    try:
        yield
    except PolarsError as problem:
        raise DataError(f"{path} is not as published: {first_line(problem)}.") from problem


def text_log(frame: pl.DataFrame, path: Path, **options: bool) -> Interactions:
    """Make a log of untyped columns with usual names; `options` are those of `TableSource`."""
    return read_source(frame_source(frame, str(path), is_text=True, **options), {})


def table_log(frame: pl.DataFrame) -> Interactions:
    """Make a log of typed columns with usual names."""
    return read_interactions(frame, min_rating=ANY_RATING)


def with_categories(log: Interactions, table: pl.DataFrame) -> Interactions:
    """Add the rows of a table `item_id, category` whose items are in the log."""
    known = table.filter(pl.Series(log.items.rows_of_column(table["item_id"]) >= 0))
    return log.with_categories(known)


def read_published(folder: Path, name: str, forms: Sequence[Mapping[str, Any]]) -> Interactions:
    """Read a dataset in the first of its forms whose files exist, or by its own function.

    Files of one form are read one after the other.
    """
    if not forms:
        return _PARSERS[name](folder)
    require_file(folder, *(form["files"][0] for form in forms))
    form = next(form for form in forms if find_file(folder, form["files"][0]))
    paths = [require_file(folder, name) for name in form["files"]]
    if ".json" in paths[0].suffixes:
        with as_published(paths[0]):
            reviews = pl.read_ndjson(read_text(paths[0]).encode())
            return table_log(reviews.select("reviewerID", "asin", "overall", "unixReviewTime"))
    if "pattern" not in form:
        return text_log(pl.concat(map(item_lists, paths)), paths[0])
    encoding = form.get("encoding", "utf-8")
    frame = pl.concat([parse_lines(path, form["pattern"], encoding) for path in paths])
    has_header = len(frame) and usual_roles(frame["user"][:1].to_list()) == ["user"]
    return text_log(frame[int(has_header) :], paths[0], keep_blanks="keep_blanks" in form)


def item_lists(path: Path) -> pl.DataFrame:
    """Read lines of a user and its items, separated by blanks, as `user, item` text."""
    lists = parse_lines(path, r"^(?<user>\d+)(?<item>( \d+)*)\s*$")
    pairs = lists.select("user", pl.col("item").str.strip_chars().str.split(" "))
    return pairs.explode("item").filter(pl.col("item") != "")


def _tradesy(folder: Path) -> Interactions:
    """Tradesy: what a user bought or wants counts; what it sells or sold does not.

    Each line is a Python literal of lists of digits in single quotes; with double quotes it is
    JSON. A quote inside of a value would make the line invalid, never another value.
    """
    path = require_file(folder, "tradesy.json")
    with as_published(path):
        lists = pl.read_ndjson(read_text(path).replace("'", '"').encode())
        lists = lists.unnest("lists")
        pairs = lists.select(user="uid", item=pl.concat_list("bought", "want"))
    idle = (pairs["item"].list.len() == 0).sum()
    pairs = pairs.explode("item")
    missing = pairs["item"].null_count()
    log = text_log(pairs.drop_nulls("item"), path)
    report = log.report.then("leave out", users_without_items=idle, missing_items=missing)
    return log.with_report(report)


def ciao_table(folder: Path) -> pl.DataFrame:
    r"""Columns `user, item, category, rating` of Ciao's `rating.mat`, in its order.

    Categories have the names of `catalog_ciao.txt`, if it is in the folder; number and name are
    separated by a literal `\t` there.
    """
    from scipy.io import loadmat

    path = require_file(folder, "rating.mat")
    try:
        cells = loadmat(path)["rating"]
    except (KeyError, ValueError, TypeError, NotImplementedError) as problem:
        raise DataError(f"{path} is not Ciao's rating.mat: {problem}.") from problem
    numbers = pl.Series(cells[:, 2].astype(np.int64))
    categories = numbers.cast(pl.String)
    if (catalog := find_file(folder, "catalog_ciao.txt")) is not None:
        names = parse_lines(catalog, r"^(?<number>\d+)(?:\\t|\t)(?<name>.+)$")
        named = dict(zip(names["number"].cast(pl.Int64), names["name"], strict=True))
        categories = numbers.replace_strict(named, default=categories, return_dtype=pl.String)
    users, items = cells[:, 0].astype(np.int64), cells[:, 1].astype(np.int64)
    ratings = cells[:, 3].astype(np.float32)
    return pl.DataFrame({"user": users, "item": items, "category": categories, "rating": ratings})


def _flixster(folder: Path) -> Interactions:
    """Flixster, the 3,000 x 3,000 excerpt: ids are row and column numbers, counted from 0."""
    with needs_extra("Reading Flixster's HDF5 file", "hdf5"):
        import h5py
    path = require_file(folder, "training_test_dataset.mat")
    try:
        with h5py.File(path) as file:
            # Columns come first in files of MATLAB, hence the transposition.
            ratings, *masks = (file[name][...].T for name in ("M", "Otraining", "Otest"))
    except (OSError, KeyError) as problem:
        raise DataError(f"{path} is not Flixster's HDF5 file: {problem}.") from problem
    users, items = np.nonzero(masks[0] + masks[1])
    ratings = ratings[users, items]
    return table_log(pl.DataFrame({"user": users, "item": items, "rating": ratings}))


def _movietweetings(folder: Path) -> Interactions:
    """MovieTweetings: ids of movies keep their leading zeros and are text."""
    path, movies = require_file(folder, "ratings.dat"), require_file(folder, "movies.dat")
    pattern = r"^(?<user>\d+)::(?<item>\d+)::(?<rating>[0-9.]+)::(?<time>\d+)$"
    log = text_log(parse_lines(path, pattern), path)
    table = parse_lines(movies, r"^(?<item>\d+)::.*::(?<genres>[^:]*)$")
    return with_categories(log, table.select(item_id="item", category="genres"))


def _ml_latest_small(folder: Path) -> Interactions:
    """MovieLens in its CSV form."""
    log = read_interactions(require_file(folder, "ratings.csv"), min_rating=ANY_RATING)
    path = require_file(folder, "movies.csv")
    with as_published(path):
        movies = pl.read_csv(path, infer_schema=False, glob=False)
        table = movies.select(item_id=pl.col("movieId").cast(pl.Int64), category="genres")
    return with_categories(log, table.filter(pl.col("category") != "(no genres listed)"))


_PARSERS = {
    "tradesy": _tradesy,
    "ciao": lambda folder: table_log(ciao_table(folder)),
    "flixster": _flixster,
    "movietweetings": _movietweetings,
    "ml-latest-small": _ml_latest_small,
}


def is_prepared(folder: Path) -> bool:
    """Return whether a folder holds the authors' three parts."""
    return all(find_file(folder, name) is not None for name in _PARTS.values())


def read_prepared(folder: Path) -> Interactions:
    """Read all pairs of a prepared folder, with the authors' numbers as ids.

    Where the folder has Ciao's `rating.mat`, its ratings and categories are added.
    """
    whole = find_file(folder, "ratings.dat")
    names = _PARTS.values() if whole is None else ("ratings.dat",)
    pairs = pl.concat([_read_pairs(require_file(folder, name)) for name in names])
    details = find_file(folder, "rating.mat")
    if details is None:
        return table_log(pairs)
    return _with_details(pairs, ciao_table(folder), details)


def read_prepared_split(folder: Path) -> Split:
    """Read the authors' split; their candidates may repeat an item and name held-out ones."""
    if not is_prepared(folder):
        raise DataError(f"{folder} is not prepared: {', '.join(_PARTS.values())} are needed.")
    log = read_prepared(folder)
    masks = {
        name: _events_of(log, _read_pairs(require_file(folder, file)), file)
        for name, file in _PARTS.items()
    }
    used = np.sum(list(masks.values()), axis=0)
    if (used > 1).any():
        raise DataError(f"{folder}: its three parts share pairs.")
    sizes = {name: mask.sum() for name, mask in masks.items()}
    report = log.report.then("authors' split", **sizes, in_no_part=(used == 0).sum())
    candidates, unknown = _read_candidates(folder, log)
    if candidates is not None:
        counts = {"candidates": len(candidates.items), "unknown_left_out": unknown}
        report = report.then("authors' candidates", **counts)
    parts = {name: log.select(mask) for name, mask in masks.items()}
    return Split(**parts, candidates=candidates, recipe=_RECIPE, report=report)


def _read_pairs(path: Path) -> pl.DataFrame:
    """Read tab-separated pairs under a header, with integer ids."""
    pairs = parse_lines(path, _PAIR)[1:]
    try:
        return pairs.cast(pl.Int64)
    except PolarsError as problem:
        raise DataError(f"{path}: the authors' ids are integers, these are not.") from problem


def _with_details(pairs: pl.DataFrame, raw: pl.DataFrame, path: Path) -> Interactions:
    """Join ratings and categories by the authors' numbers.

    They dropped repeats, filtered in one pass and numbered what was left by first appearance;
    the same steps must give the very same pairs.
    """
    first = raw.unique(["user", "item"], keep="first", maintain_order=True)
    for column, least in (("user", 5), ("item", 5), ("user", 3)):
        first = first.filter(pl.len().over(column) >= least)
    # Items first: their categories do not depend on which users were kept.
    raw = _renumber(raw, "item", first)
    categories = raw.select(item_id="item", category="category")
    raw = _renumber(raw, "user", first)
    known = pairs.join(raw, on=["user", "item"], how="left", maintain_order="left")
    if known["rating"].null_count():
        raise DataError(
            f"{path} does not belong to the pairs in its folder: "
            f"{known['rating'].null_count():,} of {len(known):,} have no rating."
        )
    log = table_log(known.select("user", "item", "rating"))
    return with_categories(log, categories)


def _renumber(table: pl.DataFrame, column: str, kept: pl.DataFrame) -> pl.DataFrame:
    """Number the ids by their first appearance among those that are kept; drop other rows."""
    ids = kept[column].unique(maintain_order=True)
    numbers = pl.DataFrame({column: ids, "number": pl.int_range(len(ids), eager=True)})
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
    path = find_file(folder, "LOONegatives.dat")
    if path is None:
        return None, 0
    with as_published(path):
        fields = read_lines(path).str.split("\t").list.eval(pl.element().cast(pl.Int64))
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
    files = (find_file(folder, f"{part}.txt") for part in ("train", "test"))
    return folder.name in PUBLIC and None not in files


def read_public_split(folder: Path, *, seed: int = 0) -> Split:
    """Read a log with its public test part, as graph recommenders are compared on it.

    A share of the training part at random, by the seed and the ids, is for validation.
    """
    from transcf.kernels.evaluation import event_keys

    seed = check_integer("seed", seed)
    paths = [require_file(folder, f"{part}.txt") for part in ("train", "test")]
    train, test = map(item_lists, paths)
    log = text_log(pl.concat([train, test]), paths[0])
    is_test = _events_of(log, test.cast(pl.Int64), "test.txt")
    keys = event_keys(log.by_user.indptr, log.item_rows, seed, 0)
    order = np.argsort(keys, kind="stable")
    order = order[~is_test[order]]
    is_validation = np.zeros(len(log), np.bool_)
    is_validation[order[: round(_VALIDATION * len(order))]] = True
    how = (
        f"the public test part for test, {100 * _VALIDATION:g} % of the public training part at "
        f"random for validation, seed {seed}"
    )
    recipe: Recipe = {"rule": "public split", "seed": seed, "how": how}
    parts = log.select(~is_test & ~is_validation), log.select(is_validation), log.select(is_test)
    return Split(*parts, recipe=recipe, report=log.report)
