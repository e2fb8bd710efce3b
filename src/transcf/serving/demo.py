"""Demo data: a synthetic tea shop with item titles."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl

from transcf.data.splitters import split_log, usual_protocol
from transcf.data.synthetic import synthesize
from transcf.evaluation import Validation
from transcf.experiments.run import fit_for_use
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
_SEED = 0


def demo_shop(folder: Path) -> tuple[Path, Path]:
    """Generate a shop in a folder, and fit a model to it; return the model and table of items."""
    # As in real logs: items appear and fade, and an event depends on the one before.
    log = synthesize(1000, 500, 20_000, drift=4.0, sequences=0.5, seed=_SEED)
    assert log.categories is not None, "synthetic data has categories"
    items, events = folder / "items.csv", folder / "events.csv"
    item_table(log.categories).write_csv(items)
    log.to_frame().write_csv(events)
    split, model = split_log(log), create("transcf-mixture")
    done = fit_for_use(model, log, split, Validation.of(split, usual_protocol(split)))
    model.report_ |= {"fitted_on": done, "held_out": False, "dataset": str(events.absolute())}
    return model.save(folder / "tea-shop"), items


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
