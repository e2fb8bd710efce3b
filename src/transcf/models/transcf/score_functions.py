# ruff: noqa: D102  (methods of the base class are documented there)
r"""Score functions of TransCF: the published model and its ablations.

With a user vector a, the mean q of the vectors of the user's items, an item vector b and the mean n
of the vectors of the item's users:

| variant | score without bias | translation |
|---|---|---|
| translation | -\|a + q * n - b\|^2 | q * n |
| dot | (a + q * n) . b | q * n |
| alt | -\|a + a * b - b\|^2 | a * b |
| none | -\|a - b\|^2 | 0 |
| emb | as translation | a - b |

A score function defines the cost of a pair (minus its score, without bias) and the gradient of that
cost. Solvers, kernels, ranking, fold-in and explanations all use these definitions.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import numpy as np

from transcf.kernels import Array
from transcf.kernels.decorators import inlined
from transcf.kernels.lanes import zeros
from transcf.kernels.translation import TransCFRates
from transcf.retrieval.scorer import LinearForm, cosine_form, nearness_form

#: Keeps quotients finite where a sum of squares is zero.
TINY = 1e-12


class ScoreFunction(ABC):
    """A score of a user and an item; stateless.

    `cost` and `slope` use `+ - *`, a leading minus and `zeros` only: they run on arrays, and in
    kernels on SIMD lanes.
    """

    #: Value of the parameter `variant`.
    name: ClassVar[str]
    #: Name of the model in tables.
    title: ClassVar[str]
    #: Type that kernels are compiled for.
    rates: ClassVar[type[TransCFRates]]
    #: Whether the score depends on q and n.
    has_neighborhoods: ClassVar[bool] = True
    #: Whether the cost is a squared distance.
    is_distance: ClassVar[bool] = True

    def __init_subclass__(cls) -> None:
        """Compile cost and slope for kernels, which take them from the class of their rates."""
        super().__init_subclass__()
        assert cls.__module__ == __name__, "kernels are not compiled again for other modules"
        if not {"cost", "slope"}.isdisjoint(vars(cls)):
            members = {
                # Kernels cached on disk find the class by its qualified name.
                "__module__": cls.__module__,
                "__qualname__": f"{cls.__qualname__}.rates",
                "cost": inlined(cls.cost),
                "slope": inlined(cls.slope),
            }
            cls.rates = type(f"{cls.__name__}TransCFRates", (TransCFRates,), members)

    @staticmethod
    @abstractmethod
    def cost(a: Any, q: Any, b: Any, n: Any) -> Any:
        """Return the terms of -s(u, i), to be summed over the dimensions."""

    @staticmethod
    @abstractmethod
    def slope(g: Any, a: Any, q: Any, b: Any, n: Any) -> tuple[Any, Any, Any, Any]:
        """Return g times the gradient of -s(u, i) by a, q, b and n."""

    # -- arrays of pairs ---------------------------------------------------------------------

    def pair_cost(self, a: Array, q: Array, b: Array, n: Array) -> Array:
        """Return -s(u, i) without bias, of vectors in the last axis."""
        return np.asarray(self.cost(a, q, b, n).sum(-1))

    def pair_slope(self, g: Array, a: Array, q: Array, b: Array, n: Array) -> tuple[Array, ...]:
        """Return g times the gradient of -s(u, i) by a, q, b and n, vectors in the last axis."""
        return self.slope(g[..., None], a, q, b, n)

    def translation(self, a: Array, q: Array, b: Array, n: Array) -> Array:
        """Return the translation vector of pairs, (..., dim)."""
        return np.zeros_like(a)

    # -- the score as an inner product, const_u + x_u . y_i ------------------------------------

    def linear_users(self, a: Array, q: Array) -> tuple[Array, Array]:
        """Return x (n, width) and const (n,) of users, from a and q (n, dim) each."""
        raise NotImplementedError

    def linear_items(self, b: Array, n: Array, bias: Array) -> Array:
        """Return y (n_items, width), from b and n (n_items, dim) and bias (n_items, 1)."""
        raise NotImplementedError

    # -- fold-in: vectors that minimise the squared error of the known pairs ----------------------

    def place_users(self, even: Any, weighted: Any, b: Array, n: Array) -> Array:
        """Return vectors of users, given their items: a, (n_new, dim).

        `even @ b` averages the items of each user, `weighted @ b` by weight: mostly sparse
        matrices, (n_new, n_items). b and n are (n_items, dim) float64.
        """
        return weighted @ b

    def place_items(self, even: Any, a: Array, q: Array) -> Array:
        """Return vectors of items, given their users: b, (n_new, dim); see `place_users`."""
        return even @ a

    def likeness(self, vectors: Array) -> LinearForm:
        """Return the similarity between vectors of users, or of items, (n, dim)."""
        return nearness_form(vectors) if self.is_distance else cosine_form(vectors)


class Translation(ScoreFunction):
    """The published score: users are translated by q * n, the product of both neighbourhoods."""

    name, title = "translation", "TransCF"

    @staticmethod
    def cost(a: Any, q: Any, b: Any, n: Any) -> Any:
        e = a + q * n - b
        return e * e

    @staticmethod
    def slope(g: Any, a: Any, q: Any, b: Any, n: Any) -> tuple[Any, Any, Any, Any]:
        x = (g + g) * (a + q * n - b)
        return x, x * n, -x, x * q

    def translation(self, a: Array, q: Array, b: Array, n: Array) -> Array:
        return q * n

    def linear_users(self, a: Array, q: Array) -> tuple[Array, Array]:
        one = np.ones((len(a), 1), a.dtype)
        return np.hstack([one, -q * q, -2 * a * q, 2 * a, 2 * q]), -(a * a).sum(axis=1)

    def linear_items(self, b: Array, n: Array, bias: Array) -> Array:
        short = bias - (b * b).sum(axis=1, keepdims=True)
        return np.hstack([short, n * n, n, b, n * b])

    def place_users(self, even: Any, weighted: Any, b: Array, n: Array) -> Array:
        return weighted @ b - (even @ b) * (weighted @ n)

    def place_items(self, even: Any, a: Array, q: Array) -> Array:
        n = even @ a
        return n + n * (even @ q)


class Dot(Translation):
    """The paper's TransCF-dot: an inner product in place of the distance."""

    name, title = "dot", "TransCF-dot"
    is_distance = False

    @staticmethod
    def cost(a: Any, q: Any, b: Any, n: Any) -> Any:
        return -((a + q * n) * b)

    @staticmethod
    def slope(g: Any, a: Any, q: Any, b: Any, n: Any) -> tuple[Any, Any, Any, Any]:
        x = -g
        return x * b, x * n * b, x * (a + q * n), x * q * b

    def linear_users(self, a: Array, q: Array) -> tuple[Array, Array]:
        one = np.ones((len(a), 1), a.dtype)
        return np.hstack([one, a, q]), np.zeros(len(a), a.dtype)

    def linear_items(self, b: Array, n: Array, bias: Array) -> Array:
        return np.hstack([bias, b, n * b])

    def place_users(self, even: Any, weighted: Any, b: Array, n: Array) -> Array:
        return weighted @ b  # a direction, since inner products have no least error


