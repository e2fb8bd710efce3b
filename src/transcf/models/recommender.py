"""`Recommender`: what every model does, whatever it learns.

A model class names its settings (`__init__ = init_from_params(BPRSettings)`), learns in `_learn`,
and turns stored arrays into a fitted scorer in `_restore`. Parameters, fitting and files are
handled here; ids, filters and tables in `answers`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Never, Self, TypeVar, cast

import numpy as np
import numpy.typing as npt
import polars as pl

from transcf.data.csr import Csr
from transcf.data.histories import Histories
from transcf.data.ids import IdMap, Rows
from transcf.data.interactions import Interactions, Mask
from transcf.data.logs import as_interactions, as_partitioned
from transcf.data.partitioned.log import PartitionedLog
from transcf.errors import DataError, ParameterError, UnsupportedError, did_you_mean
from transcf.io.model_dir import write_model
from transcf.io.tensors import Arrays
from transcf.io.versions import current_folder
from transcf.kernels.compiling import clock
from transcf.models.aliases import current_params
from transcf.models.event_weights import WeightSettings
from transcf.models.families import IterationSettings, divergence_hint_of
from transcf.models.fit_checks import warn_of_poor_fit
from transcf.models.fit_options import FitOptions
from transcf.models.fitted import FittedScorer
from transcf.models.fitting import Fit, Held
from transcf.models.item_offsets import WithItemOffsets, restored
from transcf.models.log_sizes import LogSizes
from transcf.models.memory import check_memory
from transcf.models.notebook import model_html
from transcf.models.params import follow_settings, init_from_params, read_only
from transcf.models.partitioned import check_weights
from transcf.models.presets import preset
from transcf.models.queries import Answers
from transcf.models.rules import Rule
from transcf.models.settings import check, rules_of, values_of
from transcf.models.state import from_state, read_stored, to_state
from transcf.models.training import DivergedRunError
from transcf.models.training_data import PartitionedTrainingData, TrainingData
from transcf.models.trend import Trend
from transcf.parallel import use_threads
from transcf.retrieval.forms import LinearForm
from transcf.retrieval.scorer import Scorer, Scores, Source

if TYPE_CHECKING:
    from transcf.retrieval.sums import SumForm

__all__ = ["Recommender", "init_from_params"]

S = TypeVar("S")


class Recommender(Answers, Scorer, ABC, Generic[S]):
    """The parent of all models; see the module for how to write one.

    A fitted model keeps the settings that it was fitted with: `set_params` is about the next
    `fit`, as in scikit-learn, and changes neither answers nor what `save` writes. Settings that
    matter only after `fit` (`runtime_params`) count from the moment they are set.

    Attributes (after `fit`):
        learned_: What was learned: arrays that score.
        settings_: The settings that it was learned with.
        history_: Table of the epochs, for models that have some.
        best_epoch_: The epoch that was kept; None for models without epochs.
        additions_: How often interactions were added since (`partial_fit`).
        report_: Facts about the training (sizes, seconds, what a model adds), JSON values only;
            saved with the model.
    """

    #: Parameters to lower when training diverges.
    divergence_hint: ClassVar[str] = "learning_rate"
    #: Whether other models are compared with it, so that it may rank as badly as it does.
    is_floor: ClassVar[bool] = False
    #: Parameters that may differ between a run and its resumption.
    resumable_params: ClassVar[tuple[str, ...]] = ("epochs", "patience")
    #: Parameters that `fit` does not use: what is fitted follows them when they are changed.
    runtime_params: ClassVar[tuple[str, ...]] = ()

    #: Names on the command line, and the parameters that each stands for.
    variants: ClassVar[dict[str, dict[str, Any]]]
    #: Those of these names that "all" leaves out, and why.
    not_in_all: ClassVar[dict[str, str]] = {}
    #: The class of the settings.
    settings_class: ClassVar[type]
    #: What the next `fit` goes by.
    settings: S
    if TYPE_CHECKING:
        __init__: Callable[..., None]
    report_: dict[str, Any]
    history_: pl.DataFrame
    best_epoch_: int | None
    additions_: int
    settings_: S

    def __init_subclass__(cls) -> None:
        """Derive signature, documentation and attributes from the settings."""
        super().__init_subclass__()
        if "__init__" in vars(cls):
            follow_settings(cls)
            if "variants" not in vars(cls):
                cls.variants = {str(cls.name).lower(): {}}

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

    @classmethod
    def chooses(cls) -> bool:
        """Whether `fit` chooses something on validation data: the epoch, or what is its own."""
        return cls.has_epochs()

    @property
    def revision(self) -> int:
        """Raised by every change that moves what such a model learns: its stored runs are old."""
        return 1

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

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the hyper-parameters by name, as they were given.

        Args:
            deep: For scikit-learn, which asks for the parameters of parts; models have none.
        """
        return values_of(self.settings)

    def set_params(self, **values: Any) -> Self:
        """Set hyper-parameters for the next `fit`; what is fitted stays as it is.

        Those that matter only after `fit`, such as eALS's `online_steps`, count at once.

        Raises:
            ParameterError: A name or a value is not allowed; nothing is changed then.

        Example:
            >>> from transcf import EALS, synthesize
            >>> model = EALS(dim=8, epochs=1).fit(synthesize())
            >>> model.set_params(dim=32, w_new=2.0).user_vectors_.shape[1]
            8
            >>> model.settings_.dim, model.settings_.w_new
            (8, 2.0)
        """
        values = self._current(values)
        self.check_names(values)
        changed = replace(self.settings, **values)  # type: ignore[type-var]
        check(type(self).__name__, changed, values)
        self.settings = changed
        if self.is_fitted:
            late = {name: value for name, value in values.items() if name in self.runtime_params}
            self.settings_ = replace(self.settings_, **late)  # type: ignore[type-var]
        return self

    @classmethod
    def _current(cls, params: dict[str, Any]) -> dict[str, Any]:
        """Replace old names of parameters."""
        kind, found = current_params(cls.__name__, params)
        if kind != cls.__name__:
            raise ParameterError(f"This is another model now: use {kind}.")
        return found

    @classmethod
    def check_names(cls, names: Iterable[str]) -> None:
        """Raise a `ParameterError` for the first name that is no hyper-parameter's."""
        known = cls.rules()
        for name in names:
            if name not in known:
                raise ParameterError(
                    f"{cls.__name__} has no parameter {name!r}; "
                    f"it has: {', '.join(known) or 'none'}.{did_you_mean(name, known)}"
                )

    def __repr__(self) -> str:
        """Show the class with its hyper-parameters."""
        values = ", ".join(f"{name}={value!r}" for name, value in self.get_params().items())
        return f"{type(self).__name__}({values})"

    def _repr_html_(self) -> str:
        """Show the class with its hyper-parameters and their meanings, in notebooks."""
        known = self.learned_.known if self.is_fitted else None
        return model_html(type(self).__name__, self.settings, known)

    # -- learning ----------------------------------------------------------------------------

    def fit(self, train: Any, validation: Any = None, options: FitOptions | None = None) -> Self:
        """Learn from interactions, anew: nothing of an earlier fit is used.

        Args:
            train: What to learn from: interactions, a table, a matrix, a path or a name, as
                `as_interactions` takes them. A log in parts (`prepare_parts`) that is fitted on a
                cluster stays on disk, and each worker reads its own users.
            validation: Held-out interactions with the same ids (or a `Validation`), for models
                that choose their epoch (or weights) by it; others leave it alone.
            options: How to run it (checkpoints, progress, threads); nothing that changes what is
                learned.

        Raises:
            OutOfMemoryError: It would need more memory than is free; said before it starts.
        """
        options = options or FitOptions()
        return self._fit(_log_of(train, options), validation, options)

    def refit(self, log: Any, options: FitOptions | None = None) -> Self:
        """Learn anew from all there is, as long as was found best before.

        The model that people deploy: `fit` on a part of the events chose the epoch on others that
        were held out; now that it is chosen, nothing has to be held out any more. The steps are
        those of the first `best_epoch_` epochs of a fit on `log`.

        Args:
            log: All interactions, in any form that `fit` takes.
            options: As for `fit`.

        Example:
            >>> from transcf import BPR, leave_one_out, synthesize
            >>> log = synthesize(users=200, items=80, interactions=3000, seed=0)
            >>> split = leave_one_out(log)
            >>> model = BPR(dim=16, epochs=5).fit(split.train, split.validation)
            >>> model.refit(log).report_["interactions"]
            3000
        """
        before, options = self._own(), options or FitOptions()
        return self._fit(_log_of(log, options), None, options, self.best_epoch_, before)

    def supports_distributed(self) -> bool:
        """Whether training can be spread over the processes of a cluster."""
        return False

    def _fit(
        self,
        train: Interactions | PartitionedLog,
        validation: Held,
        options: FitOptions,
        last_epoch: int | None = None,
        before: FittedScorer | None = None,
    ) -> Self:
        self.check_params()
        if not len(train):
            raise DataError(f"{type(self).__name__} cannot be fitted: there are no interactions.")
        if options.cluster is not None and not self.supports_distributed():
            from transcf.models.registry import distributable

            raise UnsupportedError(
                f"{self.name} cannot be trained on a cluster with these settings: leave the "
                f"cluster out, or take one of {', '.join(distributable())}."
            )
        started, trend = clock(), None
        if isinstance(train, Interactions):
            trend = Trend.of(train, self.settings)
        else:
            check_weights(train, self.settings)
        fit = Fit(
            name=self.name,
            log=train,
            known=TrainingData.of(train)
            if isinstance(train, Interactions)
            else PartitionedTrainingData(train),
            validation=validation,
            options=options,
            last_epoch=last_epoch,
            before=before,
            previous=None if before is None else self.settings_,
            trend=trend,
            divergence_hint=divergence_hint_of(self.settings, self.divergence_hint),
            free=self.resumable_params,
        )
        try:
            room = check_memory(self.name, self.settings, train.n_users, train.n_items)
            with room, use_threads(fit.options.threads):
                learned = self._learn(fit)
                if fit.outcome is None:  # snapshots of epochs have it already
                    learned = fit.with_trend(learned)
        except DivergedRunError as error:
            if error.learned is not None:  # its best finite state is better than nothing
                self._take_over(error.learned, fit, started)
            raise
        self._take_over(learned, fit, started)
        if not self.is_floor:
            warn_of_poor_fit(learned, fit, self.settings, stacklevel=3)
        return self

    def _take_over(self, learned: FittedScorer, fit: Fit, started: float) -> None:
        """Be what was learned; nothing is left of an earlier fit, which a failed one has kept."""
        for attribute in [name for name in vars(self) if name.endswith("_")]:
            delattr(self, attribute)
        self.learned_, self.settings_ = learned, fit.chosen or self.settings
        self.report_ = fit.known.facts() | fit.report
        self.report_["seconds"] = round(clock() - started, 3)
        self.best_epoch_, self.additions_ = None, 0
        if fit.outcome is not None:
            self.history_, self.best_epoch_ = fit.outcome.history, fit.outcome.best_epoch

    def _own(self) -> FittedScorer:
        """Return what the model itself has learned, without a trend beside it."""
        learned = self._fitted()
        return learned.inner if isinstance(learned, WithItemOffsets) else learned

    def _check_growing(self) -> None:
        """Raise an `UnsupportedError` where scores carry a trend: additions would let it age."""
        self._fitted()
        if isinstance(self.settings_, WeightSettings) and self.settings_.trend:
            raise UnsupportedError(
                f"{self.name} cannot renew its trend without training: fit again, or without trend."
            )

    def _add(self, learned: FittedScorer) -> Self:
        """Take over what was learned with new interactions added."""
        self.learned_, self.additions_ = learned, self.additions_ + 1
        self.report_ |= learned.known.facts() | {"additions": self.additions_}
        return self

    @abstractmethod
    def _learn(self, fit: Fit) -> FittedScorer:
        """Learn from `fit.train`; models with epochs hand a trainable to `fit.run`."""

    @abstractmethod
    def _restore(self, arrays: Arrays, known: TrainingData, settings: S) -> FittedScorer:
        """Return what was learned with some settings, from its arrays.

        Raises:
            ValueError: An array is missing or not what the model needs.
        """

    def restore(self, arrays: Arrays, known: TrainingData) -> FittedScorer:
        """Return what was learned with the present settings, from its arrays."""
        settings = self._settings_for(known)
        return restored(arrays, known, lambda own: self._restore(own, known, settings))

    def _settings_for(self, known: TrainingData) -> S:
        """Return the settings with the defaults that depend on the data."""
        settings: Any = self.settings
        if hasattr(settings, "for_log"):
            settings = settings.for_log(LogSizes.of_counts(known.seen.counts, known.item_counts))
        return cast("S", settings)

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

    def sum_form(self) -> SumForm | None:
        """Return the score as a logarithm of a sum over inner products, if it is one."""
        return self._fitted().sum_form()

    def scores(self, users: Rows, items: Rows | None = None) -> Scores:
        """Score pairs of rows, (n,), or all items for some user rows, (n, n_items)."""
        return self._fitted().scores(users, items)

    def top_k(
        self, users: Rows, k: int, *, seen: Csr | None = None, allowed: Mask | None = None
    ) -> tuple[Rows, Scores]:
        """Find the best k items of some user rows; see `retrieval.top_k`."""
        return self._fitted().top_k(users, k, seen=seen, allowed=allowed)

    @property
    def block_users(self) -> int | None:
        """Most users of a block whose scores are computed in tiles."""
        return self._fitted().block_users

    def open_block(self, users: Rows, items: Rows) -> Source:
        """Return the scores of some user rows, to be read in tiles."""
        return self._fitted().open_block(users, items)

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
                    return read_only(attributes[name[:-1]])
            is_learned = name.endswith("_") and not name.startswith("_")
            if is_learned or hasattr(type(self), name):  # such as a property that needs a fit
                self._fitted()
            hint = ""
            if name == "partial_fit":
                hint = ": it cannot learn from new events alone; use refit with all events"
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}{hint}")

    def __sklearn_tags__(self) -> Never:
        """Refuse scikit-learn's model selection, which asks for these tags before it starts."""
        raise UnsupportedError(
            "scikit-learn splits and scores single rows, and recommenders rank items of users: "
            "choose parameters with transcf.tune (or the command `transcf tune`), and judge models "
            "with transcf.evaluate."
        )

    # -- files -------------------------------------------------------------------------------

    def save(self, folder: str | Path, *, overwrite: bool = False) -> Path:
        """Write the model to a folder: tensors, JSON and ids, no code; all or nothing.

        Args:
            folder: Where it goes; a free name or an empty folder.
            overwrite: Whether a model that is there is replaced, in one step when the new one is
                whole.

        Raises:
            ModelFileError: Something is there that is not replaced.
            WriteError: The system refuses to write it, as on a full disk.
        """
        self._fitted()
        return write_model(to_state(self), folder, overwrite=overwrite)

    @classmethod
    def load(cls, folder: str | Path, *, mapped: bool | None = None) -> Self:
        """Read a model that `save` wrote; which version and `mapped` as in `transcf.load`."""
        current = current_folder(folder)
        return from_state(cls, read_stored(current, mapped=mapped), current)


def _log_of(data: Any, options: FitOptions) -> Interactions | PartitionedLog:
    """Return what to learn from; a log in parts stays so where it is spread over processes."""
    parted = None if options.cluster is None else as_partitioned(data)
    return as_interactions(data) if parted is None else parted
