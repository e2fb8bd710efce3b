"""A log of middling size, dense enough for every pair of items to matter."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from transcf.data.ids import IdMap
from transcf.data.interactions import Interactions


@pytest.fixture(scope="session")
def random_log() -> Interactions:
    rng = np.random.default_rng(11)
    popularity = rng.pareto(1.5, 60) + 0.1
    items = rng.choice(60, size=900, p=popularity / popularity.sum())
    user_ids, user_rows = IdMap.encode(pl.Series(rng.integers(0, 80, 900)))
    item_ids, item_rows = IdMap.encode(pl.Series([f"item {n:02}" for n in items]))
    return Interactions.from_rows(user_ids, item_ids, user_rows, item_rows)
