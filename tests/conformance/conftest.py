"""Small logs that have broken recommenders before, and one with tastes to learn."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
import polars as pl
import pytest

from transcf.data.ids import Id, IdMap
from transcf.data.interactions import Interactions

Pairs = Iterable[tuple[Id, Id]]


def build(pairs: Pairs) -> Interactions:
    users, items = zip(*pairs, strict=True)
    user_ids, user_rows = IdMap.encode(pl.Series(users))
    item_ids, item_rows = IdMap.encode(pl.Series(items))
    log = Interactions.from_rows(user_ids, item_ids, user_rows, item_rows)
    return with_side(log)


def with_side(log: Interactions) -> Interactions:
    """Give each item one or two of five categories."""
    items = np.arange(log.n_items)
    shelves = np.concatenate([items // 7 % 5, items[::3] % 5])
    table = pl.DataFrame(
        {
            "item_id": log.items.ids(np.concatenate([items, items[::3]])),
            "category": pl.Series(shelves).cast(pl.String),
        }
    )
    return log.with_categories(table.unique().sort("item_id", "category"))


def _with_idle_ids() -> Interactions:
    """User 9 and item "z" lose their only event, as in the training part of a split."""
    log = build([(1, "a"), (1, "b"), (2, "b"), (2, "c"), (3, "a"), (3, "c"), (9, "z")])
    return log.select(log.user_rows < 3)


SMALL = {
    "one event": lambda: build([("ann", "x")]),
    "one item": lambda: build([(user, 5) for user in range(6)]),
    "one user": lambda: build([("ann", item) for item in range(8)]),
    "strangers": lambda: build([(f"u{n}", f"i{n}") for n in range(6)]),
    "lopsided": lambda: build(
        [("all", n) for n in range(40)] + [(f"u{n}", n % 3) for n in range(30)]
    ),
    "idle ids": _with_idle_ids,
}


@pytest.fixture(params=SMALL)
def small_log(request: pytest.FixtureRequest) -> Interactions:
    return SMALL[request.param]()


@pytest.fixture(scope="session")
def make_log() -> Callable[[Pairs], Interactions]:
    return build


def _tastes(seed: int) -> tuple[Interactions, np.ndarray]:
    """300 users who take 12 items, mostly from one of six shelves of 20, and one held out."""
    rng = np.random.default_rng(seed)
    pull = rng.pareto(2.0, size=120) + 0.2
    pairs, held = [], []
    for user in range(300):
        weights = np.where(np.arange(120) // 20 == user % 6, 8.0, 0.3) * pull
        chosen = rng.choice(120, size=13, replace=False, p=weights / weights.sum())
        pairs += [(user, int(item)) for item in chosen[:12]]
        held.append(chosen[12])
    pairs += [(300 + item, item) for item in range(120)]  # every item is known from training
    return build(pairs), np.array(held)


@pytest.fixture(scope="session")
def tastes() -> tuple[Interactions, np.ndarray]:
    return _tastes(0)
