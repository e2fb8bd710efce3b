"""Settings: each written once, and everything else read from there."""

from __future__ import annotations

import dataclasses
import inspect
import re
from typing import Literal

import numpy as np
import pytest

from transcf.errors import ParameterError
from transcf.models.params import (
    Choice,
    Flag,
    Number,
    check,
    describe,
    fields_of,
    rules_of,
    setting,
    settings,
    signature_of,
    values_of,
)


@settings()
class Family:
    """What relatives share."""

    epochs: int = setting(30, "Most epochs.", low=1)
    seed: int | None = setting(None, "Where chance begins.", low=0, high=9)


@settings(epochs=5)
class Middle(Family):
    """One more."""

    rate: float = setting(0.5, "Step size.", above=0, high=2)


@settings(rate=0.1)
class Own(Middle):
    """All kinds of fields."""

    mode: Literal["slow", "quick"] = setting("slow", "How to go about it.")
    word: str = setting("b", "A word.", rule=Choice(("a", "b")))
    loud: bool = setting(True, "Whether to shout.")


def test_what_is_allowed_follows_from_types_and_bounds() -> None:
    assert rules_of(Own) == {
        "mode": Choice(("slow", "quick")),
        "word": Choice(("a", "b")),
        "loud": Flag(),
        "rate": Number(0, 2, above=True),
        "epochs": Number(1, whole=True),
        "seed": Number(0, 9, whole=True, optional=True),
    }


def test_own_fields_come_first_then_those_of_the_family() -> None:
    names = ["mode", "word", "loud", "rate", "epochs", "seed"]
    assert [entry.name for entry in fields_of(Own)] == names
    assert list(rules_of(Own)) == list(signature_of(Own).parameters) == names
    assert list(values_of(Own())) == names
    assert [entry.name for entry in fields_of(Family)] == ["epochs", "seed"]


def test_a_family_may_have_another_default_and_nothing_else() -> None:
    assert values_of(Family()) == {"epochs": 30, "seed": None}
    assert values_of(Middle()) == {"rate": 0.5, "epochs": 5, "seed": None}
    assert values_of(Own())["epochs"] == 5, "the nearest relative's"
    assert values_of(Own())["rate"] == 0.1
    for name in ("epochs", "seed"):
        metadata = [
            next(entry.metadata for entry in fields_of(kind) if entry.name == name)
            for kind in (Family, Middle, Own)
        ]
        assert metadata[0]["meaning"] == metadata[1]["meaning"] == metadata[2]["meaning"]
        assert metadata[0]["rule"] == metadata[1]["rule"] == metadata[2]["rule"]


def test_a_default_for_a_field_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(KeyError, match="colour"):

        @settings(colour="red")
        class Wrong(Family):
            """Means another field."""


def test_settings_are_values() -> None:
    assert Own(epochs=7) == Own(epochs=7) != Own(epochs=8)
    with pytest.raises(dataclasses.FrozenInstanceError):
        Own().epochs = 3  # type: ignore[misc]
    with pytest.raises(TypeError):
        Own(3)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="colour"):
        Own(colour="red")  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        Middle(**values_of(Own()))


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"epochs": 0}, "M: epochs=0 is not allowed; it must be a whole number of at least 1."),
        ({"epochs": 1.0}, "M: epochs=1.0 is not allowed"),
        ({"epochs": True}, "M: epochs=True is not allowed"),
        ({"seed": 10}, "whole number of at least 0 and at most 9 or None."),
        ({"rate": 0}, "M: rate=0 is not allowed; it must be a number above 0 and at most 2."),
        ({"rate": float("nan")}, "M: rate=nan is not allowed"),
        ({"mode": "fast"}, "M: mode='fast' is not allowed; it must be one of 'slow', 'quick'."),
        ({"word": None}, "M: word=None is not allowed; it must be one of 'a', 'b'."),
        ({"loud": 1}, "M: loud=1 is not allowed; it must be True or False."),
    ],
)
def test_check_names_parameter_value_and_rule(wrong: dict[str, object], sentence: str) -> None:
    with pytest.raises(ParameterError, match=re.escape(sentence)):
        check("M", Own(**wrong))


def test_what_is_allowed_passes() -> None:
    for values in (
        Own(),
        Own(seed=0, rate=2, mode="quick", word="a", loud=False),
        Own(epochs=np.int64(3), seed=np.int32(9), rate=np.float32(0.25)),
    ):
        assert all(rule.allows(getattr(values, name)) for name, rule in rules_of(Own).items())
        check("M", values)


def test_the_first_wrong_value_is_named() -> None:
    with pytest.raises(ParameterError, match="mode=3"):
        check("M", Own(mode=3, epochs=0))


def test_the_signature_has_every_field_by_name_with_its_default() -> None:
    for entry in signature_of(Own).parameters.values():
        assert entry.kind is inspect.Parameter.KEYWORD_ONLY
        assert entry.default == values_of(Own())[entry.name]
        assert entry.annotation is not inspect.Parameter.empty
    assert dict(signature_of(Own).parameters).keys() == rules_of(Own).keys()


def test_the_description_says_meaning_rule_and_default() -> None:
    text = describe(Own)
    assert text.splitlines()[0] == "Args:"
    assert max(map(len, text.splitlines())) <= 92
    words = " ".join(text.split())
    for sentence in (
        "mode: How to go about it. (one of 'slow', 'quick'; default 'slow')",
        "loud: Whether to shout. (default True)",
        "rate: Step size. (a number above 0 and at most 2; default 0.1)",
        "epochs: Most epochs. (a whole number of at least 1; default 5)",
        "seed: Where chance begins. (a whole number of at least 0 and at most 9 or None; "
        "default None)",
    ):
        assert sentence in words


def test_a_class_without_fields_has_nothing_to_say() -> None:
    @settings()
    class Nothing:
        """Nothing to set."""

    assert (fields_of(Nothing), rules_of(Nothing), values_of(Nothing())) == ((), {}, {})
    check("M", Nothing())


def test_a_field_that_is_written_again_has_the_new_meaning() -> None:
    @settings()
    class Again(Family):
        """Its epochs are something else."""

        epochs: int = setting(2, "Rounds.", low=2, high=4)

    assert rules_of(Again)["epochs"] == Number(2, 4, whole=True)
    assert rules_of(Family)["epochs"] == Number(1, whole=True), "the family keeps its own"
    assert [entry.metadata["meaning"] for entry in fields_of(Again)][-2:] == [
        "Rounds.",
        "Where chance begins.",
    ]
