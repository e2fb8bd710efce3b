"""Hyper-parameters, each written once: name, type, what it allows, default and meaning.

A model's settings are a frozen class with one field for each:

    @settings(epochs=40)
    class BPRSettings(TripleSettings):
        learning_rate: float = setting(0.05, "Step size for each triple.", above=0)

Families inherit, and may give a field that they inherit another default, as `epochs` here. What a
field allows follows from its type and bounds. Signatures, documentation, checks, the command line,
saved models and solvers all read these fields; nothing repeats them.
"""

from __future__ import annotations

import inspect
import math
import textwrap
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import Field, dataclass, field, fields, is_dataclass, replace
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, cast, dataclass_transform, get_args, get_origin
from typing import get_type_hints as hints_of

from transcf.errors import ParameterError
from transcf.models.rules import Choice, Flag, Group, Number, Rule, refusal

T = TypeVar("T")


def setting(
    default: Any,
    meaning: str,
    *,
    low: float = -math.inf,
    above: float | None = None,
    high: float = math.inf,
    words: Sequence[str] | None = None,
    rule: Rule | None = None,
) -> Any:
    """Describe a field.

    Args:
        default: Its value unless another is given.
        meaning: What it does, in a sentence or two.
        low: Smallest number allowed.
        above: Numbers have to be larger than this one.
        high: Largest number allowed.
        words: What a field of text allows, where its type does not say so.
        rule: What it allows, where none of these can say it.
    """
    bounds = Number(low if above is None else above, high, above is not None)
    metadata = {"meaning": meaning, "bounds": bounds, "words": words, "rule": rule}
    return field(default=default, metadata=metadata)


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(setting,))
def settings(**defaults: Any) -> Callable[[type[T]], type[T]]:
    """Make a class of settings; `defaults` replace those of inherited fields."""

    def make(kind: type[T]) -> type[T]:
        inherited: dict[str, Field[Any]] = {}
        for parent in reversed(kind.__mro__[1:]):
            inherited |= getattr(parent, "__dataclass_fields__", {})
        hints = hints_of(kind)
        own = list(inspect.get_annotations(kind))
        for name, default in defaults.items():
            metadata = inherited[name].metadata
            setattr(kind, name, field(default=default, metadata=metadata))
            kind.__annotations__[name] = inherited[name].type
        made = dataclass(frozen=True, kw_only=True, eq=True)(kind)
        found: dict[str, Field[Any]] = getattr(made, "__dataclass_fields__")  # noqa: B009
        for name in own:
            rule = found[name].metadata["rule"] or _rule(hints[name], found[name].metadata)
            found[name].metadata = {**found[name].metadata, "rule": rule}  # type: ignore[assignment]
        return made

    return make


def _rule(hint: Any, metadata: Mapping[str, Any]) -> Rule:
    """Return what values of a type allow."""
    parts = set(get_args(hint)) if get_origin(hint) in (Union, UnionType) else {hint}
    optional = NoneType in parts
    (plain,) = parts - {NoneType}
    if plain is bool:
        return Flag()
    if is_dataclass(plain):
        return Group(cast(type, plain))
    if plain is str or get_origin(plain) is Literal:
        return Choice(tuple(metadata["words"] or get_args(plain)))
    bounds: Number = metadata["bounds"]
    return Number(bounds.low, bounds.high, bounds.above, plain is int, optional)


def fields_of(kind: type) -> list[Field[Any]]:
    """Return the fields of a class of settings: its own first, then those of its family."""
    found = {entry.name: entry for entry in fields(kind)}
    order: dict[str, None] = {}
    for parent in reversed(kind.__mro__):
        own = [name for name in inspect.get_annotations(parent) if name not in order]
        order = dict.fromkeys([*own, *order])
    return [found[name] for name in order if name in found]


