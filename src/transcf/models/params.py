"""Hyper-parameters: name, type, allowed values, default and meaning, each written once.

The settings of a model are a frozen class with one field for each parameter:

    @settings(epochs=40)
    class BPRSettings(TripleSettings):
        learning_rate: float = setting(0.05, "Step size for each triple.", above=0)

A class may give an inherited field another default, as `epochs` here. What a field allows follows
from its type and bounds. Signatures, documentation, checks, the command line, saved models and
solvers all read these fields. A field may be a group of parameters, such as `event_weights`, whose
fields are parameters of their own in files and on the command line.
"""

from __future__ import annotations

import inspect
import math
import textwrap
from collections.abc import Callable, Collection, Mapping
from dataclasses import Field, dataclass, field, fields, is_dataclass, replace
from functools import cache
from numbers import Integral, Rational, Real
from types import NoneType, UnionType
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Concatenate,
    Generic,
    Literal,
    Never,
    ParamSpec,
    TypeAlias,
    TypeVar,
    Union,
    cast,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
)

from transcf.errors import ParameterError, UnsupportedError, did_you_mean, is_word, shown
from transcf.models import aliases

Value: TypeAlias = int | float | str | bool | None
S = TypeVar("S")
T = TypeVar("T")
P = ParamSpec("P")

_ATTRIBUTES = "Attributes (after `fit`):"
#: The largest whole number that kernels can be given.
_LARGEST = 2**63 - 1


# -- what a parameter allows -------------------------------------------------------------------


@dataclass(frozen=True)
class Number:
    """A number in a range; `low` itself is excluded with `above`.

    Some allow None (`optional`), or words instead of a number.
    """

    low: float = -math.inf
    high: float = math.inf
    above: bool = False
    whole: bool = False
    optional: bool = False
    words: tuple[str, ...] = ()

    def allows(self, value: object) -> bool:  # noqa: D102
        if value is None:
            return self.optional
        if isinstance(value, str):
            return value in self.words
        if isinstance(value, bool) or not isinstance(value, Integral if self.whole else Real):
            return False
        if isinstance(value, Rational) and not isinstance(value, Integral):
            return False  # arrays cannot take a fraction
        number = int(value) if isinstance(value, Integral) else float(value)
        if abs(number) > _LARGEST if isinstance(number, int) else not math.isfinite(number):
            return False
        return (number > self.low if self.above else number >= self.low) and number <= self.high

    def __str__(self) -> str:
        text = "a whole number" if self.whole else "a number"
        if self.low > -math.inf:
            text += f" {'above' if self.above else 'of at least'} {self.low:g}"
        if self.high < math.inf:
            text += f"{' and' if self.low > -math.inf else ''} at most {self.high:g}"
        return " or ".join([text, *map(repr, self.words), *(["None"] if self.optional else [])])


@dataclass(frozen=True)
class Choice:
    """One of a few words."""

    words: tuple[str, ...]

    def allows(self, value: object) -> bool:  # noqa: D102
        return is_word(value, self.words)

    def __str__(self) -> str:
        return "one of " + ", ".join(map(repr, self.words))


@dataclass(frozen=True)
class Flag:
    """True or False."""

    def allows(self, value: object) -> bool:  # noqa: D102
        return isinstance(value, bool)

    def __str__(self) -> str:
        return "True or False"


@dataclass(frozen=True)
class Text:
    """Text that is parsed by `read`, which raises a `ParameterError`; `words` describe it."""

    words: str
    read: Callable[[str], object]

    def allows(self, value: object) -> bool:  # noqa: D102
        return isinstance(value, str) and not self.objection(value)

    def objection(self, text: str) -> str:
        """Return why a text is not understood; "" if it is."""
        try:
            self.read(text)
        except ParameterError as error:
            return str(error).removesuffix(".")
        return ""

    def __str__(self) -> str:
        return self.words


@dataclass(frozen=True)
class Group:
    """Several values in one object of a class of settings, such as `EventWeights`."""

    kind: type

    def allows(self, value: object) -> bool:  # noqa: D102
        return isinstance(value, self.kind)

    def __str__(self) -> str:
        return f"an {self.kind.__name__}"


Rule: TypeAlias = Number | Choice | Flag | Text | Group


def refusal(owner: str, name: str, value: object, rule: Rule) -> ParameterError:
    """Return the error for a value that its rule does not allow."""
    why = rule.objection(value) if isinstance(rule, Text) and isinstance(value, str) else ""
    return ParameterError(
        f"{owner}: {name}={shown(value)} is not allowed; it must be {rule}{why and f' ({why})'}."
    )


def unknown_name(owner: str, name: str, rules: Mapping[str, Rule]) -> ParameterError:
    """Return the error for a name that is no parameter."""
    return ParameterError(
        f"{owner} has no parameter {name!r}; it has: {', '.join(rules) or 'none'}."
        f"{did_you_mean(name, rules)}"
    )


