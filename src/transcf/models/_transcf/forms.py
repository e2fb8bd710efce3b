"""The forms of the score s(u, i): a user a with mean item q, an item b with mean user n.

Each formula stands here once: kernels compile these functions, and the exact solver calls them on
arrays of vectors.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from transcf.kernels.lanes import zeros
from transcf.kernels.translation import Cost, Rates, Slope, register_form


class Formula(NamedTuple):
    """A formula: terms of -s(u, i), and g times their gradient by a, q, b and n."""

    rates: type[Rates]
    cost: Cost
    slope: Slope


class Translation(Rates):
    """s(u, i) = -|a + q * n - b|^2."""


def _translation_cost(a: Any, q: Any, b: Any, n: Any) -> Any:
    e = a + q * n - b
    return e * e


def _translation_slope(g: Any, a: Any, q: Any, b: Any, n: Any) -> tuple[Any, Any, Any, Any]:
    x = (g + g) * (a + q * n - b)
    return x, x * n, -x, x * q


class Still(Rates):
    """s(u, i) = -|a - b|^2: no translation."""


def _still_cost(a: Any, q: Any, b: Any, n: Any) -> Any:
    e = a - b
    return e * e


def _still_slope(g: Any, a: Any, q: Any, b: Any, n: Any) -> tuple[Any, Any, Any, Any]:
    x = (g + g) * (a - b)
    return x, zeros(x), -x, zeros(x)


class Alt(Rates):
    """s(u, i) = -|a + a * b - b|^2: translation from the embeddings themselves."""


def _alt_cost(a: Any, q: Any, b: Any, n: Any) -> Any:
    e = a + a * b - b
    return e * e


def _alt_slope(g: Any, a: Any, q: Any, b: Any, n: Any) -> tuple[Any, Any, Any, Any]:
    x = (g + g) * (a + a * b - b)
    return x + x * b, zeros(x), x * a - x, zeros(x)


class Dot(Rates):
    """s(u, i) = (a + q * n) . b: inner product instead of distance."""


def _dot_cost(a: Any, q: Any, b: Any, n: Any) -> Any:
    return -((a + q * n) * b)


def _dot_slope(g: Any, a: Any, q: Any, b: Any, n: Any) -> tuple[Any, Any, Any, Any]:
    x = -g
    return x * b, x * n * b, x * (a + q * n), x * q * b


FORMS: dict[str, Formula] = {
    "translation": Formula(Translation, _translation_cost, _translation_slope),
    "still": Formula(Still, _still_cost, _still_slope),
    "alt": Formula(Alt, _alt_cost, _alt_slope),
    "dot": Formula(Dot, _dot_cost, _dot_slope),
}
for _form in FORMS.values():
    register_form(*_form)
