"""The rules that check hyper-parameters, and read them from text."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest

from transcf.data.synthetic import synthesize
from transcf.errors import ParameterError
from transcf.models.families import IterationSettings
from transcf.models.params import Choice, Flag, Number, Rule, Text, parse, rules_of
from transcf.models.registry import create


def shout(text: str) -> None:
    if text != text.upper():
        raise ParameterError(f"{text!r} is too quiet.")


@pytest.mark.parametrize(
    ("rule", "good", "bad"),
    [
        (Number(low=0), [0, 0.5, 10**9], [-1, "1", None, True, math.nan, math.inf]),
        (Number(low=0, above=True, high=1), [0.1, 1], [0, 1.1]),
        (Number(low=1, whole=True), [1, 7], [0, 1.0, 2.5]),
        (Number(optional=True), [None, -3], ["None"]),
        (rules_of(IterationSettings)["random_state"], [0, 2**63 - 1], [-1, 1.0, 2**63]),
        (Choice(("a", "b")), ["a"], ["c", None, 1]),
        (Flag(), [True, False], [1, "true", None]),
        (Text("loud", shout), ["A + B", ""], ["a", None, 1]),
    ],
)
def test_rules(rule: Rule, good: list[object], bad: list[object]) -> None:
    assert all(rule.allows(value) for value in good)
    assert not any(rule.allows(value) for value in bad)


@pytest.mark.parametrize(
    ("rule", "text", "value"),
    [
        (Number(), "300", 300),
        (Number(), "1e-3", 0.001),
        (Number(optional=True), "none", None),
        (Flag(), "True", True),
        (Choice(("7", "b")), "7", "7"),
        (Text("loud", shout), "7", "7"),
    ],
)
def test_text_is_read_by_the_rule(rule: Rule, text: str, value: object) -> None:
    assert parse("M", "p", text, {"p": rule}) == value


@pytest.mark.parametrize(("rule", "text"), [(Number(), "nan"), (Number(), "x"), (Flag(), "1")])
def test_bad_text_is_refused(rule: Number | Flag, text: str) -> None:
    with pytest.raises(ParameterError, match="p="):
        parse("M", "p", text, {"p": rule})


def test_a_text_that_is_not_understood_is_told_why() -> None:
    with pytest.raises(ParameterError) as told:
        parse("M", "p", "a", {"p": Text("loud", shout)})
    assert str(told.value) == "M: p='a' is not allowed; it must be loud ('a' is too quiet)."


def test_numbers_that_no_array_takes() -> None:
    for wrong in (Fraction(1, 3), 2**63, -(10**400)):
        assert not Number().allows(wrong)
    assert not Number(whole=True).allows(2**63)
    assert Number(whole=True).allows(2**63 - 1)
    assert Number().allows(1e300)


@pytest.mark.parametrize(
    ("name", "params"),
    [
        ("lightgcn", {"regularization": 1e300}),
        ("bpr", {"samples_per_user": 2**63 - 1}),
        ("fism", {"samples_per_user": 2**63 - 1}),
    ],
)
def test_values_beyond_the_arithmetic_are_refused_in_a_sentence(name: str, params: dict) -> None:
    with pytest.raises(ParameterError, match=f"{next(iter(params))}.*at most"):
        create(name, **params).fit(synthesize(users=30, items=20, interactions=200, seed=0))
