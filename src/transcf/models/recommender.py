"""`Recommender`: what every model does, whatever it learns.

A model class names its settings (`__init__ = made_from(BPRSettings)`), learns in `_learn`, and
turns stored arrays into what it learned in `_restore`. Parameters, fitting and files are handled
here; ids, filters and tables in `answers`.
"""

from __future__ import annotations

import inspect
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Concatenate, Generic, ParamSpec, Self, TypeVar

import numpy as np
import numpy.typing as npt
import polars as pl

from transcf.answers.questions import Answers
from transcf.data.csr import Csr
from transcf.data.histories import Histories
from transcf.data.ids import IdMap, Rows
from transcf.data.interactions import Interactions
from transcf.errors import DataError, ModelFileError, ParameterError
from transcf.learning.families import IterationSettings
from transcf.learning.fitting import Fit, Held
from transcf.learning.known import Known
from transcf.learning.learned import Learned
from transcf.learning.presets import preset
from transcf.learning.rules import Rule
from transcf.learning.settings import check, describe, fields_of, rules_of, signature_of, values_of
from transcf.models.registry import HOMES
from transcf.retrieval.scorer import LinearForm, Scores
from transcf.storage.folders import StoredModel, read_model, write_model
from transcf.storage.tensors import Arrays
from transcf.threads import use_threads
from transcf.training.loop import DivergedRunError
from transcf.training.options import FitOptions

S = TypeVar("S")
P = ParamSpec("P")


def made_from(settings: Callable[P, Any]) -> Callable[Concatenate[Any, P], None]:
    """Return a constructor that takes the fields of a class of settings, by name."""

    def __init__(self: Any, /, *args: P.args, **params: P.kwargs) -> None:  # noqa: N807
        self.check_names(params)
        self.settings = settings(*args, **params)

    __init__.settings = settings  # type: ignore[attr-defined]
    return __init__