class Alternative(ScoreFunction):
    """The paper's TransCF-alt: users are translated by a * b, the product of both vectors."""

    name, title = "alt", "TransCF-alt"
    has_neighborhoods = False

    @staticmethod
    def cost(a: Any, q: Any, b: Any, n: Any) -> Any:
        e = a + a * b - b
        return e * e

    @staticmethod
    def slope(g: Any, a: Any, q: Any, b: Any, n: Any) -> tuple[Any, Any, Any, Any]:
        x = (g + g) * (a + a * b - b)
        return x + x * b, zeros(x), x * a - x, zeros(x)

    def translation(self, a: Array, q: Array, b: Array, n: Array) -> Array:
        return a * b

    def linear_users(self, a: Array, q: Array) -> tuple[Array, Array]:
        one = np.ones((len(a), 1), a.dtype)
        return np.hstack([one, 2 * a * (1 - a), -((1 - a) ** 2)]), -(a * a).sum(axis=1)

    def linear_items(self, b: Array, n: Array, bias: Array) -> Array:
        return np.hstack([bias, b, b * b])

    def place_users(self, even: Any, weighted: Any, b: Array, n: Array) -> Array:
        return (weighted @ (b * (1 + b))) / np.maximum(weighted @ (1 + b) ** 2, TINY)

    def place_items(self, even: Any, a: Array, q: Array) -> Array:
        return (even @ (a * (1 - a))) / np.maximum(even @ (1 - a) ** 2, TINY)


class NoTranslation(ScoreFunction):
    """An ablation without translation."""

    name, title = "none", "TransCF-none"
    has_neighborhoods = False

    @staticmethod
    def cost(a: Any, q: Any, b: Any, n: Any) -> Any:
        e = a - b
        return e * e

    @staticmethod
    def slope(g: Any, a: Any, q: Any, b: Any, n: Any) -> tuple[Any, Any, Any, Any]:
        x = (g + g) * (a - b)
        return x, zeros(x), -x, zeros(x)

    def linear_users(self, a: Array, q: Array) -> tuple[Array, Array]:
        return np.hstack([np.ones((len(a), 1), a.dtype), 2 * a]), -(a * a).sum(axis=1)

    def linear_items(self, b: Array, n: Array, bias: Array) -> Array:
        return np.hstack([bias - (b * b).sum(axis=1, keepdims=True), b])


class Embedding(Translation):
    """The paper's TransCF-emb: scores as "translation", but a - b is called the translation."""

    name, title = "emb", "TransCF-emb"

    def translation(self, a: Array, q: Array, b: Array, n: Array) -> Array:
        return a - b


#: By name; the published one comes first.
SCORE_FUNCTIONS: dict[str, ScoreFunction] = {
    kind.name: kind() for kind in (Translation, Dot, Alternative, NoTranslation, Embedding)
}
