"""A made-up tea shop: the demo's data, with titles that people can talk about."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from transcf.data.synthetic import synthesize
from transcf.models.registry import create

_KINDS = (
    "black tea", "green tea", "white tea", "oolong", "pu-erh", "rooibos", "fruit tea", "herbal tea",
    "teapots", "cups", "sweets", "books",
)  # fmt: skip
_NOUNS = {
    "black tea": "Assam Darjeeling Ceylon Keemun", "green tea": "Sencha Gyokuro Longjing Matcha",
    "white tea": "Silver-Needle Peony Moonlight", "oolong": "Tieguanyin Dongding Dahongpao",
    "pu-erh": "Cake Brick Tuocha", "rooibos": "Rooibos Honeybush", "fruit tea": "Cherry Quince",
    "herbal tea": "Mint Camomile Fennel Sage", "teapots": "Kyusu Gaiwan Pot", "cups": "Cup Mug",
    "sweets": "Wagashi Biscuit Nougat", "books": "Almanac Primer Atlas",
}  # fmt: skip
_FIRST = (
    "Pale", "Dark", "Early", "Late", "Wild", "Quiet", "Misty", "Golden", "Smoky", "Old", "Young",
    "Northern", "Southern", "Hill", "River", "Garden",
)  # fmt: skip
#: What real logs have: items that come out and fade, events that follow the one before.
_DRIFT, _SEQUENCES = 4.0, 0.5
_SEED = 0


@dataclass(frozen=True)
class Shop:
    """Files of the demo.

    Attributes:
        model: Folder of the fitted model.
        items: Table of its items.
        log: The events that it was fitted on.
    """

    model: Path
    items: Path
    log: Path


def demo_shop(place: Path, users: int = 1000, items: int = 500, events: int = 20_000) -> Shop:
    """Make up a shop, fit a model to it, and write both to a folder.

    Args:
        place: The folder.
        users: How many people there are.
        items: How many things there are.
        events: How often somebody took something.
    """
    log = synthesize(users, items, events, drift=_DRIFT, sequences=_SEQUENCES, seed=_SEED)
    assert log.categories is not None, "made-up data has categories"
    paths = Shop(place / "tea-shop", place / "items.csv", place / "events.csv")
    item_table(log.categories).write_csv(paths.items)
    log.to_frame().write_csv(paths.log)
    model = create("transcf-mixture").fit(log)
    model.report_["dataset"] = str(paths.log.absolute())
    model.save(paths.model)
    return paths


def item_table(categories: pl.DataFrame) -> pl.DataFrame:
    """Make up titles and prices for items with categories such as "category 01".

    Example:
        >>> table = pl.DataFrame({"item_id": ["i001"], "category": ["category 02"]})
        >>> item_table(table).columns
        ['item_id', 'title', 'category', 'price']
    """
    random = np.random.default_rng(_SEED)
    rows = []
    for number, (item, category) in enumerate(categories.iter_rows(), 1):
        kind = _KINDS[(int(category.split()[-1]) - 1) % len(_KINDS)]
        noun = random.choice(_NOUNS[kind].split()).replace("-", " ")
        title = f"{random.choice(_FIRST)} {noun} No. {number}"
        rows.append((item, title, kind, round(float(random.uniform(2, 40)), 2)))
    return pl.DataFrame(rows, ["item_id", "title", "category", "price"], orient="row")
