"""Swapped roles, after the paper's Discussion: s(u, i) = -|b + q * n - a|^2."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from transcf.kernels import Array
from transcf.learning.forms.base import Averages
from transcf.learning.forms.translation import Translation


class Swapped(Translation):
    """As "translation", but items are moved toward users."""

    name, title = "swapped", "TransCF-swapped"

    @staticmethod
    def cost(a: Any, q: Any, b: Any, n: Any) -> Any:
        """Terms of the squared distance."""
        e = b + q * n - a
        return e * e

    @staticmethod
    def slope(g: Any, a: Any, q: Any, b: Any, n: Any) -> tuple[Any, Any, Any, Any]:
        """Its gradients."""
        x = (g + g) * (b + q * n - a)
        return -x, x * n, x, x * q

    def linear_users(self, a: Array, q: Array) -> tuple[Array, Array]:
        """X of 4 dim + 1 numbers; those of items are as in "translation"."""
        one = np.ones((len(a), 1), a.dtype)
        return np.hstack([one, -q * q, 2 * a * q, 2 * a, -2 * q]), -(a * a).sum(axis=1)

    def place_users(self, even: Averages, weighted: Averages, b: Array, n: Array) -> Array:
        """The weighted mean of b + q * n."""
        return np.asarray(weighted @ b + (even @ b) * (weighted @ n))

    def place_items(self, even: sp.csr_array, a: Array, q: Array) -> Array:
        """The mean of a - q * n."""
        n = even @ a
        return np.asarray(n - n * (even @ q))
