"""A small log with ratings and categories, and small models of all forms on it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from transcf.data.csr import Histories
from transcf.data.ids import IdMap
from transcf.data.interactions import Interactions
from transcf.data.synthetic import synthesize
from transcf.models.fitted import TrainingData
from transcf.models.registry import create
from transcf.paper.spaces import Space


@pytest.fixture(scope="package")
def log() -> Interactions:
    return synthesize(users=80, items=40, interactions=1200, categories=4, seed=5)


@pytest.fixture(scope="package")
def fitted(log: Interactions) -> Any:
    """Return a model by name, fitted once."""
    models: dict[str, Any] = {}

    def fit(name: str) -> Any:
        if name not in models:
            models[name] = create(name, dim=6, epochs=4, random_state=1).fit(log)
        return models[name]

    return fit


@pytest.fixture
def by_hand() -> Any:
    """Make a space of given points and translations."""

    def make(users: Any, items: Any, moves: Any = None, seen: Any = ()) -> Space:
        import polars as pl

        a, b = np.array(users, np.float32), np.array(items, np.float32)
        ids = IdMap(pl.Series([f"u{n:03}" for n in range(len(a))]))
        things = IdMap(pl.Series([f"i{n:03}" for n in range(len(b))]))
        owned = [np.array(sorted(own), np.int32) for own in seen]
        histories = Histories.of(owned, len(b))
        known = TrainingData(ids, things, histories.matrix, histories, False)

        def translate(u: Any, i: Any) -> Any:
            return np.array([moves(one, other) for one, other in zip(u, i, strict=True)])

        return Space("made", known, a, b, None if moves is None else translate)

    return make
