"""An ablation without translation: s(u, i) = -|a - b|^2."""

from __future__ import annotations

from typing import Any

import numpy as np

from transcf.kernels import Array
from transcf.kernels.lanes import zeros
from transcf.learning.forms.base import Form


class Still(Form):
    """No translation: users stay where they are."""

    name, title = "still", "TransCF-still"
    has_neighborhoods = False

    @staticmethod
    def cost(a: Any, q: Any, b: Any, n: Any) -> Any:
        """Terms of the squared distance."""
        e = a - b
        return e * e

    @staticmethod
    def slope(g: Any, a: Any, q: Any, b: Any, n: Any) -> tuple[Any, Any, Any, Any]:
        """Its gradients."""
        x = (g + g) * (a - b)
        return x, zeros(x), -x, zeros(x)

    def linear_users(self, a: Array, q: Array) -> tuple[Array, Array]:
        """X of dim + 1 numbers."""
        return np.hstack([np.ones((len(a), 1), a.dtype), 2 * a]), -(a * a).sum(axis=1)

    def linear_items(self, b: Array, n: Array, bias: Array) -> Array:
        """Y of dim + 1 numbers."""
        return np.hstack([bias - (b * b).sum(axis=1, keepdims=True), b])
