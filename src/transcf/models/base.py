"""`Recommender`, the base class of all models.

A model class names its parameters (`__init__ = init_from_params(BPRSettings)`, see `params`),
learns in `_learn` and makes a fitted scorer from stored arrays in `_restore`. This module handles
fitting and queries by id (`tables` builds what they return); `registry` makes models of files.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self, get_args

import numpy as np
import numpy.typing as npt
import polars as pl

from transcf.data.csr import Csr, Histories
from transcf.data.files import path_of
from transcf.data.ids import Id, IdMap
from transcf.data.interactions import Interactions
from transcf.data.training_data import TrainingData
from transcf.errors import (
    DataError,
    NotFittedError,
    ParameterError,
    UnsupportedError,
    check_word,
)
from transcf.io.tensors import Arrays
from transcf.kernels.compiling import clock
from transcf.models import registry, tables
from transcf.models.event_weights import WeightSettings
from transcf.models.explain import Explanation, explanation
from transcf.models.families import IterationSettings, LogSizes, check_memory
from transcf.models.fitted import FittedScorer, check_fit
from transcf.models.params import (
    Configurable,
    S,
    check,
    fields_of,
    flat_params,
    init_from_params,
    nested_params,
    values_of,
)
from transcf.models.tables import Fallback, Filters, OnUnknown, history_rows, user_rows
from transcf.models.training import DivergedRunError, FitOptions, Held, TrainingRun
from transcf.models.trend import (
    is_automatic,
    manual_trend,
    restored,
    trend_of,
    with_trend,
    without_trend,
)
from transcf.parallel import use_threads
from transcf.retrieval.scorer import Scorer

__all__ = ["Recommender", "init_from_params"]


class Recommender(Configurable[S], Scorer, ABC):
    """The base class of all models.

    A fitted model keeps the settings that it was fitted with: as in scikit-learn, `set_params`
    changes the next `fit`, not the fitted model. Parameters that are used only after `fit`
    (`_runtime_params`) take effect at once.

    Attributes (after `fit`):
        learned_: The fitted scorer.
        settings_: The settings that it was fitted with.
        history_: Table of the epochs, for models that have some.
        best_epoch_: The epoch that was kept; None for models without epochs.
        additions_: How often interactions were added since (`partial_fit`).
        report_: Facts about the training (sizes, seconds and those of the model), JSON values
            only; saved with the model.
        histories_: Items of each user in training, in the order of time, or of the log without
            times.
        item_counts_: (n_items,) training interactions of each item; items without any are never
            recommended.
    """

    #: Parameters to lower when training diverges.
    _divergence_hint: ClassVar[str] = "learning_rate"
    #: Whether training can be distributed over the processes of a cluster.
    _supports_distributed: ClassVar[bool] = False
    #: Whether it is a trivial baseline, which may rank badly without a warning.
    _is_floor: ClassVar[bool] = False
    #: Parameters that `fit` does not use: a fitted model follows them when they are changed.
    _runtime_params: ClassVar[tuple[str, ...]] = ()
    #: Raised by every change that changes what the model learns, so that stored runs are redone.
    _revision: ClassVar[int] = 1
    #: Registry names, and the parameters of each.
    _variants: ClassVar[dict[str, dict[str, Any]]]
    #: Those of these names that "all" leaves out, and why.
    _not_in_all: ClassVar[dict[str, str]] = {}
    learned_: FittedScorer
    report_: dict[str, Any]
    history_: pl.DataFrame
    best_epoch_: int | None
    additions_: int
    settings_: S
    histories_: Histories
    item_counts_: npt.NDArray[np.int64]

    def __init_subclass__(cls) -> None:
        """Name the variants of a class: by default one, without parameters of its own."""
        super().__init_subclass__()
        if "__init__" in vars(cls) and "_variants" not in vars(cls):
            cls._variants = {str(cls.name).lower(): {}}

    @property
    @abstractmethod
    def name(self) -> str:
        """Name in tables and on the command line; mostly a plain class attribute."""

    # -- parameters --------------------------------------------------------------------------

    @classmethod
    def paper(cls, dataset: str | None = None, **changes: Any) -> Self:
        """Return the model with the preset `paper`: parameters for the protocol of TransCF's paper.

        Args:
            dataset: Catalog name of the data, where the preset has parameters of its own for it.
            changes: Hyper-parameters that replace those of the preset.

        Raises:
            ParameterError: The model has no such preset.

        Example:
            >>> from transcf import CML
            >>> CML.paper("ciao", dim=32).negatives
            1
        """
        params = registry.preset(cls.__name__, "paper", dataset) | flat_params(changes)
        made: Self = cls(**nested_params(cls._settings_class, params))
        return made

    def set_params(self, **values: Any) -> Self:
        """Set hyper-parameters for the next `fit`; a fitted model does not change.

        Those that are used only after `fit`, such as eALS's `online_steps`, take effect at once.

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
        values = self._read_params(values, self.settings)
        changed = replace(self.settings, **values)  # type: ignore[type-var]
        check(type(self).__name__, changed, values)
        self.settings = changed
        if self.is_fitted:
            late = {name: value for name, value in values.items() if name in self._runtime_params}
            self.settings_ = replace(self.settings_, **late)  # type: ignore[type-var]
        return self

    @classmethod
    def _has_epochs(cls) -> bool:
        """Whether the model is trained epoch by epoch."""
        return issubclass(cls._settings_class, IterationSettings)

    def _chooses(self, timed: bool) -> bool:
        """Whether `fit` chooses something on validation data, such as the epoch or the trend."""
        return self._has_epochs() or (timed and is_automatic(self.settings))

    def _repr_html_(self) -> str:
        """Show the hyper-parameters and their meanings in notebooks."""
        from transcf.data.report import counted
        from transcf.tables import Table

        note = "not fitted"
        if self.is_fitted:
            sizes = counted(len(self.users_), "user"), counted(len(self.items_), "item")
            note = f"fitted on {' and '.join(sizes)}"
        rows = [
            (entry.name, repr(getattr(self.settings, entry.name)), entry.metadata["meaning"])
            for entry in fields_of(self._settings_class)
        ]
        title = f"{type(self).__name__}: {note}"
        return Table(title, ("parameter", "value", "meaning"), rows)._repr_html_()

    # -- learning ----------------------------------------------------------------------------

    def fit(self, train: Any, validation: Any = None, options: FitOptions | None = None) -> Self:
        """Learn from interactions; nothing of an earlier fit is used.

        Args:
            train: What to learn from: interactions, a table, a matrix, a path or a name, as
                `as_interactions` takes them. A partitioned log (`prepare_parts`) that is fitted on
                a cluster stays on disk, and each worker reads its own users.
            validation: Held-out interactions with the same ids (or a `Validation`). They choose
                the epoch (or weights) of models that have some, and the automatic trend where
                events have times.
            options: Checkpoints, progress, threads; nothing that changes what is learned.

        Raises:
            OutOfMemoryError: It would need more memory than is free; raised before it starts.
        """
        return self._fit(train, validation, options)

    def refit(self, log: Any, options: FitOptions | None = None) -> Self:
        """Fit again on all interactions, with the number of epochs that was found best.

        `fit` on a part of the events chose the epoch on others that were held out. Once it is
        chosen, nothing has to be held out. The steps are those of the first `best_epoch_` epochs
        of a fit on `log`. An automatic trend keeps its strength and half-life, and counts `log`.

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
        before, chosen = self._fitted(), self.report_.get("trend")
        self._fit(log, None, options, self.best_epoch_, before)
        if trend_of(before) is None and chosen is not None:
            self.report_["trend"] = chosen  # why there is none
        return self

    def _fit(
        self,
        train: Any,
        validation: Held,
        options: FitOptions | None,
        last_epoch: int | None = None,
        before: FittedScorer | None = None,
    ) -> Self:
        from transcf.data.readers import as_interactions, as_partitioned

        self._check_params()
        options = options or FitOptions()
        parted = None if options.cluster is None else as_partitioned(train)
        log = as_interactions(train) if parted is None else parted
        if not len(log):
            raise DataError(f"{type(self).__name__} cannot be fitted: there are no interactions.")
        if options.cluster is not None and not self._supports_distributed:
            raise UnsupportedError(
                f"{self.name} cannot be trained on a cluster with these settings: leave the "
                f"cluster out, or take one of {', '.join(registry.distributable())}."
            )
        started = clock()
        if isinstance(log, Interactions):
            known = TrainingData.of(log)
        else:
            from transcf.models.partitioned import read_training_data

            known = read_training_data(log, self.settings)
        settings = self._settings_for(known, None if before is None else self.settings_)
        run = TrainingRun(
            self.name, log, known, settings, validation, options,
            last_epoch=last_epoch,
            before=None if before is None else without_trend(before),
            add_manual_trend=manual_trend(log, self.settings),
            divergence_hint=self._divergence_hint,
        )  # fmt: skip
        try:
            memory = check_memory(self.name, self.settings, log.n_users, log.n_items)
            with memory, use_threads(options.threads):
                learned = self._learn(run)
                if run.ending is None:  # there are no epochs, whose times would be known
                    run.report["training_seconds"] = round(clock() - started, 3)
                learned = with_trend(learned, run, trend_of(before))
        except DivergedRunError as error:
            if error.learned is not None:  # its best finite state is better than nothing
                self._take_over(error.learned, run, settings, started)
            raise
        self._take_over(learned, run, settings, started)
        if not self._is_floor:
            compared = check_fit(learned, run, stacklevel=3)
            if compared is not None:
                self.report_["held_out_metric"] = compared
        return self

    def _take_over(
        self, learned: FittedScorer, run: TrainingRun, settings: S, started: float
    ) -> None:
        """Set the fitted attributes; those of an earlier fit are removed."""
        for attribute in [name for name in vars(self) if name.endswith("_")]:
            delattr(self, attribute)
        self.learned_, self.settings_ = learned, settings
        self.report_ = run.known.facts() | run.report
        self.report_["seconds"] = round(clock() - started, 3)
        self.best_epoch_, self.additions_ = None, 0
        if run.ending is not None:
            self.history_, self.best_epoch_ = run.history, run.best_epoch

    def _without_trend(self) -> FittedScorer:
        return without_trend(self._fitted())

    def _check_growing(self) -> None:
        """Raise an `UnsupportedError` where a trend was set by hand: additions do not renew it."""
        self._fitted()
        settings = self.settings_
        if isinstance(settings, WeightSettings) and settings.event_weights.trend_by_hand:
            raise UnsupportedError(
                f"{self.name} cannot renew its trend without training: fit again, or with "
                'trend="auto".'
            )

    def _add(self, learned: FittedScorer, log: Interactions) -> Self:
        """Replace the fitted scorer by one with new interactions added, and renew its trend."""
        trend = trend_of(self.learned_)
        if trend is not None:
            learned = trend.after(log, self.learned_.known, learned.known).add_to(learned)
        self.learned_, self.additions_ = learned, self.additions_ + 1
        self.report_ |= learned.known.facts() | {"additions": self.additions_}
        return self

    @abstractmethod
    def _learn(self, run: TrainingRun) -> FittedScorer:
        """Learn from `run.train`; models with epochs pass a trainable to `run.run`."""

    @abstractmethod
    def _restore(self, arrays: Arrays, known: TrainingData, settings: S) -> FittedScorer:
        """Make the fitted scorer from its arrays.

        Raises:
            ValueError: An array is missing or not what the model needs.
        """

    def _restore_with_offsets(self, arrays: Arrays, known: TrainingData) -> FittedScorer:
        """Make the fitted scorer from the arrays of a folder, which may have item offsets."""
        settings = self._settings_for(known)
        return restored(arrays, known, lambda own: self._restore(own, known, settings))

    def _settings_for(self, known: TrainingData, before: S | None = None) -> S:
        """Return the settings with the defaults for the data; the fitted model keeps them.

        A refit keeps those of the fit `before` it, as it keeps the epoch.
        """
        given: Any = self.settings
        chosen: Any = given.for_log(LogSizes.of(known)) if hasattr(given, "for_log") else given
        if type(before) is type(given):
            kept = {
                name: getattr(before, name)
                for name, value in values_of(given).items()
                if value is None and getattr(chosen, name, None) is not None
            }
            chosen = replace(chosen, **kept)
        resolved: S = chosen
        return resolved

    # -- the fitted model, and its scores by row -----------------------------------------------

    @property
    def is_fitted(self) -> bool:
        """Whether `fit` or `load` has run."""
        return "learned_" in vars(self)

    def _fitted(self) -> FittedScorer:
        """Return the fitted scorer, or raise a `NotFittedError`."""
        if not self.is_fitted:
            raise NotFittedError(f"This {type(self).__name__} is not fitted yet: call fit first.")
        return self.learned_

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
    def rankable(self) -> npt.NDArray[np.bool_]:
        """(n_items,) items with training interactions."""
        return self._fitted().rankable

    def _delegate(self) -> Scorer:
        return self._fitted()

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Return learned arrays as attributes that end in an underscore."""
            is_learned = name.endswith("_") and not name.startswith("_")
            if is_learned and "learned_" in vars(self):
                known = self.learned_.known
                shown = {"histories": known.histories, "item_counts": known.item_counts}
                shown |= self.learned_.attributes()
                if name[:-1] in shown:
                    value = shown[name[:-1]]
                    if isinstance(value, np.ndarray):  # scores are not changed by accident
                        value = value.view()
                        value.flags.writeable = False
                    return value
            if is_learned or hasattr(type(self), name):  # such as a property that needs a fit
                self._fitted()
            hint = ""
            if name == "partial_fit":
                hint = ": it cannot learn from new events alone; use refit with all events"
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}{hint}")

    # -- queries by id -----------------------------------------------------------------------

    def recommend(
        self,
        users: Any = None,
        k: int = 10,
        *,
        exclude_seen: bool = True,
        items: Any = None,
        exclude: Any = None,
        on_unknown: Fallback = "raise",
    ) -> pl.DataFrame:
        """Recommend items.

        Args:
            users: One id, several ids (each is answered once, in the order of the request), or
                None for every user with training interactions.
            k: Longest list; shorter where fewer items are left.
            exclude_seen: Whether to leave out the user's training items.
            items: The only items to choose from, or None for all: ids for all users, or a
                mapping from user ids to ids. Users that a mapping does not name get nothing.
            exclude: Items never to choose, in the same forms.
            on_unknown: What to do about users without training interactions: "raise" an error,
                "skip" them, or recommend "popular" items to them.

        Unknown ids in `items` and `exclude` are skipped; a warning says how many.

        Returns:
            Table `user_id, item_id, score, rank`, best first. Equal scores are ordered by item
            id, ascending. With "popular" there is a column `source` as well: "model", or
            "popularity" where the score is the number of users who have the item.

        Example:
            >>> import polars as pl
            >>> from transcf import EASE, read_interactions
            >>> log = read_interactions(pl.DataFrame(
            ...     {"user": ["ann", "ann", "bob", "cid"], "item": ["x", "y", "x", "z"]}))
            >>> model = EASE().fit(log)
            >>> model.recommend("bob", k=3, exclude=["z"])["item_id"].to_list()
            ['y']
            >>> model.recommend(["bob", "zoe"], k=1, on_unknown="popular").rows()
            [('bob', 'y', 0.0033112582750618458, 1, 'model'), ('zoe', 'x', 2.0, 1, 'popularity')]
        """
        filters = Filters.of(self.items_, exclude_seen, items, exclude, on_unknown)
        return tables.recommendations(self._fitted(), users, k, filters)

    def recommend_all(
        self,
        path: str | Path,
        k: int = 10,
        *,
        users: Any = None,
        exclude_seen: bool = True,
        items: Any = None,
        exclude: Any = None,
        on_unknown: Fallback = "raise",
    ) -> Path:
        """Write the table of `recommend` to a file, in bounded memory.

        The ending of `path` says what is written: .csv, .tsv or .jsonl (any of them with .gz behind
        it), or .parquet. All other parameters are those of `recommend`. The file appears when it
        is whole; until then a file of that name stays as it was.

        Example:
            >>> from transcf import EASE, synthesize
            >>> print(EASE().fit(synthesize()).recommend_all("recs.parquet", k=20))
            recs.parquet
        """
        from transcf.data.writing import check_file, write_pieces

        filters = Filters.of(self.items_, exclude_seen, items, exclude, on_unknown)
        target = path_of(path)
        check_file(target)
        write_pieces(tables.recommendation_pieces(self._fitted(), users, k, filters), target)
        return target

    def recommend_for(
        self,
        history: Iterable[Id] | Iterable[Iterable[Id]] | Mapping[Id, Iterable[Id]],
        k: int = 10,
        *,
        steps: int = 0,
        exclude_seen: bool = True,
        items: Any = None,
        exclude: Any = None,
        on_unknown: Fallback = "raise",
    ) -> pl.DataFrame:
        """Recommend items to users that the model was not fitted on, by their item histories.

        Args:
            history: Item ids, oldest first; of an item given twice the last place counts. Several
                sessions at once are a mapping from session ids to such lists, or a list of lists,
                whose session ids are 0, 1 and so on.
            k: Longest list; shorter where fewer items are left.
            steps: Training steps for each session after it is folded in; for models that support
                it (TransCF).
            exclude_seen: Whether to leave out the items of the history.
            items: The only items to choose from, as in `recommend`, but for all sessions.
            exclude: Items never to choose, likewise.
            on_unknown: What to do about items of a history that are unknown or have no training
                interactions: "raise" an error or "skip" them. A history without any usable item
                is an error, unless "popular" asks for popular items in that case.

        Returns:
            The table of `recommend` without users. Several sessions have a column `session_id`.

        Example:
            >>> from transcf import EASE, synthesize
            >>> model = EASE().fit(synthesize())
            >>> first, second, third = model.items_.series[:3].to_list()
            >>> model.recommend_for([first, second], k=3).shape
            (3, 3)
            >>> carts = {"cart-7": [first, second], "cart-9": [third]}
            >>> model.recommend_for(carts, k=2)["session_id"].to_list()
            ['cart-7', 'cart-7', 'cart-9', 'cart-9']
        """
        filters = Filters.of(self.items_, exclude_seen, items, exclude, on_unknown)
        return tables.session_recommendations(self._fitted(), history, k, steps, filters)

    def explain(
        self, user: Id, item: Id, top: int = 5, *, include_seen: bool = False
    ) -> Explanation:
        """Explain which items of a user drew another one.

        Every past item has an effect on the score and a share: its effect divided by the sum of
        all absolute effects. Positive effects drew the item, negative ones pushed it away. For
        EASE, SLIM, ItemKNN and FISM (where the length of a history scales all terms alike) an
        effect is the item's own term in the score, for iALS and eALS its term in the score of
        a new user with this history: they add up. For other models, which fold the history in, an
        effect is how far the past item lifts the score above that of an average item, compared
        with an average item in its place or (CDAE) with the history without it.

        Args:
            user: Id of a user with training interactions.
            item: Id of an item with training interactions.
            top: Number of past items to show that drew it; half as many are shown that pushed it
                away.
            include_seen: Whether an item of the user may be explained.

        Raises:
            UnknownIdError: An id is unknown or has no training interactions.
            UnsupportedError: The scores of the model do not depend on histories.

        Example:
            >>> import polars as pl
            >>> from transcf import ItemKNN, read_interactions
            >>> users, items = ["ann", "bob", "bob", "cid"], ["cup", "cup", "pot", "tea"]
            >>> log = read_interactions(pl.DataFrame({"user": users, "item": items}))
            >>> print(ItemKNN().fit(log).explain("ann", "pot").sentence)
            pot was drawn most by cup (+100 %).
        """
        learned = self._fitted()
        row = int(user_rows(learned, [user], "raise")[0])
        history = learned.known.histories[row]
        return explanation(
            learned, learned, (row, user), history, item, top, include_seen=include_seen
        )

    def explain_for(
        self,
        history: Iterable[Id],
        item: Id,
        top: int = 5,
        *,
        include_seen: bool = False,
        on_unknown: OnUnknown = "raise",
    ) -> Explanation:
        """Explain which items of a history drew another one, for a new user.

        The history and `on_unknown` are as for `recommend_for`, without "popular"; all else is as
        for `explain`.

        Example:
            >>> from transcf import EASE, synthesize
            >>> model = EASE().fit(synthesize())
            >>> first, second, other = model.items_.series[:3].to_list()
            >>> len(model.explain_for([first, second], other).effects)
            2
        """
        learned = self._fitted()
        check_word("on_unknown", on_unknown, get_args(OnUnknown))
        rows = history_rows(learned, history, on_unknown)
        scorer = learned.fold_in(Histories.of([rows], len(learned.known.items)))
        return explanation(learned, scorer, None, rows, item, top, include_seen=include_seen)

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
        return tables.pair_scores(self._fitted(), pairs, on_unknown)

    def similar_items(
        self, items: Any, k: int = 10, *, on_unknown: OnUnknown = "raise"
    ) -> pl.DataFrame:
        """Find the items most similar to some items.

        Models in a metric space go by distance (its square, negative), those with inner products
        by the cosine of item vectors, EASE, SLIM and FISM by how much having the item speaks for
        another, and ItemKNN by the similarities that it keeps for the item.

        Args:
            items: One id or several; each is answered once, in the order of the request.
            k: Longest list; shorter where there are fewer similar items.
            on_unknown: What to do about items that are unknown or have no training interactions:
                "raise" an error or "skip" them.

        Returns:
            Table `item_id, neighbor_id, score, rank`, best first; equal scores by id.

        Raises:
            UnsupportedError: The model has neither vectors nor weights of items.
        """
        learned = self._fitted()
        return tables.similar(learned, "item", learned.item_similarity(), items, k, on_unknown)

    def similar_users(
        self, users: Any, k: int = 10, *, on_unknown: OnUnknown = "raise"
    ) -> pl.DataFrame:
        """Find the users most similar to some users, by the distance or cosine of their vectors.

        As `similar_items`, with ids of users; models without such vectors raise an
        `UnsupportedError`.
        """
        learned = self._fitted()
        return tables.similar(learned, "user", learned.user_similarity(), users, k, on_unknown)

    # -- files -------------------------------------------------------------------------------

    def save(self, folder: str | Path, *, overwrite: bool = False) -> Path:
        """Write the model to a folder: tensors, JSON and ids, no code; all or nothing.

        Args:
            folder: Where it goes; a free name or an empty folder.
            overwrite: Whether an existing model is replaced, in one step once the new one is
                complete.

        Raises:
            ModelFileError: Something is there that is not replaced.
            WriteError: The system refuses to write it, as on a full disk.
        """
        from transcf.io.model_dir import write_model

        learned, kind = self._fitted(), type(self)
        if kind.__name__ not in registry.HOMES:
            raise ParameterError(
                f"There is no registered class {kind.__name__!r}: transcf.load could not read what "
                "it saved."
            )
        about = {
            "class": kind.__name__,
            "params": values_of(self.settings_),
            "report": self.report_,
            "timed": learned.known.timed,
            "best_epoch": self.best_epoch_,
            "additions": self.additions_,
        }
        summary = (kind.__doc__ or "").strip().split("\n")[0]
        arrays = learned.stored_arrays()
        return write_model(folder, about, learned.known, arrays, summary, overwrite=overwrite)

    @classmethod
    def load(cls, folder: str | Path, *, mapped: bool | None = None) -> Self:
        """Read a model that `save` wrote; which version and `mapped` as in `transcf.load`."""
        model = registry.load(folder, mapped=mapped)
        if type(model) is not cls:
            kind = type(model).__name__
            raise ParameterError(
                f"{folder} holds a {kind}, not a {cls.__name__}: use {kind}.load or transcf.load."
            )
        return model
