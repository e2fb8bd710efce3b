"""How a model's class follows from its settings: constructor, signature, words, attributes."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec

import numpy as np

from transcf.errors import ParameterError
from transcf.models.settings import describe, fields_of, signature_of

if TYPE_CHECKING:
    from transcf.models.recommender import Recommender

P = ParamSpec("P")

_ATTRIBUTES = "Attributes (after `fit`):"


def init_from_params(settings: Callable[P, Any]) -> Callable[Concatenate[Any, P], None]:
    """Return a constructor that takes the fields of a class of settings, by name."""

    def __init__(self: Any, /, *args: P.args, **params: P.kwargs) -> None:  # noqa: N807
        if args:
            raise ParameterError(
                f"{type(self).__name__} takes its parameters by name: "
                f"{', '.join(self._rules()) or 'it has none'}."
            )
        params = self._current(params)
        self._check_names(params)
        self.settings = settings(*args, **params)

    __init__.settings = settings  # type: ignore[attr-defined]
    return __init__


def follow_settings(kind: type[Recommender[Any]]) -> None:
    """Give a class its signature, the `Args` of its documentation, and an attribute for each."""
    kind._settings_class = vars(kind)["__init__"].settings
    setattr(kind, "__signature__", signature_of(kind._settings_class))  # noqa: B010
    if kind.__doc__ and fields_of(kind._settings_class):
        before, mark, after = inspect.cleandoc(kind.__doc__).partition(_ATTRIBUTES)
        kind.__doc__ = f"{before}{describe(kind._settings_class)}\n\n{mark}{after}\n"
    for entry in fields_of(kind._settings_class):
        setattr(kind, entry.name, _parameter(entry.name, entry.metadata["meaning"]))


def _parameter(name: str, meaning: str) -> property:
    """Show a setting as an attribute of the model."""

    def get(model: Recommender[Any]) -> Any:
        return getattr(model.settings, name)

    def put(model: Recommender[Any], value: Any) -> None:
        model.set_params(**{name: value})

    return property(get, put, doc=meaning)


def read_only(value: Any) -> Any:
    """Show an array such that nobody changes by accident what a model scores by."""
    if not isinstance(value, np.ndarray):
        return value
    shown = value.view()
    shown.flags.writeable = False
    return shown
