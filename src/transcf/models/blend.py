"""Blend: a weighted sum of several models.

The parts are given as a text of model names, with parameters where they are not the defaults:

    ease(regularization=100.0) + transcf-mixture

Values are numbers, words in quotes, True, False and None. No text is ever evaluated as code.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Self, TypeVar

import numpy as np
import numpy.typing as npt

from transcf.data.csr import Histories
from transcf.data.ids import Rows
from transcf.data.interactions import Interactions
from transcf.errors import (
    DataError,
    DivergenceError,
    ParameterError,
    UnsupportedError,
    shown,
)
from transcf.io.tensors import Arrays, stored
from transcf.kernels import Array
from transcf.kernels.compiling import clock
from transcf.models.base import Recommender
from transcf.models.explain import Remarks
from transcf.models.fitted import Composite, FittedScorer, TrainingData
from transcf.models.params import Text, init_from_params, params_of, setting, settings
from transcf.models.registry import canonical_name, create, model_class, name_and_params
from transcf.models.training import DivergedRunError, Held, TrainingRun
from transcf.models.trend import WithItemOffsets, typical_spread
from transcf.retrieval.scorer import Scorer
from transcf.retrieval.sums import CachedScorer, SumView, Weights, search_weights

P = TypeVar("P")

#: A name, what is in parentheses after it (quotes may hold parentheses), and what follows.
_PART = re.compile(r"""\s*([A-Za-z][\w-]*)\s*(\((?:[^()'"]|'[^']*'|"[^"]*")*\))?\s*(\+|$)""")
#: Most users of a full ranking that weights are chosen by, unless a sample was given: as many as
#: `CACHE_BYTES` hold the scores of, within these limits.
_LEAST_USERS, _MOST_USERS = 1_000, 10_000
#: Memory for the scores of all parts during the search, in bytes; others are computed repeatedly.
CACHE_BYTES = 512 * 2**20


# -- the parts as text -------------------------------------------------------------------------


@dataclass(frozen=True)
class Part:
    """One part of a blend: its name in the registry and the parameters that are set."""

    name: str
    params: Mapping[str, Any]

    @classmethod
    def of(cls, model: Recommender[Any]) -> Part:
        """Return the part of a fitted model, with the settings of its fit."""
        name, params = name_and_params(type(model)(**params_of(model.settings_)))
        numbers = {key: value.item() for key, value in params.items() if hasattr(value, "item")}
        return cls(name, params | numbers)

    def make(self, random_state: int) -> Recommender[Any]:
        """Make the model, with this seed unless the part sets its own."""
        has_seed = "random_state" in model_class(self.name)._rules()
        seed = {"random_state": random_state} if has_seed else {}
        return create(self.name, **{**seed, **self.params})

    def __str__(self) -> str:
        values = ", ".join(f"{key}={value!r}" for key, value in self.params.items())
        return f"{self.name}({values})" if values else self.name


def read_parts(text: str) -> tuple[Part, ...]:
    """Read the parts of a blend: names and parameters, joined by +.

    Raises:
        ParameterError: The text, a model, a parameter or a value is not valid; a part is a blend,
            or the same as another.
    """
    parts: list[Part] = []
    place, joined = 0, True
    while joined:
        found = _PART.match(text, place)
        if found is None:
            rest = text[place:].strip()
            wrong = f"from {shown(rest)} on it is not understood" if rest else "nothing follows"
            raise ParameterError(f"{wrong}, where a model is expected.")
        name = canonical_name(found[1])
        if name == Blend.name:
            raise ParameterError("a blend cannot be part of a blend: name its parts instead.")
        part = Part(name, _params(name, found[2] or "()"))
        part.make(0)._check_params()
        if part in parts:
            raise ParameterError(f"{part} is there twice: leave one out, or set it otherwise.")
        parts.append(part)
        place, joined = found.end(), found[3] == "+"
    if len(parts) < 2:
        raise ParameterError(f"{parts[0]} alone is no blend: name another part.")
    return tuple(parts)


def _params(name: str, values: str) -> dict[str, Any]:
    """Read `(name=value, ...)`; values are literals."""
    params: dict[str, Any] = {}
    try:
        call = ast.parse(f"f{' '.join(values.splitlines())}", mode="eval").body
        if not isinstance(call, ast.Call) or call.args:
            raise ValueError("parameters are given by name")
        for entry in call.keywords:
            if entry.arg is None or entry.arg in params:
                raise ValueError("every parameter is given once, by name")
            params[entry.arg] = ast.literal_eval(entry.value)
    except (SyntaxError, ValueError, TypeError, MemoryError, RecursionError) as error:
        raise ParameterError(
            f"{shown(values)} after {name} is not understood: write (name=value, ...) with "
            "numbers, words in quotes, True, False or None."
        ) from error
    return params


# -- the model ---------------------------------------------------------------------------------


@settings()
class BlendSettings:
    """Hyper-parameters of Blend."""

    parts: str = setting(
        "ease + transcf-mixture",
        "What is blended: names of models, each with its parameters in parentheses where they are "
        "not the usual ones.",
        rule=Text("models joined by +, such as 'ease(regularization=100.0) + bpr'", read_parts),
    )
    random_state: int = setting(
        0, "Seed of all parts that have one and set none of their own.", low=0, high=2**63 - 1
    )


class Blend(Recommender[BlendSettings]):
    """A weighted sum of the scores of several models; validation data choose the weights.

    Formula: `score(u, i) = sum over parts k of w_k s_k(u, i) / d_k`, where s_k is the score of the
    part and d_k its spread for a user (standard deviation over items, mean over users). Weights
    w_k are not negative and add up to 1.

    `fit` fits every part, with its epoch chosen on validation data, and then chooses the weights on
    the same data: of two parts the best of 0, .05, ..., 1; of more, one after the other in such
    steps. In full ranking at most 10,000 users are used, fewer where there are many items. Without
    validation data all weights are equal. `refit` fits every part again, up to its epoch, and keeps
    the weights. `Blend.of` blends models that are fitted already. A checkpoint has a folder for
    each part.

    Reference: Jahrer, Töscher and Legenstein, "Combining predictions for accurate recommender
    systems" (KDD 2010).

    Attributes (after `fit`):
        weights_: w, (n_parts,) float64.
        spreads_: d, (n_parts,) float64.
        parts_: What each part has learned.

    Example:
        >>> from transcf import Blend, open_split
        >>> split = open_split("synthetic")
        >>> model = Blend(parts="itemknn + bpr(dim=16, epochs=5)")
        >>> weights = model.fit(split.train, split.validation).report_["weights"]
        >>> list(weights), round(sum(weights.values()), 3)
        (['itemknn', 'bpr(dim=16, epochs=5)'], 1.0)
    """

    name = "blend"
    __init__ = init_from_params(BlendSettings)

    #: Stored runs of earlier revisions are not reused.
    _revision: ClassVar[int] = 4

    def _chooses(self, timed: bool) -> bool:
        return True  # the weights

    @classmethod
    def of(cls, models: Sequence[Recommender[Any]], validation: Held = None) -> Self:
        """Blend models that are fitted already, without fitting any of them again.

        Args:
            models: Two or more, fitted on the same interactions. Their arrays are not copied.
            validation: Held-out interactions with the same ids, or a `Validation`, to choose the
                weights by; None makes all weights equal.

        Raises:
            DataError: The models were fitted on different interactions.
            ParameterError: A model cannot be part of a blend.

        Example:
            >>> from transcf import EASE, Blend, TransCF, open_split
            >>> split = open_split("synthetic")
            >>> fitted = [EASE().fit(split.train), TransCF(dim=8, epochs=3).fit(split.train)]
            >>> Blend.of(fitted, split.validation)
            Blend(parts='ease + transcf(dim=8, epochs=3)', random_state=0)
        """
        started, models = clock(), list(models)
        for model in models:
            if not isinstance(model, Recommender):
                raise ParameterError(f"{shown(model)} is no model: blend fitted models.")
            _check_same(models[0], model)
        blend: Self = cls(parts=" + ".join(str(Part.of(model)) for model in models))
        blend._check_params()
        known = models[0].learned_.known
        log = Interactions.from_rows(
            known.users, known.items, known.seen.entry_rows, known.seen.indices
        )
        run = TrainingRun(blend.name, log, known, blend.settings, validation)
        learned = blend._join(models, run)
        blend._take_over(learned, replace(run, known=learned.known), blend.settings, started)
        return blend

    def _learn(self, run: TrainingRun) -> FittedScorer:
        parts, before = read_parts(self.settings.parts), run.before
        if isinstance(before, Blended) and parts != read_parts(self.settings_.parts):
            raise ParameterError(
                f"Blend: parts={shown(self.settings.parts)} are not those that weights were "
                "chosen for, so that refit has none: use fit."
            )
        if run.validation is not None:  # shared by all parts, so that it is prepared once
            run = replace(run, validation=run.judge_of(None))
        models: list[Recommender[Any]] = []
        for place, part in enumerate(parts):
            options, model = run.options, part.make(self.settings.random_state)
            if options.checkpoint is not None:
                folder = options.checkpoint / f"{place + 1}-{part.name}"
                options = replace(options, checkpoint=folder)
            epoch, fitted = None, None  # validation data choose what a refit keeps
            if isinstance(before, Blended):
                fitted, epoch = before.parts[place], int(before.best_epochs[place]) or None
                model.settings_ = model._settings_for(before.known)
            try:
                model._fit(run.train, run.validation, options, epoch, fitted)
            except DivergedRunError as error:  # one part is not a blend
                raise DivergenceError(f"Part {place + 1} of the blend: {error}") from error
            if model.report_.get("ending") == "interrupted":
                raise KeyboardInterrupt  # one part is not a blend
            models.append(model)
        run.report["part_seconds"] = {
            str(part): model.report_["seconds"] for part, model in zip(parts, models, strict=True)
        }
        return self._join(models, run)

    def _join(self, models: Sequence[Recommender[Any]], run: TrainingRun) -> FittedScorer:
        """Blend fitted models with the weights of the fit before, or chosen on validation data."""
        learned = [model.learned_ for model in models]
        spreads = np.array([typical_spread(part) for part in learned])
        weights = np.full(len(learned), 1 / len(learned))
        if isinstance(run.before, Blended):
            weights = run.before.weights
        elif run.validation is not None:
            users = CACHE_BYTES // (4 * len(learned) * len(run.known.items))
            users = min(max(users, _LEAST_USERS), _MOST_USERS)
            judge = run.judge_of(users)
            cached = [CachedScorer(part, CACHE_BYTES // len(learned)) for part in learned]

            def metric(weights: Weights) -> float:
                scorers, factors = zip(*_weighted_parts(cached, weights, spreads), strict=True)
                return judge(SumView(self.name, scorers, factors))

            weights, best = search_weights(metric, len(learned))
            run.report["validation"] = {judge.metric: best}
        names = [str(part) for part in read_parts(self.settings.parts)]
        epochs = [model.best_epoch_ for model in models]
        rounded = [round(weight, 4) for weight in weights.tolist()]
        run.report["weights"] = dict(zip(names, rounded, strict=True))
        chosen = zip(names, epochs, strict=True)
        run.report["best_epochs"] = {name: epoch for name, epoch in chosen if epoch is not None}
        kept = np.array([epoch or 0 for epoch in epochs], np.int64)
        return Blended(run.known, self.name, learned, weights, spreads, kept)

    def _restore(
        self, arrays: Arrays, known: TrainingData, settings: BlendSettings
    ) -> FittedScorer:
        parts = []
        for number, part in enumerate(read_parts(settings.parts), start=1):
            prefix, model = f"part{number}.", part.make(settings.random_state)
            own = {n.removeprefix(prefix): a for n, a in arrays.items() if n.startswith(prefix)}
            parts.append(model._restore_with_offsets(own, known))
        shape = (len(parts),)
        weights = stored(arrays, "weights", np.float64, shape)
        spreads = stored(arrays, "spreads", np.float64, shape)
        epochs = stored(arrays, "best_epochs", np.int64, shape)
        if not (weights >= 0).all() or not np.isclose(weights.sum(), 1):
            raise ValueError(f"weights should be shares of 1 and are {weights.tolist()}")
        return Blended(known, self.name, parts, weights, spreads, epochs)


def _check_same(first: Recommender[Any], other: Recommender[Any]) -> None:
    """Raise a `DataError` unless two models were fitted on the same interactions."""
    one, two = first._fitted().known, other._fitted().known
    same_ids = one.users == two.users and one.items == two.items
    if not (
        same_ids
        and one.timed == two.timed
        and np.array_equal(one.seen.indptr, two.seen.indptr)
        and np.array_equal(one.histories.items, two.histories.items)
    ):
        what = "interactions" if same_ids else "users or items"
        raise DataError(
            f"{first.name} and {other.name} were fitted on different {what} and cannot be blended: "
            "fit both on the same interactions, in the same order."
        )


# -- what it has learned -----------------------------------------------------------------------


class Blended(Composite):
    """`score(u, i) = sum over parts of weight * score of the part / spread of the part`.

    Weights are not negative and add up to 1; parts of weight 0 are kept and not computed. The
    epoch of a part without epochs is 0. All three arrays are (n_parts,).
    """

    def __init__(
        self, known: TrainingData, name: str, parts: Sequence[FittedScorer], weights: Weights,
        spreads: Weights, best_epochs: npt.NDArray[np.int64],
    ) -> None:  # fmt: skip
        super().__init__(known, name)
        self.parts, self.weights, self.spreads = tuple(parts), weights, spreads
        self.best_epochs = best_epochs

    def arrays(self) -> Arrays:
        """Return weights, spreads and epochs, and the arrays of the parts as `part1.NAME`."""
        own = {"weights": self.weights, "spreads": self.spreads, "best_epochs": self.best_epochs}
        return own | {
            f"part{number}.{name}": array
            for number, part in enumerate(self.parts, start=1)
            for name, array in part.arrays().items()
        }

    def attributes(self) -> dict[str, Any]:
        """Return the parts, their weights and their spreads."""
        return {"parts": self.parts, "weights": self.weights, "spreads": self.spreads}

    @cached_property
    def _weighted(self) -> list[tuple[FittedScorer, float]]:
        return _weighted_parts(self.parts, self.weights, self.spreads)

    def _compose(self, scorer_of: Callable[[FittedScorer], Scorer]) -> SumView:
        """Return the weighted sum of a scorer of each part."""
        parts, factors = zip(*self._weighted, strict=True)
        return SumView(self.name, [scorer_of(part) for part in parts], factors)

    def with_recent_events(self, items: Rows, times: Array) -> FittedScorer:
        """Return a blend of parts whose automatic trends count further events."""
        return self._with_parts([part.with_recent_events(items, times) for part in self.parts])

    def with_trend_after(self, before: FittedScorer, log: Interactions) -> FittedScorer:
        """Return a blend of parts that keep the counts of their automatic trends."""
        assert isinstance(before, Blended), "a refit of a blend follows a blend"
        pairs = zip(self.parts, before.parts, strict=True)
        return self._with_parts([new.with_trend_after(old, log) for new, old in pairs])

    def _with_parts(self, parts: Sequence[FittedScorer]) -> FittedScorer:
        """Return a blend of other parts; itself if they are the same."""
        if all(new is old for new, old in zip(parts, self.parts, strict=True)):
            return self
        return Blended(self.known, self.name, parts, self.weights, self.spreads, self.best_epochs)

    def fold_in_with_sgd(self, histories: Histories, steps: int) -> Scorer:
        """Fold in new users with steps of training, in the parts that support them."""
        trained: list[Scorer] = []

        def place(part: FittedScorer) -> Scorer:
            try:
                trained.append(part.fold_in_with_sgd(histories, steps))
            except UnsupportedError:
                return part.fold_in(histories)
            return trained[-1]

        view = self._compose(place)
        return view if trained else FittedScorer.fold_in_with_sgd(self, histories, steps)

    def remarks(self, user: int | None, history: Rows, item: int, top: int) -> Remarks:
        """Return what each part adds to the score."""
        row, rows = (0 if user is None else user), np.array([item], np.int32)
        alone = Histories.of([history], len(self.known.items))
        added: dict[str, float] = {}
        for part, factor in self._weighted:
            scorer = part.fold_in(alone) if user is None else part
            score = float(scorer.scores(np.array([row], np.int32), rows)[0])
            is_taken = part.name in added
            added[f"{part.name} {len(added) + 1}" if is_taken else part.name] = factor * score
        listed = ", ".join(f"{name} {value:+.3g}" for name, value in added.items())
        words, facts = f"What each part adds to the score: {listed}.", {"parts": added}
        trends = [
            factor * float(part.offset[item])
            for part, factor in self._weighted
            if isinstance(part, WithItemOffsets)
        ]
        if not trends:
            return Remarks((words,), facts)
        trend = sum(trends)
        more = f"Recent popularity is {trend:+.3g} of that, the same for every user."
        return Remarks((words, more), facts | {"trend": trend})

    def item_similarity(self) -> Scorer:
        """Return that of the part with the largest weight, of those that have one."""
        return self._of_first("item_similarity")

    def user_similarity(self) -> Scorer:
        """Return that of the part with the largest weight, of those that have one."""
        return self._of_first("user_similarity")

    def _of_first(self, similarity: str) -> Scorer:
        for place in np.argsort(-self.weights, kind="stable")[: len(self._weighted)]:
            try:
                found: Scorer = getattr(self.parts[place], similarity)()
            except UnsupportedError:
                continue
            return found
        found = getattr(super(), similarity)()
        return found


def _weighted_parts(
    parts: Sequence[P], weights: Weights, spreads: Weights
) -> list[tuple[P, float]]:
    """Return the parts with a weight above 0, each with the factor of its scores."""
    # Scores with a smaller spread are all equal.
    factors = weights / np.where(spreads > np.finfo(np.float32).tiny, spreads, 1.0)
    listed = zip(parts, factors.tolist(), strict=True)
    return [(part, factor) for part, factor in listed if factor > 0]
