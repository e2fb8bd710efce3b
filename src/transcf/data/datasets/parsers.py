"""Readers of the catalog's datasets in the format in which they were published.

All events are kept whatever their ratings: published counts and filters include them, and a 0 of
Book-Crossing means that the book was read but not rated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from polars.exceptions import PolarsError

from transcf.data.files import unpack
from transcf.data.filters import ANY_RATING
from transcf.data.interactions import Interactions
from transcf.data.readers import read_interactions, read_source
from transcf.data.side import mutual_links
from transcf.data.tables import first_line, frame_source
from transcf.data.validate import usual_role
from transcf.errors import DataError, MissingExtraError


def find_file(folder: Path, *names: str) -> Path | None:
    """Return the first of some files that exists in a folder, plain or gzipped, or None."""
    candidates = (folder / f"{name}{ending}" for name in names for ending in ("", ".gz"))
    return next((path for path in candidates if path.is_file()), None)


def require_file(folder: Path, *names: str) -> Path:
    """Return the first of some files that exists in a folder, plain or gzipped."""
    path = find_file(folder, *names)
    if path is not None:
        return path
    raise DataError(f"{folder} has none of {', '.join(names)} (plain or .gz).")


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


def text_log(frame: pl.DataFrame, path: Path, *, keep_blanks: bool = False) -> Interactions:
    """Make a log of untyped columns with usual names."""
    source = frame_source(frame, str(path), is_text=True, keep_blanks=keep_blanks)
    return read_source(source, {})


def table_log(frame: pl.DataFrame) -> Interactions:
    """Make a log of typed columns with usual names."""
    return read_interactions(frame, min_rating=ANY_RATING)


def with_categories(log: Interactions, table: pl.DataFrame) -> Interactions:
    """Add the rows of a table `item_id, category` whose items are in the log."""
    known = table.filter(pl.Series(log.items.rows_of_column(table["item_id"]) >= 0))
    return log.with_categories(known.unique().sort("item_id", "category"))


def parser_of(name: str, forms: Sequence[Mapping[str, Any]]) -> Callable[[Path], Interactions]:
    """Return the function that reads a dataset: by its forms in the catalog, or of its own."""
    return partial(read_forms, forms=forms) if forms else _PARSERS[name]


def read_forms(folder: Path, forms: Sequence[Mapping[str, Any]]) -> Interactions:
    """Read the first form whose files exist; files of one form are read one after the other."""
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
    has_header = len(frame) and usual_role(frame["user"][0]) == "user"
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
        touched = pl.col("lists").struct
        pairs = lists.select(
            user="uid", item=touched.field("bought").list.concat(touched.field("want"))
        )
    idle = int((pairs["item"].list.len() == 0).sum())
    pairs = pairs.explode("item")
    missing = pairs["item"].null_count()
    log = text_log(pairs.drop_nulls("item"), path)
    report = log.report.then("leave out", users_without_items=idle, missing_items=missing)
    return replace(log, report=report)


def _ciao(folder: Path) -> Interactions:
    """Ciao: `rating.mat` with ratings and categories."""
    return table_log(ciao_table(require_file(folder, "rating.mat"), folder))


def ciao_table(path: Path, folder: Path) -> pl.DataFrame:
    r"""Columns `user, item, category, rating` of `rating.mat`, in its order.

    Categories have the names of `catalog_ciao.txt`, if it is in the folder; number and name are
    separated by a literal `\t` there.
    """
    from scipy.io import loadmat

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
    return pl.DataFrame(
        {
            "user": cells[:, 0].astype(np.int64),
            "item": cells[:, 1].astype(np.int64),
            "category": categories,
            "rating": cells[:, 3].astype(np.float32),
        }
    )


def _flixster(folder: Path) -> Interactions:
    """Flixster, the 3,000 x 3,000 excerpt: ids are row and column numbers, counted from 0.

    Its graph of users becomes links between users that have events.
    """
    try:
        import h5py
    except ImportError as problem:
        raise MissingExtraError("Reading Flixster's HDF5 file", "hdf5") from problem
    path = require_file(folder, "training_test_dataset.mat")
    try:
        with h5py.File(path) as file:
            # Columns come first in files of MATLAB, hence the transposition.
            ratings, *masks = (file[name][...].T for name in ("M", "Otraining", "Otest"))
            graph = file["W_users"][...] if "W_users" in file else None
    except (OSError, KeyError) as problem:
        raise DataError(f"{path} is not Flixster's HDF5 file: {problem}.") from problem
    users, items = np.nonzero(masks[0] + masks[1])
    log = table_log(pl.DataFrame({"user": users, "item": items, "rating": ratings[users, items]}))
    if graph is None:
        return log
    ends = (log.users.rows(pl.Series(end)) for end in np.nonzero(graph))
    return log.with_links(mutual_links(log.users, *ends))


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
    "ciao": _ciao,
    "flixster": _flixster,
    "movietweetings": _movietweetings,
    "ml-latest-small": _ml_latest_small,
}
