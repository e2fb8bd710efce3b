"""Names of models, and what they stand for."""

from __future__ import annotations

import pytest

from transcf import TransCF
from transcf.errors import ParameterError
from transcf.models.params import values_of
from transcf.models.registry import (
    available,
    create,
    model_class,
    name_and_params,
    preset_of,
    presets,
)


@pytest.mark.parametrize(
    "spelling", ["InversePopularity", "inverse_popularity", "INVERSE-popularity"]
)
def test_spelling_does_not_matter(spelling: str) -> None:
    assert model_class(spelling).name == "inverse-popularity"


def test_unknown_names_list_the_known_ones() -> None:
    with pytest.raises(ParameterError, match=r"no model 'eas'.*popularity, .*ease"):
        create("eas")
    with pytest.raises(ParameterError, match=r"has no parameter 'reg'; it has: regularization"):
        create("ease", reg=3)


def test_create_passes_parameters_on() -> None:
    assert create("ease", regularization=7.0).get_params()["regularization"] == 7.0
    assert len(set(available())) == len(available())


@pytest.mark.parametrize(
    "name", [name for name in available() if model_class(name).__name__ in presets()]
)
def test_every_variant_can_be_made_as_a_preset_says(name: str) -> None:
    params = preset_of(name, "paper")
    model = create(name, **params)
    model._check_params()
    assert values_of(model.settings).items() >= params.items()


def test_a_model_is_made_again_of_its_name_and_parameters() -> None:
    assert name_and_params(TransCF(variant="dot")) == ("transcf-dot", {})
    for model in (TransCF.paper("ciao"), *map(create, available())):
        name, params = name_and_params(model)
        assert create(name, **params).get_params() == model.get_params()
