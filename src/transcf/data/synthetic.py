"""Generated demo data with categories, a long tail, ratings and times."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl

from transcf.data.atomic import atomic_write
from transcf.data.csr import offsets
from transcf.data.files import path_of
from transcf.data.ids import IdMap
from transcf.data.interactions import Interactions
from transcf.data.report import Report
from transcf.errors import ParameterError, check_integer, shown

#: Nouns of the titles of each category.
_NOUNS = {
    "black tea": "Assam Darjeeling Ceylon Keemun", "green tea": "Sencha Gyokuro Longjing Matcha",
    "white tea": "Silver-Needle Peony Moonlight", "oolong": "Tieguanyin Dongding Dahongpao",
    "pu-erh": "Cake Brick Tuocha", "rooibos": "Rooibos Honeybush", "fruit tea": "Cherry Quince",
    "herbal tea": "Mint Camomile Fennel Sage", "teapots": "Kyusu Gaiwan Pot", "cups": "Cup Mug",
    "sweets": "Wagashi Biscuit Nougat", "books": "Almanac Primer Atlas",
}  # fmt: skip
_KINDS = tuple(_NOUNS)
_ADJECTIVES = (
    "Pale", "Dark", "Early", "Late", "Wild", "Quiet", "Misty", "Golden", "Smoky", "Old", "Young",
    "Northern", "Southern", "Hill", "River", "Garden",
)  # fmt: skip
#: Categories of a log with enough items.
_CATEGORIES = 12
#: Largest number of tastes of one user.
_TASTES = 4
#: Exponent of the decrease of popularity with rank.
_TAIL = 0.8
#: Fewest events of a user, where there are enough.
_LEAST = 5
#: From January 2021 on, for two years, in seconds.
_EPOCH, _SPAN = 1_609_459_200, 2 * 365 * 86_400


def synthesize(
    users: int = 1000,
    items: int = 500,
    interactions: int = 20_000,
    *,
    categories: int | None = None,
    drift: float = 0.0,
    sequences: float = 0.0,
    seed: int = 0,
) -> Interactions:
    """Generate a log.

    Each item has a category, a style in it, and a popularity with a long tail. Each user has
    one to four tastes: categories with weights and a favourite style in each. Nine of ten events
    follow a taste, the others only popularity. Ratings from 1 to 5 grow with the strength of the
    taste. Items without events are left out.

    Two more properties of real logs are optional. With `drift` most items are released one by one
    during the two years (a third is there from the beginning) and fade afterwards. With
    `sequences` that share of the events that follow a taste continues where the one before was, in
    its category and near its style, rather than at the user's favourite style.

    Args:
        users: Number of users.
        items: Number of items to choose from.
        interactions: Number of events, exact; no pair is repeated.
        categories: Number of categories; None means 12, or the number of items if smaller.
        drift: How fast items fade; with 4 the demand for an item halves in four months.
        sequences: In [0, 1].
        seed: The same seed gives the same log.

    Example:
        >>> synthesize(users=100, items=50, interactions=1000).n_users
        100
    """
    from transcf.kernels.synthesis import World, draw_events

    drift = _checked_number("drift", drift, math.inf)
    sequences = _checked_number("sequences", sequences, 1)
    categories = _check(users, items, interactions, categories)
    seed = check_integer("seed", seed)
    random = np.random.default_rng(seed)
    starts, popularity, styles = _make_items(items, categories, random)
    tastes, shares, favourites = _make_users(users, categories, random)
    degrees = _degrees(users, items // 2, interactions, random)
    noise = random.standard_normal(interactions, dtype=np.float32)
    arrivals = random.random(users) * 0.5
    # Ids are assigned at random, so that they are independent of category and popularity.
    names = random.permutation(items).astype(np.int32)
    releases = np.maximum(0, random.uniform(-0.5, 1, items))
    world = World(
        tastes, shares, favourites, arrivals, starts, popularity, styles, releases, sequences, drift
    )
    item_rows, strengths, moments = draw_events(degrees, world, seed)
    user_rows = np.repeat(np.arange(users, dtype=np.int32), degrees)
    ratings = np.clip(np.rint(1.5 + 3.5 * strengths + 0.5 * noise), 1, 5).astype(np.float32)
    arrival = arrivals[user_rows] * _SPAN
    times = _EPOCH + arrival + moments * (_SPAN - arrival)
    user_ids, item_ids = _ids("u", users), _ids("i", items)
    labels = np.repeat([f"category {n + 1:02d}" for n in range(categories)], np.diff(starts))
    labelled = pl.DataFrame({"item_id": item_ids.ids(names), "category": labels.tolist()})
    log = Interactions.from_rows(
        user_ids,
        item_ids,
        user_rows,
        names[item_rows],
        ratings=ratings,
        timestamps=times.astype(np.int64),
        categories=labelled.sort("item_id"),
        report=Report().then("synthesize", users=users, items=items, interactions=interactions),
    )
    return log.select(np.ones(interactions, dtype=bool), drop_ids=True)


def write_csv(log: Interactions, path: str | Path) -> Path:
    """Write a log atomically as CSV: `user_id, item_id` and, if known, `rating, timestamp`."""
    path = path_of(path)
    with atomic_write(path) as unfinished:
        log.to_frame().write_csv(unfinished)
    return path


def _check(users: int, items: int, interactions: int, categories: int | None) -> int:
    """Check the sizes; return the number of categories."""
    users, items = check_integer("users", users, 1), check_integer("items", items, 1)
    if categories is None:
        categories = min(_CATEGORIES, items)
    check_integer("categories", categories, 1)
    if categories > items:
        raise ParameterError(f"categories={categories} is more than items={items}.")
    if not users <= interactions <= users * (items // 2):
        raise ParameterError(
            f"interactions={shown(interactions)} is not allowed; with users={users} and "
            f"items={items} it must lie between {users:,} and {users * (items // 2):,}."
        )
    return categories


def _checked_number(name: str, value: float, most: float) -> float:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not 0 <= value <= most or math.isinf(value):
        raise ParameterError(
            f"{name}={shown(value)} is not allowed; it must be a number from 0 to {most:g}."
        )
    return float(value)


def _make_items(
    items: int, categories: int, random: np.random.Generator
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return category offsets, cumulative popularity and styles, items in category order."""
    starts = offsets(_spread(items - categories, random.random(categories) + 0.3, items) + 1)
    popularity = (1.0 + random.permutation(items)) ** -_TAIL
    return starts, np.concatenate([[0.0], np.cumsum(popularity)]), random.random(items)


