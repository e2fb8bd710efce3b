"""The paper's TransCF-dot: s(u, i) = (a + q * n) . b, an inner product in place of the distance."""

from __future__ import annotations

from typing import Any

import numpy as np

from transcf.kernels import Array
from transcf.learning.forms.base import Averages
from transcf.learning.forms.translation import Translation


class Dot(Translation):
    """As "translation", with an inner product in place of the distance."""

    name, title = "dot", "TransCF-dot"
    is_distance = False

    @staticmethod
    def cost(a: Any, q: Any, b: Any, n: Any) -> Any:
        """Terms of minus the product."""
        return -((a + q * n) * b)

    @staticmethod
    def slope(g: Any, a: Any, q: Any, b: Any, n: Any) -> tuple[Any, Any, Any, Any]:
        """Its gradients."""
        x = -g
        return x * b, x * n * b, x * (a + q * n), x * q * b

    def linear_users(self, a: Array, q: Array) -> tuple[Array, Array]:
        """X of 2 dim + 1 numbers."""
        one = np.ones((len(a), 1), a.dtype)
        return np.hstack([one, a, q]), np.zeros(len(a), a.dtype)

    def linear_items(self, b: Array, n: Array, bias: Array) -> Array:
        """Y of 2 dim + 1 numbers."""
        return np.hstack([bias, b, n * b])

    def place_users(self, even: Averages, weighted: Averages, b: Array, n: Array) -> Array:
        """The weighted mean of b: a direction, since products have no smallest error."""
        return np.asarray(weighted @ b)
