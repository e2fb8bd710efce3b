"""Search spaces: every value is allowed, and a budget is kept."""

from __future__ import annotations

import math
import re
from itertools import islice
from typing import Any

import pytest

from transcf.errors import ParameterError
from transcf.experiments.search import (
    BUDGETS,
    Budget,
    Range,
    Search,
    grid_of,
    space_of,
)
from transcf.models.registry import available, create, model_class


def settings_to_try(model: str, budget: Any, **options: Any) -> list[dict[str, Any]]:
    search = Search(model, budget, **options)
    return list(islice(search.settings(), search.budget.trials))


#: Models without choices.
WITHOUT = {"popularity", "inverse-popularity", "random", "blend"}


@pytest.mark.parametrize("name", available())
def test_every_model_has_a_space_of_allowed_values(name: str) -> None:
    space, kind = space_of(name), model_class(name)
    assert bool(space) == (name not in WITHOUT)
    for parameter, choice in space.items():
        values = choice
        if isinstance(choice, Range):
            values = choice.points
            assert all(choice.low <= value <= choice.high for value in values)
            values = [choice.low, *values[1:-1], choice.high]
        assert len(values) == len(set(values))
        assert len(values) > 1 or parameter == "age_in", "a choice, or the unit of one"
        for value in values:
            model = create(name, **{parameter: value})
            assert type(model) is kind
            model._check_params()


@pytest.mark.parametrize("name", available())
def test_times_offer_what_a_model_knows(name: str) -> None:
    timed, rules = space_of(name, timed=True), model_class(name)._rules()
    assert set(timed) <= set(rules)
    assert ("trend" in timed) == ("trend" in rules)
    assert ("history_recency" in timed) == (name in ("ease", "slim", "itemknn"))
    for setting in settings_to_try(name, "large", timed=True):
        create(name, **setting)._check_params()


@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize("name", available())
def test_a_budget_allows_the_defaults_and_distinct_others(name: str, budget: str) -> None:
    settings = settings_to_try(name, budget)
    assert settings[0] == {}
    total = sum(1 for _ in grid_of(space_of(name)))
    assert min(BUDGETS[budget], total) <= len(settings) <= BUDGETS[budget]
    params = [str(create(name, **setting).get_params()) for setting in settings]
    assert len(set(params)) == len(params)
    assert settings == settings_to_try(name, budget)


@pytest.mark.parametrize(
    ("budget", "words"),
    [
        ("huge", "There is no budget 'huge'"),
        (0, "trials=0 is not allowed"),
        (True, "There is no budget True"),
        ({"sampler": "tpe"}, "write trials"),
        (
            {"trials": 5, "sampler": "bayes"},
            "sampler='bayes' is not allowed; it must be",
        ),
        ({"trials": 5, "space": {"dim": [8]}}, "'dim', which is no parameter of EASE"),
        ({"trials": 5, "space": {"regularization": 8}}, "regularization = 8: give a list"),
        ({"trials": 5, "space": {"regularization": {"low": 1.0}}}, "low, high, points"),
        ({"trials": 5, "space": "all"}, "space='all' is not allowed; it must be one of 'default'"),
    ],
)
def test_a_budget_that_is_none_is_named(budget: Any, words: str) -> None:
    with pytest.raises(ParameterError, match=re.escape(words)):
        settings_to_try("ease", budget)


def test_budgets_are_words_numbers_and_tables() -> None:
    assert Budget.of("12") == Budget.of(12) == Budget.of({"trials": 12})
    assert Budget.of({"trials": "small", "space": "paper"}) == Budget(3, "random", "paper")


def test_the_grid_of_the_paper_is_that_of_the_paper() -> None:
    ours = space_of("transcf", space="paper")
    assert math.prod(map(len, ours.values())) == 5 * 6 * 8 * 4 * 4
    assert set(space_of("cml", space="paper")) == {
        "dim",
        "learning_rate",
        "margin",
        "regularization",
    }
    assert space_of("eals", space="paper")["regularization"] == [0.001, 0.01, 0.1], "0 is none"


def test_a_range_has_its_ends_in_order() -> None:
    with pytest.raises(ParameterError, match="low has to be below high"):
        Range(1.0, 1.0, (1.0,))
    with pytest.raises(ParameterError, match="above 0 with log"):
        Range(0.0, 1.0, (0.5,), log=True)


def test_fixed_parameters_are_left_alone() -> None:
    settings = settings_to_try("itemknn", "large", fixed={"shrinkage": 0.0})
    assert all("shrinkage" not in setting for setting in settings)
    assert len(settings) == 1 + len(space_of("itemknn")["n_neighbors"].points) - 1
