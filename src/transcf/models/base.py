"""`Recommender`: what every model does, whatever it learns.

A model class states its hyper-parameters as keyword-only constructor arguments, what each one
allows in `rules`, and fills in `_learn`, `_state`, `_restore` and either `linear_form` or
`score_block`. Parameters, fitting and files are handled here, scores of rows in `scoring`, and
ids, filters and tables in `answers`.
"""

from __future__ import annotations

import inspect
import time
from abc import abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeAlias

import numpy as np
import numpy.typing as npt

from transcf.data.csr import Csr
from transcf.data.ids import IdMap
from transcf.data.interactions import Interactions
from transcf.errors import DataError, DivergenceError, ParameterError
from transcf.models.answers import Answers
from transcf.models.rules import Rule, check
from transcf.training.options import FitOptions

if TYPE_CHECKING:
    from transcf.evaluation.validation import Validation

State: TypeAlias = dict[str, npt.NDArray[Any]]
#: Validation data: held-out interactions, or how to judge a model by them.
Held: TypeAlias = "Interactions | Validation | None"


class Recommender(Answers):
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

    #: What each hyper-parameter allows; every one has a rule.
    rules: ClassVar[Mapping[str, Rule]] = {}

    report_: dict[str, Any]

    # -- parameters --------------------------------------------------------------------------

    @classmethod
    def paper(cls, dataset: str | None = None, **changes: Any) -> Self:
        """Return the model with the preset `paper`: settings for the protocol of TransCF's paper.

        Args:
            dataset: Catalog name of the data, where the preset has settings of its own for it.
            changes: Hyper-parameters to set otherwise.

        Raises:
            ParameterError: The model has no such preset.

        Example:
            >>> from transcf import CML
            >>> CML.paper("ciao", dim=32).negatives
            1
        """
        from transcf.models.presets import preset

        return cls(**(preset(cls.__name__, "paper", dataset) | changes))

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
            raise  # an iterative model has kept its best finite state, or forgotten all
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

    # -- files -------------------------------------------------------------------------------

    @abstractmethod
    def _state(self) -> State:
        """Return the learned arrays by name."""

    @abstractmethod
    def _restore(self, state: State) -> None:
        """Set the learned arrays again, to be read only; ids and seen items are there."""

    @property
    def nbytes(self) -> int:
        """Bytes of the learned arrays."""
        self._check_fitted()
        return sum(array.nbytes for array in self._state().values())

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