def parse(owner: str, name: str, text: str, rules: Mapping[str, Rule]) -> Value:
    """Read a value given as text (`--set name=text`) by its rule."""
    if name not in rules:
        raise unknown_name(owner, name, rules)
    value: Value = text
    if not isinstance(rules[name], Choice | Text):
        lowered = text.strip().lower()
        for read in ({"none": None, "true": True, "false": False}.__getitem__, int, float):
            try:
                value = read(lowered)
                break
            except (KeyError, ValueError):
                continue
    if not rules[name].allows(value):
        raise refusal(owner, name, value, rules[name])
    return value


# -- fields ------------------------------------------------------------------------------------


def setting(
    default: Any,
    meaning: str,
    *,
    low: float = -math.inf,
    above: float | None = None,
    high: float = math.inf,
    rule: Rule | None = None,
) -> Any:
    """Describe a field: default, meaning, and the allowed values of its type.

    Numbers have bounds: at least `low`, or larger than `above`, and at most `high`. A `rule` says
    what types and bounds cannot.
    """
    bounds = Number(low if above is None else above, high, above is not None)
    return field(default=default, metadata={"meaning": meaning, "bounds": bounds, "rule": rule})


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(setting,))
def settings(**defaults: Any) -> Callable[[type[T]], type[T]]:
    """Make a class of settings; `defaults` replace those of inherited fields."""

    def make(kind: type[T]) -> type[T]:
        inherited: dict[str, Field[Any]] = {}
        for parent in reversed(kind.__mro__[1:]):
            inherited |= getattr(parent, "__dataclass_fields__", {})
        hints, own = get_type_hints(kind), list(inspect.get_annotations(kind))
        for name, default in defaults.items():
            setattr(kind, name, field(default=default, metadata=inherited[name].metadata))
            kind.__annotations__[name] = inherited[name].type
        made = dataclass(frozen=True, kw_only=True, eq=True)(kind)
        for entry in fields(cast(Any, made)):
            if entry.name in own:
                rule = entry.metadata["rule"] or _rule(hints[entry.name], entry.metadata["bounds"])
                entry.metadata = {**entry.metadata, "rule": rule}  # type: ignore[assignment]
        return made

    return make


def _rule(hint: Any, bounds: Number) -> Rule:
    parts = set(get_args(hint)) if get_origin(hint) in (Union, UnionType) else {hint}
    (plain,) = parts - {NoneType}
    if plain is bool:
        return Flag()
    if is_dataclass(plain):
        return Group(cast(type, plain))
    if get_origin(plain) is Literal:
        return Choice(get_args(plain))
    return replace(bounds, whole=plain is int, optional=NoneType in parts)


def fields_of(kind: type) -> tuple[Field[Any], ...]:
    """Return the fields of a class of settings: its own first, then those of its family."""
    found = {entry.name: entry for entry in fields(kind)}
    order: dict[str, None] = {}
    for parent in reversed(kind.__mro__):
        own = [name for name in inspect.get_annotations(parent) if name not in order]
        order = dict.fromkeys([*own, *order])
    return tuple(found[name] for name in order if name in found)


@cache
def flat_fields(kind: type) -> tuple[Field[Any], ...]:
    """Return the same with the fields of a group, such as `event_weights`, in its place."""
    found: list[Field[Any]] = []
    for entry in fields_of(kind):
        rule = entry.metadata["rule"]
        found += flat_fields(rule.kind) if isinstance(rule, Group) else [entry]
    return tuple(found)


@cache
def rules_of(kind: type) -> Mapping[str, Rule]:
    """Return what each field allows; groups are taken apart."""
    return {entry.name: entry.metadata["rule"] for entry in flat_fields(kind)}


def params_of(values: Any) -> dict[str, Any]:
    """Return the values of settings by name, as a constructor takes them."""
    return {entry.name: getattr(values, entry.name) for entry in fields_of(type(values))}


def values_of(values: Any) -> dict[str, Any]:
    """Return the values of settings by name, groups taken apart, as in files: JSON values only."""
    return flat_params(params_of(values))


def flat_params(params: Mapping[str, Any]) -> dict[str, Any]:
    """Take groups among parameters apart."""
    found: dict[str, Any] = {}
    for name, value in params.items():
        own = params_of(value) if is_dataclass(value) else {name: value}
        _check_once(name, own.keys() & (params.keys() - {name}))
        found |= own
    return found


def nested_params(kind: type, params: Mapping[str, Any], base: Any = None) -> dict[str, Any]:
    """Put values that belong to a group into it; `base` has settings with its other values."""
    found = dict(params)
    for entry in fields_of(kind):
        rule = entry.metadata["rule"]
        names = rules_of(rule.kind).keys() & found.keys() if isinstance(rule, Group) else ()
        if names:
            _check_once(entry.name, names if entry.name in found else ())
            group: Any = entry.default if base is None else getattr(base, entry.name)
            found[entry.name] = replace(group, **{name: found.pop(name) for name in names})
    return found


def _check_once(group: str, names: Collection[str]) -> None:
    if names:
        raise ParameterError(f"{min(names)!r} is given twice: by itself and in {group!r}.")


