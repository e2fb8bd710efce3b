"""Readers of the catalog's datasets in the format in which they were published.

All events are kept whatever their ratings: published counts and filters include them, and a 0 of
Book-Crossing means that the book was read but not rated.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
from polars.exceptions import PolarsError

from transcf.data.files import unpack
from transcf.data.filters import ANY_RATING
from transcf.data.interactions import Interactions
from transcf.data.readers import read_interactions, read_source
from transcf.data.side import mutual_links
from transcf.data.tables import frame_source
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
        reason = str(problem).strip().split("\n", 1)[0].rstrip(".")
        raise DataError(f"{path} is not as published: {reason}.") from problem


def text_log(frame: pl.DataFrame, path: Path, *, keep_blanks: bool = False) -> Interactions:
    """Make a log of untyped columns with usual names."""
    source = frame_source(frame, str(path), is_text=True, keep_blanks=keep_blanks)
    return read_source(source, {})


def table_log(frame: pl.DataFrame) -> Interactions:
    """Make a log of typed columns with usual names."""
    return read_interactions(frame, min_rating=ANY_RATING)


def with_genres(log: Interactions, genres: pl.DataFrame, path: Path) -> Interactions:
    """Add categories from a file's table `item, genres`, with genres separated by "|"."""
    with as_published(path):
        items = genres["item"] if log.items.is_text else genres["item"].cast(pl.Int64)
    table = pl.DataFrame({"item_id": items, "category": genres["genres"]})
    return with_categories(log, table.filter(pl.col("category") != "(no genres listed)"))


def with_categories(log: Interactions, table: pl.DataFrame) -> Interactions:
    """Add the rows of a table `item_id, category` whose items are in the log."""
    known = table.filter(pl.Series(log.items.rows_of_column(table["item_id"]) >= 0))
    return log.with_categories(known.unique().sort("item_id", "category"))


def parse_delicious(folder: Path) -> Interactions:
    """HetRec 2011: bookmarks of users, one line for each tag, or the pairs as `u.data`."""
    path = find_file(folder, "user_taggedbookmarks-timestamps.dat")
    if path is not None:
        pattern = r"^(?<user>\w+)\t(?<item>\w+)\t\w+\t(?<time>\w+)$"
        return text_log(parse_lines(path, pattern)[1:], path)
    path = require_file(folder, "u.data")
    return text_log(parse_lines(path, r"^(?<user>\d+)\t(?<item>\d+)"), path)


def parse_tradesy(folder: Path) -> Interactions:
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


def parse_ciao(folder: Path) -> Interactions:
    """Ciao: `rating.mat` with ratings and categories."""
    path = require_file(folder, "rating.mat")
    return table_log(ciao_table(path, category_names(folder)))


def ciao_table(path: Path, names: Mapping[int, str]) -> pl.DataFrame:
    """Columns `user, item, category, rating` of `rating.mat`, in its order."""
    from scipy.io import loadmat

    try:
        cells = loadmat(path)["rating"]
    except (KeyError, ValueError, TypeError, NotImplementedError) as problem:
        raise DataError(f"{path} is not Ciao's rating.mat: {problem}.") from problem
    numbers = pl.Series(cells[:, 2].astype(np.int64))
    return pl.DataFrame(
        {
            "user": cells[:, 0].astype(np.int64),
            "item": cells[:, 1].astype(np.int64),
            "category": numbers.replace_strict(
                dict(names), default=numbers.cast(pl.String), return_dtype=pl.String
            ),
            "rating": cells[:, 3].astype(np.float32),
        }
    )


def category_names(folder: Path) -> dict[int, str]:
    r"""Names of Ciao's categories; number and name are separated by a literal `\t`."""
    path = find_file(folder, "catalog_ciao.txt")
    if path is None:
        return {}
    table = parse_lines(path, r"^(?<number>\d+)(?:\\t|\t)(?<name>.+)$")
    return dict(zip(table["number"].cast(pl.Int64), table["name"], strict=True))


def parse_amazon(folder: Path) -> Interactions:
    """Amazon, Cell Phones and Accessories: the ratings table or the reviews."""
    name = "Cell_Phones_and_Accessories"
    path = find_file(folder, f"ratings_{name}.csv")
    if path is not None:
        pattern = r"^(?<user>[^,]+),(?<item>[^,]+),(?<rating>[^,]+),(?<time>[^,]+)$"
        return text_log(parse_lines(path, pattern), path)
    path = require_file(folder, f"reviews_{name}_5.json", f"reviews_{name}.json")
    return _reviews(path)


