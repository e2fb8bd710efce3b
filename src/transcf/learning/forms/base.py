"""`Form`: how TransCF scores a user and an item, in one place.

With a user's vector a and mean item q, an item's vector b and mean user n, a form says what the
pair costs (minus its score, bias left out) and how that cost slopes. Everything else reads it from
here: the exact solver, the kernels of the fast one, ranking, newcomers and explanations.

A new form is a module in this package with a subclass of `Form`: it is found by its name.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Protocol

import numpy as np
import scipy.sparse as sp

from transcf.errors import UnsupportedError
from transcf.kernels import Array
from transcf.kernels.translation import Rates, register_form
from transcf.retrieval.forms import cosine_form, nearness_form
from transcf.retrieval.scorer import LinearForm

#: Keeps quotients finite where a sum of squares is zero.
TINY = 1e-12


class Averages(Protocol):
    """Averages rows: (n, dim) = averages @ (n_rows, dim). Mostly a sparse matrix."""

    def __matmul__(self, rows: Array, /) -> Any:
        """Return the averages."""


class Form(ABC):
    """One form of the score; a value without state.

    `cost` and `slope` are written with `+ - *` alone, for they run on arrays of vectors and,
    sixteen numbers at a time, in kernels.
    """

    #: Value of the parameter `form`.
    name: ClassVar[str]
    #: What tables call a model of this form.
    title: ClassVar[str]
    #: What its kernels are compiled for.
    rates: ClassVar[type[Rates]]
    #: Whether the score looks at q and n.
    has_neighborhoods: ClassVar[bool] = True
    #: Whether the cost is a squared distance, so that near means alike.
    is_distance: ClassVar[bool] = True
    #: Whether the score is an inner product; one without is ranked pair by pair.
    is_linear: ClassVar[bool] = True

    def __init_subclass__(cls) -> None:
        """Let kernels be compiled for the form's own cost and slope."""
        super().__init_subclass__()
        if not {"cost", "slope"}.isdisjoint(vars(cls)):
            # Compiled kernels go by the name of the class, and those on disk have to find it again.
            place = {"__module__": cls.__module__, "__qualname__": f"{cls.__qualname__}.rates"}
            cls.rates = type(f"{cls.__name__}Rates", (Rates,), place)
            register_form(cls.rates, cls.cost, cls.slope)

    @staticmethod
    @abstractmethod
    def cost(a: Any, q: Any, b: Any, n: Any) -> Any:
        """Terms of -s(u, i), to be summed over the dimensions."""

    @staticmethod
    @abstractmethod
    def slope(g: Any, a: Any, q: Any, b: Any, n: Any) -> tuple[Any, Any, Any, Any]:
        """Return g times the gradient of -s(u, i) by a, q, b and n."""

    # -- arrays of pairs ---------------------------------------------------------------------

    def pair_cost(self, a: Array, q: Array, b: Array, n: Array) -> Array:
        """-s(u, i) of vectors in the last axis, bias left out."""
        return np.asarray(self.cost(a, q, b, n).sum(-1))

    def moved_cost(self, a: Array, r: Array, b: Array) -> Array:
        """-s(u, i) of pairs with a translation r of their own, bias left out.

        The score looks at q and n by their product alone, so that it takes r for q and 1 for n.
        """
        return np.asarray(self.cost(a, r, b, 1.0).sum(-1))

    def pair_slope(self, g: Array, a: Array, q: Array, b: Array, n: Array) -> tuple[Array, ...]:
        """Return g times the gradient of -s(u, i) by a, q, b and n, vectors in the last axis."""
        return self.slope(g[..., None], a, q, b, n)

    def translation(self, a: Array, q: Array, b: Array, n: Array) -> Array:
        """The vector that moves a user toward an item, (..., dim)."""
        return np.zeros_like(a)

    # -- the same score as one inner product, const_u + x_u . y_i ----------------------------------

    def linear_users(self, a: Array, q: Array) -> tuple[Array, Array]:
        """Return x (n, width) and const (n,) of users, from a and q (n, dim) each."""
        raise UnsupportedError(f'The form "{self.name}" is no inner product.')

    def linear_items(self, b: Array, n: Array, bias: Array) -> Array:
        """Return y (n_items, width), from b and n (n_items, dim) and bias (n_items, 1)."""
        raise UnsupportedError(f'The form "{self.name}" is no inner product.')

    # -- newcomers: where the squared error of the known pairs is smallest -------------------------

    def place_users(self, even: Averages, weighted: Averages, b: Array, n: Array) -> Array:
        """Place users by their items: a, (n_new, dim).

        Args:
            even: Averages the items of each user, (n_new, n_items).
            weighted: The same with later items weighing more.
            b: Item vectors, (n_items, dim) float64.
            n: Means of the items' users, (n_items, dim) float64.
        """
        return np.asarray(weighted @ b)

    def place_items(self, even: sp.csr_array, a: Array, q: Array) -> Array:
        """Place items by their users: b, (n_new, dim); see `place_users`."""
        return np.asarray(even @ a)

    def likeness(self, vectors: Array) -> LinearForm:
        """How alike vectors of one kind are, (n, dim)."""
        return nearness_form(vectors) if self.is_distance else cosine_form(vectors)
