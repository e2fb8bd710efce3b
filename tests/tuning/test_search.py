"""Searches: deterministic, replayable, without repeats; pruning as Optuna's own median does."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from transcf.errors import MissingExtraError
from transcf.models.registry import create
from transcf.tuning import Search, Tried
from transcf.tuning import search as searching
from transcf.tuning.pruning import LEAST, WARM_UP, is_behind
from transcf.tuning.spaces import grid_of


def hill(setting: dict[str, Any]) -> float:
    """Best at a learning rate of 0.03 and a regularization of 0.005."""
    made = create("bpr", **setting)
    rate, penalty = made.settings.learning_rate, made.settings.regularization
    return -(math.log(rate / 0.03) ** 2) - math.log(penalty / 0.005) ** 2


def climb(search: Search, most: int | None = None) -> list[Tried]:
    while most is None or len(search.history) < most:
        if (setting := search.ask()) is None:
            break
        search.tell(Tried(setting, "complete", hill(setting)))
    return search.history


@pytest.mark.parametrize("sampler", ["tpe", "random", "grid"])
def test_a_search_is_replayed_from_what_was_told(sampler: str) -> None:
    budget = {"trials": 24, "sampler": sampler}
    whole = climb(Search("bpr", budget, seed=5))
    assert len(whole) == 24
    assert whole[0].setting == {}
    assert len({str({**one.setting}) for one in whole}) == 24
    again = Search("bpr", budget, seed=5)
    for tried in whole[:13]:
        again.tell(tried)
    assert [one.setting for one in climb(again)] == [one.setting for one in whole]


def test_tpe_finds_the_hill_and_random_draws_are_behind() -> None:
    late = {
        sampler: [
            tried.figure or 0.0
            for seed in (0, 1)
            for tried in climb(Search("bpr", {"trials": 24, "sampler": sampler}, seed=seed))[-8:]
        ]
        for sampler in ("tpe", "random")
    }
    assert np.median(late["tpe"]) > np.median(late["random"]), "it learns from what was told"


def test_nothing_is_tried_twice_and_a_small_space_ends() -> None:
    fixed = {"shrinkage": 0.0}
    for sampler in ("grid", "random"):
        search = Search("itemknn", {"trials": 100, "sampler": sampler}, fixed=fixed)
        numbers = []
        while (setting := search.ask()) is not None:
            numbers.append(setting.get("n_neighbors", 100))
            search.tell(Tried(setting, "complete", 0.0))
        assert sorted(numbers) == [20, 50, 100, 200, 400, 1000]
    budget = {"trials": 100, "sampler": "tpe", "space": "paper"}
    search = Search("cml", budget, fixed={"dim": 8, "margin": 1.0, "learning_rate": 0.1})
    asked = list(iter(search.ask, None))
    assert {**search.usual, **asked[0]} == search.usual
    values = {float({**search.usual, **one}["regularization"]) for one in asked}
    assert values == {0.0, 0.001, 0.01, 0.1, float(search.usual["regularization"])}
    assert len(values) == len(asked)


def test_the_defaults_are_tried_once_whoever_says_them() -> None:
    start = {"dim": 32, "learning_rate": 0.05, "regularization": 0.01}
    search = Search("bpr", {"trials": 1000, "sampler": "grid"}, start=start)
    tried = [one.setting for one in climb(search)]
    assert tried[0] == {}
    assert start not in tried
    assert len(tried) == len(list(grid_of(search.space)))


def test_several_under_way_differ_and_one_can_be_given_back() -> None:
    search = Search("bpr", {"trials": 20, "sampler": "tpe"})
    asked = [search.ask() for _ in range(20)]
    assert len({str(one) for one in asked}) == 20
    assert search.ask() is None
    assert asked[3] is not None
    search.forget(asked[3])
    assert search.ask() is not None


def test_tpe_without_its_extra_is_an_error_that_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "transcf.tuning.tpe", None)
    with pytest.raises(MissingExtraError, match=r"transcf\[tune\]"):
        Search("bpr", {"trials": 3, "sampler": "tpe"})
    assert searching.Search("bpr", 3).ask() == {}


def test_pruning_agrees_with_the_median_of_optuna() -> None:
    optuna = pytest.importorskip("optuna", reason="optuna is not installed")
    rng, agreed = np.random.default_rng(0), []
    for _ in range(60):
        curves = np.maximum.accumulate(rng.random((rng.integers(3, 9), 6)), axis=1)
        *others, mine = [dict(enumerate(curve.tolist(), start=1)) for curve in curves]
        study = optuna.create_study(
            direction="maximize",
            pruner=optuna.pruners.MedianPruner(n_startup_trials=LEAST, n_warmup_steps=WARM_UP),
        )
        for curve in others:
            study.add_trial(
                optuna.trial.create_trial(value=max(curve.values()), intermediate_values=curve)
            )
        known = [Tried({}, "complete", max(curve.values()), curve=curve) for curve in others]
        trial, seen = study.ask(), {}
        for epoch, figure in mine.items():
            trial.report(figure, epoch)
            seen[epoch] = figure
            assert is_behind(seen, known) == trial.should_prune()
            agreed.append(is_behind(seen, known))
    assert 20 < sum(agreed) < len(agreed) - 20, "both answers came up"