def check(owner: str, values: Any, names: Collection[str] | None = None) -> None:
    """Raise a `ParameterError` for the first value, of these names, that is not allowed."""
    for entry in fields_of(type(values)):
        value, rule = getattr(values, entry.name), entry.metadata["rule"]
        if names is None or entry.name in names:
            if not rule.allows(value):
                raise refusal(owner, entry.name, value, rule)
            if isinstance(rule, Group):
                check(owner, value)


# -- models ------------------------------------------------------------------------------------


class Configurable(Generic[S]):
    """Base of models: constructor, attributes and documentation follow from the settings S."""

    _settings_class: ClassVar[type]
    #: Parameters of the next `fit`.
    settings: S
    if TYPE_CHECKING:
        __init__: Callable[..., None]

    def __init_subclass__(cls) -> None:
        """Derive signature, attributes and the section `Args` of the documentation."""
        super().__init_subclass__()
        if "__init__" not in vars(cls):
            return
        cls._settings_class = vars(cls)["__init__"].settings
        setattr(cls, "__signature__", signature_of(cls._settings_class))  # noqa: B010
        entries = fields_of(cls._settings_class)
        if cls.__doc__ and entries:
            before, mark, after = inspect.cleandoc(cls.__doc__).partition(_ATTRIBUTES)
            cls.__doc__ = f"{before}{describe(cls._settings_class)}\n\n{mark}{after}\n"
        for entry in entries:
            setattr(cls, entry.name, _parameter(entry.name, entry.metadata["meaning"]))

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the hyper-parameters by name, as they were given; `deep` is for scikit-learn."""
        return params_of(self.settings)

    @classmethod
    def _rules(cls) -> Mapping[str, Rule]:
        return rules_of(cls._settings_class)

    @classmethod
    def _param_names(cls) -> set[str]:
        """Return the names of the hyper-parameters, both of groups and of their fields."""
        return {*cls._rules(), *(entry.name for entry in fields_of(cls._settings_class))}

    @classmethod
    def _read_params(cls, params: dict[str, Any], base: S | None = None) -> dict[str, Any]:
        """Return parameters as settings take them: old names replaced, values in their groups."""
        if not params.keys() <= cls._param_names():
            kind, params = aliases.current_params(cls.__name__, params)
            if kind != cls.__name__:
                raise ParameterError(f"This is another model now: use {kind}.")
            if unknown := [name for name in params if name not in cls._param_names()]:
                raise unknown_name(cls.__name__, unknown[0], cls._rules())
        nested = nested_params(cls._settings_class, params, base)
        if alone := params.keys() - nested.keys():
            aliases.warn_of_group(cls.__name__, "event_weights", alone)
        return nested

    def _check_params(self) -> None:
        """Raise a `ParameterError` for the first parameter with a value that is not allowed."""
        check(type(self).__name__, self.settings)

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={value!r}" for name, value in self.get_params().items())
        return f"{type(self).__name__}({values})"

    def __sklearn_tags__(self) -> Never:
        """Refuse scikit-learn's model selection, which asks for these tags before it starts."""
        raise UnsupportedError(
            "scikit-learn splits and scores single rows, and recommenders rank items of users: "
            "choose parameters with transcf.tune (or the command `transcf tune`), and judge models "
            "with transcf.evaluate."
        )


def init_from_params(settings: Callable[P, Any]) -> Callable[Concatenate[Any, P], None]:
    """Return a constructor that takes the fields of a class of settings, by name."""

    def __init__(self: Any, /, *args: P.args, **params: P.kwargs) -> None:  # noqa: N807
        if args:
            raise ParameterError(
                f"{type(self).__name__} takes its parameters by name: "
                f"{', '.join(self._rules()) or 'it has none'}."
            )
        self.settings = settings(*args, **self._read_params(params))

    __init__.settings = settings  # type: ignore[attr-defined]
    return __init__


def signature_of(kind: type) -> inspect.Signature:
    """Return the constructor's signature: every field by name, with its default."""
    own = inspect.signature(kind).parameters
    return inspect.Signature([own[entry.name] for entry in fields_of(kind)])


def describe(kind: type) -> str:
    """Write the section `Args:` of a docstring."""
    lines = ["Args:"]
    for entry in fields_of(kind):
        rule, default = entry.metadata["rule"], f"default {entry.default!r}"
        allowed = default if isinstance(rule, Flag) else f"{rule}; {default}"
        text = f"{entry.name}: {entry.metadata['meaning']} ({allowed})"
        # A value such as "log-ratings" is not broken, so that it can be copied.
        lines += textwrap.wrap(
            text, 92, initial_indent=" " * 4, subsequent_indent=" " * 8, break_on_hyphens=False
        )
    return "\n".join(lines)


def _parameter(name: str, meaning: str) -> property:
    """Show a setting as an attribute of the model."""
    return property(
        lambda model: getattr(model.settings, name),
        lambda model, value: model.set_params(**{name: value}),
        doc=meaning,
    )
