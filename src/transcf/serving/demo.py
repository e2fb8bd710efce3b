"""Demo data: a synthetic tea shop with item titles."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl

from transcf.data.synthetic import synthesize
from transcf.models.registry import create

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
#: As in real logs: items appear and fade, and an event depends on the one before.
_DRIFT, _SEQUENCES = 4.0, 0.5
_SEED = 0


class Shop(NamedTuple):
    """Files of the demo: model folder, table of items, log of the training events."""

    model: Path
    items: Path
    log: Path


def demo_shop(folder: Path, users: int = 1000, items: int = 500, events: int = 20_000) -> Shop:
    """Generate a shop of this size in a folder, and fit a model to it."""
    log = synthesize(users, items, events, drift=_DRIFT, sequences=_SEQUENCES, seed=_SEED)
    assert log.categories is not None, "synthetic data has categories"
    shop = Shop(folder / "tea-shop", folder / "items.csv", folder / "events.csv")
    item_table(log.categories).write_csv(shop.items)
    log.to_frame().write_csv(shop.log)
    model = create("transcf-mixture").fit(log)
    model.report_["dataset"] = str(shop.log.absolute())
    model.save(shop.model)
    return shop


def item_table(categories: pl.DataFrame) -> pl.DataFrame:
    """Generate titles and prices for items with categories such as "category 01"."""
    random = np.random.default_rng(_SEED)
    rows = []
    for number, (item, category) in enumerate(categories.iter_rows(), 1):
        kind = _KINDS[(int(category.split()[-1]) - 1) % len(_KINDS)]
        noun = random.choice(_NOUNS[kind].split()).replace("-", " ")
        title = f"{random.choice(_ADJECTIVES)} {noun} No. {number}"
        rows.append((item, title, kind, round(float(random.uniform(2, 40)), 2)))
    return pl.DataFrame(rows, ["item_id", "title", "category", "price"], orient="row")
