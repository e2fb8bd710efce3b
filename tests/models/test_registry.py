"""Names, parameters and the rules that check them."""

from __future__ import annotations

import math

import pytest

from transcf.errors import ParameterError
from transcf.models.registry import available, create, model_class
from transcf.models.rules import SEED, Choice, Flag, Number, check, parse


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
    ("rule", "good", "bad"),
    [
        (Number(low=0), [0, 0.5, 10**9], [-1, "1", None, True, math.nan, math.inf]),
        (Number(low=0, above=True, high=1), [0.1, 1], [0, 1.1]),
        (Number(low=1, whole=True), [1, 7], [0, 1.0, 2.5]),
        (Number(optional=True), [None, -3], ["None"]),
        (SEED, [0, 2**63 - 1], [-1, 1.0]),
        (Choice(("a", "b")), ["a"], ["c", None, 1]),
        (Flag(), [True, False], [1, "true", None]),
    ],
)
def test_rules(rule: Number | Choice | Flag, good: list[object], bad: list[object]) -> None:
    assert all(rule.allows(value) for value in good)
    assert not any(rule.allows(value) for value in bad)


def test_check_names_parameter_value_and_rule() -> None:
    with pytest.raises(ParameterError, match="M: n=0 is not allowed; it must be a whole number of"):
        check("M", {"n": 0}, {"n": Number(low=1, whole=True)})


@pytest.mark.parametrize(
    ("rule", "text", "value"),
    [
        (Number(), "300", 300),
        (Number(), "1e-3", 0.001),
        (Number(optional=True), "none", None),
        (Flag(), "True", True),
        (Choice(("7", "b")), "7", "7"),
    ],
)
def test_text_is_read_by_the_rule(rule: Number | Choice | Flag, text: str, value: object) -> None:
    assert parse("M", "p", text, {"p": rule}) == value


@pytest.mark.parametrize(("rule", "text"), [(Number(), "nan"), (Number(), "x"), (Flag(), "1")])
def test_bad_text_is_refused(rule: Number | Flag, text: str) -> None:
    with pytest.raises(ParameterError, match="p="):
        parse("M", "p", text, {"p": rule})
