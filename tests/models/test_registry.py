"""Names of models, and what they stand for."""

from __future__ import annotations

import pytest

from transcf.errors import ParameterError
from transcf.models.registry import available, create, model_class


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
