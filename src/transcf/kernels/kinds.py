"""Which function goes with which model: found by the class of its rates when kernels compile.

Kernels are written once for all models. Where models differ they call a function that has no body
of its own, and an overload puts the model's there: functions are registered as they are written,
and compiled as part of the kernels that call them.
"""

from collections.abc import Callable
from typing import Any

from . import Function


class Kinds:
    """Functions by the class of rates that they are for."""

    def __init__(self) -> None:
        """Know nothing yet."""
        self._functions: dict[type, Callable[..., Any]] = {}

    def register(self, *kinds: type) -> Callable[[Function], Function]:
        """Let a function serve rates of these classes, and of classes made from them."""

        def decorate(function: Function) -> Function:
            self._functions.update(dict.fromkeys(kinds, function))
            return function

        return decorate

    def find(self, rates: Any) -> Callable[..., Any]:
        """The function for rates of a compile-time type; the nearest class in the line counts."""
        return next(
            self._functions[kind]
            for kind in rates.instance_class.__mro__
            if kind in self._functions
        )