def flat_fields(kind: type) -> list[Field[Any]]:
    """Return the same with the fields of a group, such as `event_weights`, in its place."""
    found: list[Field[Any]] = []
    for entry in fields_of(kind):
        rule = entry.metadata["rule"]
        found += flat_fields(rule.kind) if isinstance(rule, Group) else [entry]
    return found


def rules_of(kind: type) -> dict[str, Rule]:
    """Return what each field of a class of settings allows; groups are taken apart."""
    return {entry.name: entry.metadata["rule"] for entry in flat_fields(kind)}


def params_of(values: Any) -> dict[str, Any]:
    """Return the values of settings by name, as a constructor takes them."""
    return {entry.name: getattr(values, entry.name) for entry in fields_of(type(values))}


def values_of(values: Any) -> dict[str, Any]:
    """Return the values of settings by name, groups taken apart.

    This is the form of parameters in files and on the command line, JSON values only.
    """
    return flat_params(params_of(values))


def flat_params(params: Mapping[str, Any]) -> dict[str, Any]:
    """Take groups among parameters apart.

    Raises:
        ParameterError: A value is given by itself and in its group.
    """
    found: dict[str, Any] = {}
    for name, value in params.items():
        own = params_of(value) if is_dataclass(value) else {name: value}
        _check_once(name, own.keys() & (params.keys() - {name}))
        found |= own
    return found


def nested_params(kind: type, params: Mapping[str, Any], base: Any = None) -> dict[str, Any]:
    """Put values that belong to a group into it.

    Args:
        kind: The class of settings.
        params: Some of its parameters; values of a group may be given by themselves.
        base: Settings whose groups have the other values; None takes the defaults.

    Raises:
        ParameterError: A value is given by itself and in its group.
    """
    found = dict(params)
    for entry in fields_of(kind):
        rule = entry.metadata["rule"]
        if isinstance(rule, Group):
            names = [part.name for part in fields(rule.kind) if part.name in found]
            if names:
                _check_once(entry.name, names if entry.name in found else ())
                group: Any = entry.default if base is None else getattr(base, entry.name)
                own = {name: found.pop(name) for name in names}
                found[entry.name] = replace(group, **own)
    return found


def _check_once(group: str, names: Collection[str]) -> None:
    if names:
        raise ParameterError(f"{min(names)!r} is given twice: by itself and in {group!r}.")


def check(owner: str, values: Any, names: Collection[str] | None = None) -> None:
    """Raise a `ParameterError` for the first value that its rule does not allow.

    Args:
        owner: What the error calls the model.
        values: The settings.
        names: Which of them to check; None checks all.
    """
    for entry in fields_of(type(values)):
        value, rule = getattr(values, entry.name), entry.metadata["rule"]
        if names is None or entry.name in names:
            if not rule.allows(value):
                raise refusal(owner, entry.name, value, rule)
            if isinstance(rule, Group):
                check(owner, value)


def signature_of(kind: type) -> inspect.Signature:
    """Return the constructor's signature: every field by name, with its default."""
    hints = {entry.name: entry.type for entry in fields(kind)}
    return inspect.Signature(
        [
            inspect.Parameter(
                entry.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=entry.default,
                annotation=hints[entry.name],
            )
            for entry in fields_of(kind)
        ]
    )


def describe(kind: type) -> str:
    """Write the section `Args:` of a docstring."""
    lines = []
    for entry in fields_of(kind):
        rule, default = entry.metadata["rule"], entry.default
        allowed = "" if isinstance(rule, Flag) else f" ({rule}; default {default!r})"
        text = f"{entry.name}: {entry.metadata['meaning']}{allowed or f' (default {default!r})'}"
        # A value such as "log-ratings" stays whole, as somebody will type it.
        wrapped = textwrap.fill(
            text,
            92,
            initial_indent=" " * 4,
            subsequent_indent=" " * 8,
            break_on_hyphens=False,
        )
        lines.append(wrapped)
    return "\n".join(["Args:", *lines])
