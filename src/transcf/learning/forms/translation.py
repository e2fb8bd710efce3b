"""The paper's own form: s(u, i) = -|a + q * n - b|^2."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from transcf.kernels import Array
from transcf.learning.forms.base import Averages, Form


class Translation(Form):
    """The paper's own: users are moved by q * n, the product of both neighbourhoods."""

    name, title = "translation", "TransCF-translation"

    @staticmethod
    def cost(a: Any, q: Any, b: Any, n: Any) -> Any:
        """Terms of the squared distance."""
        e = a + q * n - b
        return e * e

    @staticmethod
    def slope(g: Any, a: Any, q: Any, b: Any, n: Any) -> tuple[Any, Any, Any, Any]:
        """Its gradients."""
        x = (g + g) * (a + q * n - b)
        return x, x * n, -x, x * q

    def translation(self, a: Array, q: Array, b: Array, n: Array) -> Array:
        """The product of both neighbourhoods."""
        return q * n

    def linear_users(self, a: Array, q: Array) -> tuple[Array, Array]:
        """X of 4 dim + 1 numbers."""
        one = np.ones((len(a), 1), a.dtype)
        return np.hstack([one, -q * q, -2 * a * q, 2 * a, 2 * q]), -(a * a).sum(axis=1)

    def linear_items(self, b: Array, n: Array, bias: Array) -> Array:
        """Y of 4 dim + 1 numbers."""
        short = bias - (b * b).sum(axis=1, keepdims=True)
        return np.hstack([short, n * n, n, b, n * b])

    def place_users(self, even: Averages, weighted: Averages, b: Array, n: Array) -> Array:
        """The weighted mean of b - q * n."""
        return np.asarray(weighted @ b - (even @ b) * (weighted @ n))

    def place_items(self, even: sp.csr_array, a: Array, q: Array) -> Array:
        """The mean of a + q * n."""
        n = even @ a
        return np.asarray(n + n * (even @ q))