class Recommender(Answers, ABC, Generic[S]):
    """The parent of all models; see the module for how to write one.

    Attributes (after `fit`):
        learned_: What was learned: arrays that score.
        history_: Table of the epochs, for models that have some.
        best_epoch_: The epoch that was kept.
        report_: Facts about the training (sizes, seconds, what a model adds), JSON values only;
            saved with the model.
    """

    #: Parameters to lower when training diverges.
    remedy: ClassVar[str] = "learning_rate"
    #: Parameters that may differ between a run and its resumption.
    free_to_change: ClassVar[tuple[str, ...]] = ("epochs", "patience")

    #: Names on the command line, and the parameters that each stands for.
    variants: ClassVar[dict[str, dict[str, Any]]]
    #: The class of the settings.
    settings_class: ClassVar[type]
    settings: S
    if TYPE_CHECKING:
        __init__: Callable[..., None]
    report_: dict[str, Any]
    history_: pl.DataFrame
    best_epoch_: int

    def __init_subclass__(cls) -> None:
        """Derive signature, documentation and attributes from the settings."""
        super().__init_subclass__()
        if "__init__" not in vars(cls):
            return
        cls.settings_class = vars(cls)["__init__"].settings
        if "variants" not in vars(cls):
            cls.variants = {str(cls.name).lower(): {}}
        setattr(cls, "__signature__", signature_of(cls.settings_class))  # noqa: B010
        if cls.__doc__ and fields_of(cls.settings_class):
            before, mark, after = cls.__doc__.partition("    Attributes (after `fit`):")
            cls.__doc__ = f"{before}{describe(cls.settings_class)}\n\n{mark}{after}"
        for entry in fields_of(cls.settings_class):
            setattr(cls, entry.name, _parameter(entry.name, entry.metadata["meaning"]))

    @property
    @abstractmethod
    def name(self) -> str:
        """Short name in tables and on the command line; mostly a plain class attribute."""

    # -- parameters --------------------------------------------------------------------------

    @classmethod
    def rules(cls) -> dict[str, Rule]:
        """Return what each hyper-parameter allows."""
        return rules_of(cls.settings_class)

    @classmethod
    def has_epochs(cls) -> bool:
        """Whether the model is trained epoch by epoch."""
        return issubclass(cls.settings_class, IterationSettings)

    def check_params(self) -> None:
        """Raise a `ParameterError` for the first parameter with a value that is not allowed."""
        check(type(self).__name__, self.settings)

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
        made: Self = cls(**(preset(cls.__name__, "paper", dataset) | changes))
        return made

    def get_params(self) -> dict[str, Any]:
        """Return the hyper-parameters by name, as they were given."""
        return values_of(self.settings)

    def set_params(self, **values: Any) -> Self:
        """Set hyper-parameters by name."""
        self.check_names(values)
        self.settings = self.settings_class(**{**self.get_params(), **values})
        return self

    @classmethod
    def check_names(cls, names: Iterable[str]) -> None:
        """Raise a `ParameterError` for the first name that is no hyper-parameter's."""
        known = cls.rules()
        for name in names:
            if name not in known:
                raise ParameterError(
                    f"{cls.__name__} has no parameter {name!r}; "
                    f"it has: {', '.join(known) or 'none'}."
                )

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
            options: How to run it (checkpoints, progress, threads); nothing that changes what is
                learned.
        """
        return self._fit(train, validation, options or FitOptions(), None)

    def refit(self, log: Interactions, options: FitOptions | None = None) -> Self:
        """Learn anew from all there is, as long as was found best before.

        The model that people deploy: `fit` on a part of the events chose the epoch on others that
        were held out; now that it is chosen, nothing has to be held out any more. The steps are
        those of the first `best_epoch_` epochs of a fit on `log`.

        Args:
            log: All interactions.
            options: As for `fit`.

        Example:
            >>> from transcf import BPR, leave_one_out, synthesize
            >>> log = synthesize(users=200, items=80, interactions=3000, seed=0)
            >>> split = leave_one_out(log)
            >>> model = BPR(dim=16, epochs=5).fit(split.train, split.validation)
            >>> model.refit(log).report_["interactions"]
            3000
        """
        self._fitted()
        last = self.report_.get("best_epoch")
        return self._fit(log, None, options or FitOptions(), last)

    def _fit(
        self, train: Interactions, validation: Held, options: FitOptions, last_epoch: int | None
    ) -> Self:
        self.check_params()
        if not len(train):
            raise DataError(f"{type(self).__name__} cannot be fitted: there are no interactions.")
        self._forget()
        started, known = time.perf_counter(), Known.of(train)
        fit = Fit(
            name=self.name,
            train=train,
            known=known,
            validation=validation,
            options=options,
            last_epoch=last_epoch,
            remedy=self.remedy,
            free=self.free_to_change,
        )
        try:
            with use_threads(fit.options.threads):
                learned = self._learn(fit)
        except DivergedRunError as error:
            if error.learned is not None:  # its best finite state is better than nothing
                self._take_over(error.learned, fit, started)
            raise
        self._take_over(learned, fit, started)
        return self

    def _take_over(self, learned: Learned, fit: Fit, started: float) -> None:
        self.learned_ = learned
        self.report_ = fit.known.facts() | fit.report
        self.report_["seconds"] = round(time.perf_counter() - started, 3)
        if fit.outcome is not None:
            self.history_, self.best_epoch_ = fit.outcome.history, fit.outcome.best_epoch

    @property
    def _additions(self) -> int:
        """How often interactions were added since the fit."""
        return int(self.report_.get("additions", 0))

    def _add(self, learned: Learned) -> Self:
        """Take over what was learned with new interactions added."""
        additions = {"additions": self._additions + 1}
        self.learned_, self.report_ = learned, self.report_ | learned.known.facts() | additions
        return self

    def _forget(self) -> None:
        """Be as before the first fit."""
        for attribute in [name for name in vars(self) if name.endswith("_")]:
            delattr(self, attribute)

    @abstractmethod
    def _learn(self, fit: Fit) -> Learned:
        """Learn from `fit.train`; models with epochs hand a trainable to `fit.run`."""

    @abstractmethod
    def _restore(self, arrays: Arrays, known: Known) -> Learned:
        """Return what was learned, from its arrays.

        Raises:
            ValueError: An array is missing or not what the model needs.
        """

    # -- what a fitted model knows, and its scores by row --------------------------------------

    @property
    def users_(self) -> IdMap:
        """User ids."""
        return self._fitted().known.users

    @property
    def items_(self) -> IdMap:
        """Item ids."""
        return self._fitted().known.items

    @property
    def seen_(self) -> Csr:
        """Items of each user in training, as a set."""
        return self._fitted().known.seen

    @property
    def histories_(self) -> Histories:
        """The same in the order of time, or of the log where there were no times."""
        return self._fitted().known.histories

    @property
    def item_counts_(self) -> npt.NDArray[np.int64]:
        """(n_items,) training interactions of each item; without any it is never recommended."""
        return self._fitted().known.item_counts

    @property
    def rankable(self) -> npt.NDArray[np.bool_]:
        """(n_items,) items with training interactions."""
        return self._fitted().rankable

    def linear_form(self) -> LinearForm | None:
        """Return the score as inner products, if it is one."""
        return self._fitted().linear_form()

    def score_block(self, users: Rows) -> Scores:
        """Score all items for some user rows: (n, n_items)."""
        return self._fitted().score_block(users)

    def score_pairs(self, users: Rows, items: Rows) -> Scores:
        """Score pairs of rows: (n,)."""
        return self._fitted().score_pairs(users, items)

    @property
    def nbytes(self) -> int:
        """Bytes of the learned arrays."""
        return sum(array.nbytes for array in self._fitted().arrays().values())

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Show learned arrays as attributes that end in an underscore."""
            if name.endswith("_") and not name.startswith("_") and "learned_" in vars(self):
                attributes = self.learned_.attributes()
                if name[:-1] in attributes:
                    return attributes[name[:-1]]
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")

    # -- files -------------------------------------------------------------------------------

    def save(self, folder: str | Path) -> Path:
        """Write the model to a folder: tensors, JSON and ids, no code; all or nothing."""
        learned = self._fitted()
        if type(self).__name__ not in HOMES:
            raise ParameterError(
                f"There is no registered class {type(self).__name__!r}: transcf.load could not "
                "read what it saved."
            )
        known = learned.known
        stored = StoredModel(
            kind=type(self).__name__,
            summary=inspect.cleandoc(type(self).__doc__ or "").split("\n")[0],
            params=self.get_params(),
            report=self.report_,
            users=known.users,
            items=known.items,
            seen=known.seen,
            histories=known.histories,
            timed=known.timed,
            arrays=learned.arrays(),
        )
        return write_model(stored, folder)

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """Read a model that `save` wrote."""
        return cls.from_stored(read_model(folder), folder)

    @classmethod
    def from_stored(cls, stored: StoredModel, folder: str | Path) -> Self:
        """Put a model together that was read from a folder."""
        if stored.kind != cls.__name__:
            raise ParameterError(
                f"{folder} holds a {stored.kind}, not a {cls.__name__}: use {stored.kind}.load or "
                "transcf.load."
            )
        try:
            cls.check_names(stored.params)
            model: Self = cls(**stored.params)
            model.check_params()
        except ParameterError as error:
            raise ModelFileError(
                f"{folder} holds a model that this version of transcf cannot make: {error}"
            ) from error
        known = Known(stored.users, stored.items, stored.seen, stored.histories, stored.timed)
        try:
            model.learned_ = model._restore(stored.arrays, known)
        except (KeyError, ValueError, TypeError) as error:
            raise ModelFileError(
                f"{folder} does not hold the arrays of a {cls.__name__}: {error}."
            ) from error
        model.report_ = stored.report
        return model


def _parameter(name: str, meaning: str) -> property:
    """Show a setting as an attribute of the model."""

    def get(model: Recommender[Any]) -> Any:
        return getattr(model.settings, name)

    def put(model: Recommender[Any], value: Any) -> None:
        model.settings = replace(model.settings, **{name: value})

    return property(get, put, doc=meaning)