def _make_users(
    users: int, categories: int, random: np.random.Generator
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return tastes, their cumulative weights and favourite styles: (users, tastes) each."""
    most = min(_TASTES, categories)
    tastes = np.empty((users, most), dtype=np.int32)
    # The smallest of random keys give each user distinct categories; in blocks, to bound memory.
    for start in range(0, users, 1 << 16):
        block = random.random((min(1 << 16, users - start), categories))
        tastes[start : start + len(block)] = np.argsort(block, axis=1)[:, :most]
    weights = random.standard_exponential((users, most))
    counts = random.integers(1, most + 1, users)
    weights[np.arange(most) >= counts[:, None]] = 0.0
    shares = np.cumsum(weights, axis=1)
    return tastes, shares / shares[:, -1:], random.random((users, most))


def _degrees(
    users: int, most: int, interactions: int, random: np.random.Generator
) -> npt.NDArray[np.int64]:
    """Return the number of events of each user: a long tail with an exact sum."""
    least = min(_LEAST, interactions // users, most)
    activity = np.exp(random.standard_normal(users))
    above = _spread(interactions - users * least, activity, most - least)
    return np.add(above, least, dtype=np.int64)


def _spread(total: int, weights: npt.NDArray[np.float64], most: int) -> npt.NDArray[np.int64]:
    """Distribute a number by weights, at most `most` each, with an exact sum."""
    shares = total * weights / weights.sum()
    parts: npt.NDArray[np.int64] = np.minimum(shares.astype(np.int64), most)
    while (left := total - int(parts.sum())) > 0:
        room = np.flatnonzero(parts < most)[:left]
        parts[room] += np.minimum(max(1, left // len(room)), most - parts[room])
    return parts


def _ids(letter: str, size: int) -> IdMap:
    """Return ids with leading zeros."""
    numbers = pl.Series(np.arange(1, size + 1)).cast(pl.String)
    return IdMap(letter + numbers.str.zfill(len(str(size))))


def item_table(categories: pl.DataFrame) -> pl.DataFrame:
    """Generate titles and prices for items with categories such as "category 01"."""
    random = np.random.default_rng(0)
    rows = []
    for number, (item, category) in enumerate(categories.iter_rows(), 1):
        kind = _KINDS[(int(category.split()[-1]) - 1) % len(_KINDS)]
        noun = random.choice(_NOUNS[kind].split()).replace("-", " ")
        title = f"{random.choice(_ADJECTIVES)} {noun} No. {number}"
        rows.append((item, title, kind, round(float(random.uniform(2, 40)), 2)))
    return pl.DataFrame(rows, ["item_id", "title", "category", "price"], orient="row")
