"""Search spaces: every value is allowed, and a budget is kept."""

from __future__ import annotations

import math

import pytest

from transcf.errors import ParameterError
from transcf.models.registry import available, create, model_class
from transcf.tuning import BUDGETS, settings_to_try
from transcf.tuning.spaces import space_of

#: Models without choices.
WITHOUT = {"popularity", "inverse-popularity", "random"}


@pytest.mark.parametrize("name", available())
def test_every_model_has_a_space_of_allowed_values(name: str) -> None:
    space, kind = space_of(name), model_class(name)
    assert bool(space) == (name not in WITHOUT)
    for parameter, values in space.items():
        assert len(values) == len(set(values))
        assert len(values) > 1 or parameter == "age_in", "a choice, or the unit of one"
        for value in values:
            model = create(name, **{parameter: value})
            assert type(model) is kind
            model.check_params()


@pytest.mark.parametrize("name", available())
def test_times_offer_what_a_model_knows(name: str) -> None:
    timed, rules = space_of(name, timed=True), model_class(name).rules()
    assert set(timed) <= set(rules)
    assert ("trend" in timed) == ("trend" in rules)
    assert ("history_recency" in timed) == (name in ("ease", "slim", "itemknn"))
    for setting in settings_to_try(name, "large", timed=True):
        create(name, **setting).check_params()


@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize("name", available())
def test_a_budget_allows_the_defaults_and_distinct_others(name: str, budget: str) -> None:
    settings = settings_to_try(name, budget)
    assert settings[0] == {}
    total = math.prod(map(len, space_of(name).values())) if space_of(name) else 0
    assert min(BUDGETS[budget], total) <= len(settings) <= BUDGETS[budget]
    params = [str(create(name, **setting).get_params()) for setting in settings]
    assert len(set(params)) == len(params)
    assert settings == settings_to_try(name, budget)


def test_an_unknown_budget_is_named() -> None:
    with pytest.raises(ParameterError, match="'huge'"):
        settings_to_try("ease", "huge")


def test_fixed_parameters_are_left_alone() -> None:
    settings = settings_to_try("itemknn", "large", fixed=["shrinkage"])
    assert all("shrinkage" not in setting for setting in settings)
    assert len(settings) == 1 + len(space_of("itemknn")["n_neighbors"]) - 1
