"""What a hyper-parameter may be: numbers in a range, words, true and false, or a text."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from numbers import Integral, Rational, Real
from typing import TypeAlias

from transcf.errors import ParameterError, did_you_mean, is_word, shown

Value: TypeAlias = int | float | str | bool | None


#: The largest whole number that kernels can be given.
_LARGEST = 2**63 - 1


@dataclass(frozen=True)
class Number:
    """A number in a range; bounds are allowed values unless `above` is set.

    Args:
        low: Smallest allowed value.
        high: Largest allowed value.
        above: Whether `low` itself is excluded.
        whole: Whether only integers are allowed.
        optional: Whether None is allowed.
    """

    low: float = -math.inf
    high: float = math.inf
    above: bool = False
    whole: bool = False
    optional: bool = False

    def allows(self, value: object) -> bool:
        """Whether a value may be used."""
        if value is None:
            return self.optional
        if isinstance(value, bool) or not isinstance(value, Integral if self.whole else Real):
            return False
        if isinstance(value, Rational) and not isinstance(value, Integral):
            return False  # arrays cannot take a fraction
        number = int(value) if isinstance(value, Integral) else float(value)
        if abs(number) > _LARGEST if isinstance(number, int) else not math.isfinite(number):
            return False
        return (number > self.low if self.above else number >= self.low) and number <= self.high

    def __str__(self) -> str:
        """Say it in words."""
        text = "a whole number" if self.whole else "a number"
        if self.low > -math.inf:
            text += f" {'above' if self.above else 'of at least'} {self.low:g}"
        if self.high < math.inf:
            text += f"{' and' if self.low > -math.inf else ''} at most {self.high:g}"
        return text + (" or None" if self.optional else "")


@dataclass(frozen=True)
class Choice:
    """One of a few words."""

    words: tuple[str, ...]

    def allows(self, value: object) -> bool:
        """Whether a value may be used."""
        return is_word(value, self.words)

    def __str__(self) -> str:
        """Say it in words."""
        return "one of " + ", ".join(map(repr, self.words))


@dataclass(frozen=True)
class Flag:
    """True or False."""

    def allows(self, value: object) -> bool:
        """Whether a value may be used."""
        return isinstance(value, bool)

    def __str__(self) -> str:
        """Say it in words."""
        return "True or False"


@dataclass(frozen=True)
class Text:
    """A text that somebody has to understand.

    Args:
        words: What it is, after "it must be".
        read: Understands it, or raises a `ParameterError` that says why not.
    """

    words: str
    read: Callable[[str], object]

    def allows(self, value: object) -> bool:
        """Whether a value may be used."""
        return isinstance(value, str) and not self.objection(value)

    def objection(self, text: str) -> str:
        """Say why a text is not understood; nothing if it is."""
        try:
            self.read(text)
        except ParameterError as error:
            return str(error).removesuffix(".")
        return ""

    def __str__(self) -> str:
        """Say it in words."""
        return self.words


@dataclass(frozen=True)
class Group:
    """Several values in one object, such as `EventWeights`.

    Args:
        kind: Its class.
    """

    kind: type

    def allows(self, value: object) -> bool:
        """Whether a value may be used."""
        return isinstance(value, self.kind)

    def __str__(self) -> str:
        """Say it in words."""
        return f"an {self.kind.__name__}"


Rule: TypeAlias = Number | Choice | Flag | Text | Group


def refusal(owner: str, name: str, value: object, rule: Rule) -> ParameterError:
    """Return the error for a value that its rule does not allow.

    Example:
        >>> print(refusal("EASE", "regularization", -1, Number(low=0)))
        EASE: regularization=-1 is not allowed; it must be a number of at least 0.
    """
    why = rule.objection(value) if isinstance(rule, Text) and isinstance(value, str) else ""
    return ParameterError(
        f"{owner}: {name}={shown(value)} is not allowed; it must be {rule}{why and f' ({why})'}."
    )


def parse(model: str, name: str, text: str, rules: Mapping[str, Rule]) -> Value:
    """Read a value given as text (`--set name=text`) by its rule.

    Example:
        >>> parse("EASE", "regularization", "300", {"regularization": Number(low=0)})
        300
    """
    if name not in rules:
        known = ", ".join(rules) or "none"
        raise ParameterError(
            f"{model} has no parameter {name!r}; it has: {known}.{did_you_mean(name, rules)}"
        )
    value: Value = text
    lowered = text.strip().lower()
    if lowered in ("none", "true", "false"):
        value = {"none": None, "true": True, "false": False}[lowered]
    else:
        for kind in (int, float):
            try:
                value = kind(text)
                break
            except ValueError:
                continue
    if isinstance(rules[name], Choice | Text):
        value = text
    if not rules[name].allows(value):
        raise refusal(model, name, value, rules[name])
    return value
