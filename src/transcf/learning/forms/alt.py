"""The paper's TransCF-alt: s(u, i) = -|a + a * b - b|^2, translated by the pair's own vectors."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from transcf.kernels import Array
from transcf.kernels.lanes import zeros
from transcf.learning.forms.base import TINY, Averages, Form


class Alternative(Form):
    """Users are moved by a * b, the product of the pair's own vectors."""

    name, title = "alt", "TransCF-alt"
    has_neighborhoods = False

    @staticmethod
    def cost(a: Any, q: Any, b: Any, n: Any) -> Any:
        """Terms of the squared distance."""
        e = a + a * b - b
        return e * e

    @staticmethod
    def slope(g: Any, a: Any, q: Any, b: Any, n: Any) -> tuple[Any, Any, Any, Any]:
        """Its gradients."""
        x = (g + g) * (a + a * b - b)
        return x + x * b, zeros(x), x * a - x, zeros(x)

    def translation(self, a: Array, q: Array, b: Array, n: Array) -> Array:
        """The product of the pair's own vectors."""
        return a * b

    def linear_users(self, a: Array, q: Array) -> tuple[Array, Array]:
        """X of 2 dim + 1 numbers."""
        one = np.ones((len(a), 1), a.dtype)
        return np.hstack([one, 2 * a * (1 - a), -((1 - a) ** 2)]), -(a * a).sum(axis=1)

    def linear_items(self, b: Array, n: Array, bias: Array) -> Array:
        """Y of 2 dim + 1 numbers."""
        return np.hstack([bias, b, b * b])

    def place_users(self, even: Averages, weighted: Averages, b: Array, n: Array) -> Array:
        """Least squares in every dimension."""
        return np.asarray((weighted @ (b * (1 + b))) / np.maximum(weighted @ (1 + b) ** 2, TINY))

    def place_items(self, even: sp.csr_array, a: Array, q: Array) -> Array:
        """Least squares in every dimension."""
        return np.asarray((even @ (a * (1 - a))) / np.maximum(even @ (1 - a) ** 2, TINY))
