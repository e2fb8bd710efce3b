"""Fits that are of no use are warned about, once, wherever they happen."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

from transcf.data.splitters import leave_one_out
from transcf.data.synthetic import synthesize
from transcf.errors import FitWarning
from transcf.models.registry import create

SPLIT = leave_one_out(synthesize(users=150, items=80, interactions=2400, seed=3))


def warned(name: str, validation: Any = None, **params: Any) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        create(name, **params).fit(SPLIT.train, validation)
    return [str(entry.message) for entry in caught if entry.category is FitWarning]


def test_collapsed_vectors_are_warned_about() -> None:
    (said,) = warned("ials", dim=8, unobserved_weight=5.0, regularization=1.0)
    assert "collapsed" in said
    assert "regularization" in said
    (said,) = warned("eals", dim=8, regularization=1e4)
    assert "collapsed" in said


def test_a_model_below_popularity_is_warned_about() -> None:
    names = {"itemknn": {"n_neighbors": 1}, "bpr": {"dim": 8, "epochs": 1, "learning_rate": 1e-9}}
    for name, params in names.items():
        params["trend"] = 0.0  # an automatic trend makes up for it
        (said,) = warned(name, SPLIT.validation, **params)
        assert "below popularity" in said
        assert "NDCG@10" in said
        assert not warned(name, **params), "nothing says so without validation data"


@pytest.mark.parametrize("name", ["ease", "ials", "slim", "bpr"])
def test_good_fits_are_not_warned_about(name: str) -> None:
    assert not warned(name, SPLIT.validation)


@pytest.mark.parametrize("name", ["popularity", "inverse-popularity", "random"])
def test_floors_may_rank_badly(name: str) -> None:
    assert not warned(name, SPLIT.validation)


def test_validation_data_that_judge_nobody_do_not_stop_a_fit() -> None:
    nobody = SPLIT.validation.select(np.zeros(len(SPLIT.validation), bool))
    assert not warned("ease", nobody)


def test_the_warning_names_the_line_of_the_caller() -> None:
    with pytest.warns(FitWarning) as caught:
        create("eals", dim=8, regularization=1e4).fit(SPLIT.train)
    assert caught[0].filename == __file__
