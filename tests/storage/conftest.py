"""A small log, and fitted models of every kind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from transcf.data.interactions import Interactions
from transcf.data.synthetic import synthesize
from transcf.models.base import Recommender
from transcf.models.registry import create

#: Settings under which any model learns in a moment.
QUICK = {"dim": 4, "epochs": 1}


@pytest.fixture(scope="session")
def log() -> Interactions:
    return synthesize(40, 20, 300)


@pytest.fixture(scope="session")
def fitted(log: Interactions) -> Callable[[str], Recommender[Any]]:
    """Return a new fitted model by name."""

    def fit(name: str) -> Recommender[Any]:
        model = create(name)
        quick = {key: value for key, value in QUICK.items() if key in model.get_params()}
        return model.set_params(**quick).fit(log)

    return fit
