"""Searches: deterministic, replayable, without repeats."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from transcf.errors import MissingExtraError
from transcf.experiments.search import Search, Trial, grid_of
from transcf.models.registry import create


def hill(setting: dict[str, Any]) -> float:
    """Best at a learning rate of 0.03 and a regularization of 0.005."""
    made = create("bpr", **setting)
    rate, penalty = made.settings.learning_rate, made.settings.regularization
    return -(math.log(rate / 0.03) ** 2) - math.log(penalty / 0.005) ** 2


def climb(search: Search, *finished: Trial) -> list[Trial]:
    history = list(finished)
    while (setting := search.ask(history)) is not None:
        history.append(Trial(setting, "complete", hill(setting)))
    return history


@pytest.mark.parametrize("sampler", ["tpe", "random", "grid"])
def test_a_search_is_replayed_from_what_was_told(sampler: str) -> None:
    budget = {"trials": 24, "sampler": sampler}
    whole = climb(Search("bpr", budget, seed=5))
    assert len(whole) == 24
    assert whole[0].setting == {}
    assert len({str({**one.setting}) for one in whole}) == 24
    again = climb(Search("bpr", budget, seed=5), *whole[:13])
    assert [one.setting for one in again] == [one.setting for one in whole]


def test_tpe_finds_the_hill_and_random_draws_are_behind() -> None:
    late = {
        sampler: [
            trial.figure or 0.0
            for seed in (0, 1)
            for trial in climb(Search("bpr", {"trials": 24, "sampler": sampler}, seed=seed))[-8:]
        ]
        for sampler in ("tpe", "random")
    }
    assert np.median(late["tpe"]) > np.median(late["random"]), "it learns from what was told"


def test_nothing_is_tried_twice_and_a_small_space_ends() -> None:
    fixed = {"shrinkage": 0.0}
    for sampler in ("grid", "random"):
        search = Search("itemknn", {"trials": 100, "sampler": sampler}, fixed=fixed)
        numbers, history = [], list[Trial]()
        while (setting := search.ask(history)) is not None:
            numbers.append(setting.get("n_neighbors", 100))
            history.append(Trial(setting, "complete", 0.0))
        assert sorted(numbers) == [20, 50, 100, 200, 400, 1000]
    budget = {"trials": 100, "sampler": "tpe", "space": "paper"}
    search = Search("cml", budget, fixed={"dim": 8, "margin": 1.0, "learning_rate": 0.1})
    asked: list[dict[str, Any]] = []
    while (setting := search.ask([], asked)) is not None:
        asked.append(setting)
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


def test_running_settings_are_not_proposed_again() -> None:
    search = Search("bpr", {"trials": 20, "sampler": "tpe"})
    running: list[dict[str, Any]] = []
    for _ in range(20):
        running.append(search.ask([], running) or {})
    assert len({str(one) for one in running}) == 20


def test_tpe_without_its_extra_is_an_error_that_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "optuna", None)
    with pytest.raises(MissingExtraError, match=r"transcf\[tune\]"):
        Search("bpr", {"trials": 3, "sampler": "tpe"})
    assert Search("bpr", 3).ask([]) == {}
