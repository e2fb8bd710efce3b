"""What every store is given: ids and vectors of who can be ranked and what for.

`score(u, i) = constant_u + vector_u . vector_i`, so the largest inner products are the best
items. Users and items without training interactions are left out, as in `recommend`; an item's
bias, where a model has one, is an entry of its vector.

A score that is a logarithm of a sum (TransCF's mixture) has a user vector for each past item:
`score(u, i) = log sum_k exp(constant_uk + vector_uk . vector_i)`. Ask for the best items of each
of a user's vectors, put what was found together, and score it by the formula (or, nearly as well,
by its largest term); `retrieval.sums` says how far to look until nothing can be missing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import polars as pl

from transcf.data.ids import IdMap, Rows
from transcf.data.interactions import Mask
from transcf.errors import EvaluationError, NotFittedError, ParameterError
from transcf.retrieval.forms import LinearForm
from transcf.retrieval.scorer import KnowsIds
from transcf.retrieval.sums import Queries, SumForm

#: Vectors that are handed over at a time.
PIECE = 20_000
#: Users that are handed over at a time where each has many vectors.
PIECE_OF_SUMS = 500
#: The column with the past item that a vector of a user comes from.
PAST = "past_item_id"


class Fitted(KnowsIds, Protocol):
    """What exporting needs of a model; every `Recommender` is one."""

    @property
    def name(self) -> str:
        """Name in errors."""

    @property
    def rankable(self) -> Mask:
        """(n_items,) items with training interactions."""

    def linear_form(self) -> LinearForm | None:
        """Return the score as inner products, if it is one."""

    @property
    def is_fitted(self) -> bool:
        """Whether `fit` or `load` has run."""

    def sum_form(self) -> SumForm | None:
        """Return the score as a logarithm of a sum, if it is one."""


@dataclass(frozen=True)
class Exported:
    """What was written.

    Attributes:
        target: Where to: a folder, a file, or the names of two tables.
        users: Number of users.
        items: Number of items.
        width: Length of the vectors.
    """

    target: str
    users: int
    items: int
    width: int

    def to_dict(self) -> dict[str, Any]:
        """JSON form."""
        return asdict(self)


@dataclass(frozen=True, eq=False)
class Vectors:
    """Both sides of a model's linear form, or of a sum of such, with ids.

    Attributes:
        form: The scores as inner products, or as sums over several, by rows.
        user_rows: (n,) users with training interactions.
        item_rows: (m,) items with training interactions.
    """

    form: LinearForm | SumForm
    users: IdMap
    items: IdMap
    user_rows: Rows
    item_rows: Rows

    @classmethod
    def of(cls, model: Fitted) -> Vectors:
        """Take them from a fitted model.

        Raises:
            NotFittedError: The model is not fitted.
            ParameterError: Its score is neither an inner product nor a sum over several.
            EvaluationError: A vector has NaN or infinite entries.
        """
        if not model.is_fitted:
            raise NotFittedError(f"This {type(model).__name__} is not fitted yet: call fit first.")
        form = model.linear_form() or model.sum_form()
        if form is None:
            raise ParameterError(
                f"{model.name} has no vectors to export: its score is not an inner product; "
                "use its `recommend`, or a model such as TransCF."
            )
        vectors = cls(
            form,
            model.users_,
            model.items_,
            np.flatnonzero(model.seen_.counts > 0).astype(np.int32),
            np.flatnonzero(model.rankable).astype(np.int32),
        )
        vectors._check_finite(model.name)
        return vectors

    @property
    def width(self) -> int:
        """Length of the vectors."""
        return int(self.form.item_vectors.shape[1])

    def summary(self, target: object) -> Exported:
        """Say what was written where."""
        return Exported(str(target), len(self.user_rows), len(self.item_rows), self.width)

    @property
    def user_keys(self) -> tuple[str, ...]:
        """Columns that tell the rows of the table of users apart."""
        return ("user_id", PAST) if isinstance(self.form, SumForm) else ("user_id",)

    @property
    def score(self) -> str:
        """How the vectors give a score, in words."""
        product = "user constant + inner product of user vector and item vector"
        if isinstance(self.form, SumForm):
            return f"log of the sum, over a user's rows, of exp({product})"
        return product

    def user_tables(self) -> Iterator[pl.DataFrame]:
        """Yield pieces of the table `user_id, vector, constant`, with `past_item_id` in sums."""
        if isinstance(self.form, SumForm):
            for rows in _pieces(self.user_rows, PIECE_OF_SUMS):
                yield self._queries_table(rows, self.form.of_users(rows))
            return
        for rows in _pieces(self.user_rows):
            constants = pl.Series("constant", self.form.user_constants[rows])
            yield _table("user_id", self.users, self.form.user_vectors[rows], rows).with_columns(
                constants
            )

    def _queries_table(self, rows: Rows, queries: Queries) -> pl.DataFrame:
        owners = np.repeat(rows, np.diff(queries.starts))
        table = _table("user_id", self.users, queries.vectors, owners)
        past = self.items.ids(queries.items).alias(PAST)
        return table.insert_column(1, past).with_columns(pl.Series("constant", queries.constants))

    def item_tables(self) -> Iterator[pl.DataFrame]:
        """Yield pieces of the table `item_id, vector`."""
        for rows in _pieces(self.item_rows):
            yield _table("item_id", self.items, self.form.item_vectors[rows], rows)

    def _check_finite(self, name: str) -> None:
        if not all(np.isfinite(array).all() for array in self._arrays()):
            raise EvaluationError(
                f"{name} has NaN or infinite entries in its vectors and is not exported: check "
                "that its training converged."
            )

    def _arrays(self) -> Iterator[npt.NDArray[np.float32]]:
        """Yield everything that is exported, in pieces."""
        form = self.form
        for rows in _pieces(self.item_rows):
            yield form.item_vectors[rows]
        if isinstance(form, SumForm):
            for rows in _pieces(self.user_rows, PIECE_OF_SUMS):
                queries = form.of_users(rows)
                yield from (queries.vectors, queries.constants)
            return
        for rows in _pieces(self.user_rows):
            yield from (form.user_vectors[rows], form.user_constants[rows])


def _pieces(rows: Rows, length: int | None = None) -> Iterator[Rows]:
    """Cut rows into pieces; no rows are one empty piece, so that tables exist."""
    length = PIECE if length is None else length
    for start in range(0, max(1, len(rows)), length):
        yield rows[start : start + length]


def _table(name: str, ids: IdMap, vectors: npt.NDArray[np.float32], rows: Rows) -> pl.DataFrame:
    width = vectors.shape[1]
    return pl.DataFrame(
        {
            name: ids.ids(rows),
            "vector": pl.Series(vectors, dtype=pl.Array(pl.Float32, width)),
        }
    )