def _reviews(path: Path) -> Interactions:
    """Reviews of Amazon, one JSON object a line."""
    with as_published(path):
        reviews = pl.read_ndjson(read_text(path).encode())
        table = reviews.select("reviewerID", "asin", "overall", "unixReviewTime")
    return table_log(table)


def parse_beauty(folder: Path) -> Interactions:
    """Amazon, Beauty, the 5-core: user, item and time, as a tab-separated list or as reviews."""
    path = find_file(folder, "Beauty.txt", "events.csv")
    if path is not None:
        mark = "\t" if path.name.startswith("Beauty.txt") else ","
        pattern = rf"^(?<user>[^{mark}]+){mark}(?<item>[^{mark}]+){mark}(?<time>[^{mark}]+)$"
        table = parse_lines(path, pattern)
        has_header = table["user"].head(1).to_list() == ["user_id"]
        return text_log(table[int(has_header) :], path)
    return _reviews(require_file(folder, "reviews_Beauty_5.json"))


def parse_bookcrossing(folder: Path) -> Interactions:
    """Book-Crossing: ratings from 0 (implicit) to 10, latin-1, quotes inside of some ISBNs.

    Blanks around 14 of the ISBNs stay part of them: the published counts depend on it.
    """
    path = require_file(folder, "BX-Book-Ratings.csv")
    pattern = r'^"(?<user>[^"]*)";"(?<item>.*)";"(?<rating>[^"]*)"$'
    table = parse_lines(path, pattern, "latin-1")[1:]
    return text_log(table, path, keep_blanks=True)


def parse_pinterest(folder: Path) -> Interactions:
    """Pinterest: rating files with one pair a line, or lists of items; both parts together."""
    if find_file(folder, "pinterest-20.train.rating") is None:
        return _both_lists(folder, "hmgcn_{}.txt")
    names = ("pinterest-20.train.rating", "pinterest-20.test.rating")
    pattern = r"^(?<user>\d+)\t(?<item>\d+)"
    paths = [require_file(folder, name) for name in names]
    return text_log(pl.concat([parse_lines(path, pattern) for path in paths]), paths[0])


def _both_lists(folder: Path, name: str) -> Interactions:
    paths = [require_file(folder, name.format(part)) for part in ("train", "test")]
    return text_log(pl.concat(map(item_lists, paths)), paths[0])


def item_lists(path: Path) -> pl.DataFrame:
    """Read lines of a user and its items, separated by blanks, as `user, item` text."""
    lists = parse_lines(path, r"^(?<user>\d+)(?<item>( \d+)*)\s*$")
    pairs = lists.select("user", pl.col("item").str.strip_chars().str.split(" "))
    return pairs.explode("item").filter(pl.col("item") != "")


def parse_gowalla(folder: Path) -> Interactions:
    """Gowalla: lists of items, both parts together."""
    return _both_lists(folder, "{}.txt")


def parse_yelp2018(folder: Path) -> Interactions:
    """Yelp2018, in the same form."""
    return parse_gowalla(folder)


def parse_flixster(folder: Path) -> Interactions:
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


def parse_movietweetings(folder: Path) -> Interactions:
    """MovieTweetings: ids of movies keep their leading zeros and are text."""
    path = require_file(folder, "ratings.dat")
    pattern = r"^(?<user>\d+)::(?<item>\d+)::(?<rating>[0-9.]+)::(?<time>\d+)$"
    log = text_log(parse_lines(path, pattern), path)
    movies = require_file(folder, "movies.dat")
    return with_genres(log, parse_lines(movies, r"^(?<item>\d+)::.*::(?<genres>[^:]*)$"), movies)


def parse_ml_latest_small(folder: Path) -> Interactions:
    """MovieLens in its CSV form."""
    log = read_interactions(require_file(folder, "ratings.csv"), min_rating=ANY_RATING)
    path = require_file(folder, "movies.csv")
    with as_published(path):
        movies = pl.read_csv(path, infer_schema=False, glob=False)
        genres = movies.select(item="movieId", genres="genres")
    return with_genres(log, genres, path)
