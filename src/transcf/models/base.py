"""`Recommender`: what every model does, whatever it learns.

A model class states its hyper-parameters as keyword-only constructor arguments, what each one
allows in `rules`, and fills in `_learn`, `_state`, `_restore` and either `_linear_form` or
`score_block`. Ids, checks, masks, tables and files are handled here.
"""

from __future__ import annotations

import inspect
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeAlias

import numpy as np
import numpy.typing as npt
import polars as pl
import scipy.sparse as sp

from transcf.data.csr import Csr
from transcf.data.ids import IdMap, Rows
from transcf.data.interactions import Interactions
from transcf.errors import DataError, DivergenceError, NotFittedError, ParameterError
from transcf.models import _tables
from transcf.models._tables import OnUnknown
from transcf.models.rules import Rule, check
from transcf.retrieval.scorer import LinearForm, Scores, block_length
from transcf.training.options import FitOptions

if TYPE_CHECKING:
    from transcf.evaluation.validation import Validation

State: TypeAlias = dict[str, npt.NDArray[Any]]
#: Validation data: held-out interactions, or how to judge a model by them.
Held: TypeAlias = "Interactions | Validation | None"


class Recommender(ABC):
    """The parent of all models; see the module for how to write one.

    Attributes (after `fit`):
        users_: User ids.
        items_: Item ids.
        seen_: Items of each user in training.
        item_counts_: (n_items,) training interactions of each item. Items without any are never
            recommended and have no score; users without any count as unknown.
        report_: Facts about the training (sizes, seconds, what a model adds), JSON values only;
            saved with the model.
    """

    #: Short name in tables and on the command line.
    name: str
    #: What each hyper-parameter allows; every one has a rule.
    rules: ClassVar[Mapping[str, Rule]] = {}

    users_: IdMap
    items_: IdMap
    seen_: Csr
    item_counts_: npt.NDArray[np.int64]
    report_: dict[str, Any]

    # -- parameters --------------------------------------------------------------------------

    def get_params(self) -> dict[str, Any]:
        """Return the hyper-parameters by name, as they were given."""
        names = inspect.signature(type(self)).parameters
        return {name: getattr(self, name) for name in names}

    def set_params(self, **values: Any) -> Self:
        """Set hyper-parameters by name."""
        known = self.get_params()
        for name, value in values.items():
            if name not in known:
                raise ParameterError(
                    f"{type(self).__name__} has no parameter {name!r}; "
                    f"it has: {', '.join(known) or 'none'}."
                )
            setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        """Show the class with its hyper-parameters."""
        values = ", ".join(f"{name}={value!r}" for name, value in self.get_params().items())
        return f"{type(self).__name__}({values})"

    # -- learning ----------------------------------------------------------------------------

    def fit(
        self, train: Interactions, validation: Held = None, options: FitOptions | None = None
    ) -> Self:
        """Learn from interactions, anew: nothing of an earlier fit is used.

        Args:
            train: What to learn from.
            validation: Held-out interactions with the same ids, for models that choose their
                epoch by it; others leave it alone.
            options: How to run it (checkpoints, progress); nothing that changes what is learned.
        """
        check(type(self).__name__, self.get_params(), self.rules)
        if not len(train):
            raise DataError(f"{type(self).__name__} cannot be fitted: there are no interactions.")
        self._forget()
        started = time.perf_counter()
        self._remember(train.users, train.items, train.by_user)
        try:
            self._learn(train, validation, options or FitOptions())
        except DivergenceError:
            raise  # a model that was training keeps its best finite state
        except BaseException:
            self._forget()
            raise
        self.report_["seconds"] = round(time.perf_counter() - started, 3)
        return self

    def _forget(self) -> None:
        """Be as before the first fit."""
        for attribute in [name for name in vars(self) if name.endswith("_")]:
            delattr(self, attribute)

    def _remember(self, users: IdMap, items: IdMap, seen: Csr) -> None:
        """Keep what every model needs of its training data."""
        self.users_, self.items_, self.seen_ = users, items, seen
        self.item_counts_ = np.bincount(seen.indices, minlength=len(items))
        self.report_ = {
            "users": int(np.count_nonzero(seen.counts)),
            "items": int(np.count_nonzero(self.item_counts_)),
            "interactions": len(seen.indices),
        }

    @abstractmethod
    def _learn(self, train: Interactions, validation: Held, options: FitOptions) -> None:
        """Set the fitted attributes."""

    # -- scoring by rows: for ranking and evaluation -----------------------------------------

    @property
    def is_fitted(self) -> bool:
        """Whether `fit` or `load` has run."""
        return "seen_" in vars(self)

    def _check_fitted(self) -> None:
        if not self.is_fitted:
            raise NotFittedError(f"This {type(self).__name__} is not fitted yet: call fit first.")

    @property
    def rankable(self) -> npt.NDArray[np.bool_]:
        """(n_items,) items with training interactions."""
        return self.item_counts_ > 0

    def _linear_form(self) -> LinearForm | None:
        """Return the score as inner products, if it is one."""
        return None

    def score_block(self, users: Rows) -> Scores:
        """Score all items for some user rows: (n, n_items)."""
        form = self._linear_form()
        assert form is not None, f"{type(self).__name__} has neither a linear form nor score_block"
        return form.score_block(users)

    def score_pairs(self, users: Rows, items: Rows) -> Scores:
        """Score pairs of rows: (n,). Models with a direct formula override this."""
        form = self._linear_form()
        if form is not None:
            return form.score_pairs(users, items)
        scores = np.empty(len(users), dtype=np.float32)
        distinct, place = np.unique(users, return_inverse=True)
        order = np.argsort(place, kind="stable")
        step = block_length(len(self.items_))
        for first in range(0, len(distinct), step):
            start, stop = np.searchsorted(place[order], (first, first + step))
            pairs = order[start:stop]
            block = self.score_block(distinct[first : first + step].astype(np.int32))
            scores[pairs] = block[place[pairs] - first, items[pairs]]
        return scores

    def _histories(self, users: Rows) -> sp.csr_array:
        """Training items of some user rows as a sparse matrix of ones, (n, n_items)."""
        lengths = self.seen_.counts[users]
        indptr = np.zeros(len(users) + 1, dtype=np.int64)
        np.cumsum(lengths, out=indptr[1:])
        places = np.arange(indptr[-1]) + np.repeat(self.seen_.indptr[users] - indptr[:-1], lengths)
        return Csr(indptr, self.seen_.indices[places], len(self.items_)).to_scipy()

    # -- what callers use: their own ids in, tables out --------------------------------------

    def recommend(
        self,
        users: Any = None,
        k: int = 10,
        *,
        exclude_seen: bool = True,
        items: Any = None,
        on_unknown: OnUnknown = "raise",
    ) -> pl.DataFrame:
        """Recommend items.

        Args:
            users: One id, several ids (each is answered once, in the order of the request), or
                None for every user with training interactions.
            k: Longest list; shorter where fewer items are left.
            exclude_seen: Whether to leave out the user's training items.
            items: The only items to choose from (ids), or None for all.
            on_unknown: What to do about unknown items and about users without training
                interactions: "raise" an error or "skip" them.

        Returns:
            Table `user_id, item_id, score, rank`, best first. Equal scores are ordered by item
            id, ascending.

        Example:
            >>> Popularity().fit(log).recommend("ann", k=3)  # doctest: +SKIP
        """
        self._check_fitted()
        return _tables.recommendations(
            self, users, k, exclude_seen=exclude_seen, items=items, on_unknown=on_unknown
        )

    def score(self, pairs: Any, *, on_unknown: OnUnknown = "raise") -> pl.DataFrame:
        """Score pairs given as a table with user and item columns.

        Args:
            pairs: The table, in any form that `read_interactions` takes; pairs may repeat.
            on_unknown: What to do about pairs with an id that was not in the training data:
                "raise" an error or "skip" them.

        Returns:
            Table `user_id, item_id, score` in the order of the pairs; the score is null where
            the item or the user is known but has no training interactions.
        """
        self._check_fitted()
        return _tables.pair_scores(self, pairs, on_unknown)

    # -- files -------------------------------------------------------------------------------

    @abstractmethod
    def _state(self) -> State:
        """Return the learned arrays by name."""

    @abstractmethod
    def _restore(self, state: State) -> None:
        """Set the learned arrays again, to be read only; ids and seen items are there."""

    def save(self, folder: str | Path) -> Path:
        """Write the model to a folder: tensors, JSON and ids, no code; all or nothing."""
        from transcf.models.storage import save

        self._check_fitted()
        return save(self, folder)

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """Read a model that `save` wrote."""
        from transcf.models.storage import load

        model = load(folder)
        if not isinstance(model, cls):
            raise ParameterError(
                f"{folder} holds a {type(model).__name__}, not a {cls.__name__}: "
                f"use {type(model).__name__}.load or transcf.load."
            )
        return model
