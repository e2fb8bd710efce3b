"""Blend: a weighted sum of several models.

The parts are given as a text of model names, with parameters where they are not the defaults:

    ease(regularization=100.0) + transcf-mixture

Values are numbers, words in quotes, True, False and None. No text is ever evaluated as code.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from transcf.data.interactions import Interactions
from transcf.errors import DataError, DivergenceError, ParameterError, shown
from transcf.io.tensors import Arrays
from transcf.kernels.compiling import clock
from transcf.models.base import Recommender
from transcf.models.blended import Blended, best_weights
from transcf.models.fitted import FittedScorer, TrainingData
from transcf.models.params import Text, init_from_params, params_of, setting, settings
from transcf.models.registry import canonical_name, create, model_class, name_and_params
from transcf.models.training import DivergedRunError, Held, TrainingRun
from transcf.models.trend import trend_of, typical_spread

#: Most users of a full ranking that weights are chosen by, unless a sample was given.
_USERS = 10_000
_BLEND, _SEED = "blend", "random_state"
#: A name, what is in parentheses after it (quotes may hold parentheses), and what follows.
_PART = re.compile(
    r"""\s*([A-Za-z][\w-]*)\s*(\((?:[^()'"]|'[^']*'|"[^"]*")*\))?\s*(\+|$)""",
)


@dataclass(frozen=True)
class Part:
    """One part of a blend: its name in the registry and the parameters that are set."""

    name: str
    params: Mapping[str, Any]

    @classmethod
    def of(cls, model: Recommender[Any]) -> Part:
        """Return the part of a fitted model, with the settings of its fit."""
        name, params = name_and_params(type(model)(**params_of(model.settings_)))
        plain = {
            key: value.item() if isinstance(value, np.generic) else value
            for key, value in params.items()
        }
        return cls(name, plain)

    def make(self, random_state: int) -> Recommender[Any]:
        """Make the model, with this seed unless the part sets its own."""
        has_seed = _SEED in model_class(self.name)._rules()
        general = {_SEED: random_state} if has_seed else {}
        return create(self.name, **{**general, **self.params})

    def __str__(self) -> str:
        """Return the part as `read_parts` reads it."""
        values = ", ".join(f"{key}={value!r}" for key, value in self.params.items())
        return f"{self.name}({values})" if values else self.name


def read_parts(text: str) -> tuple[Part, ...]:
    """Read the parts of a blend: names and parameters, joined by +.

    Raises:
        ParameterError: The text, a model, a parameter or a value is not valid; a part is a blend,
            or the same as another.

    Example:
        >>> [str(part) for part in read_parts("EASE + bpr( dim=8 )")]
        ['ease', 'bpr(dim=8)']
    """
    parts: list[Part] = []
    place, joined = 0, True
    while joined:
        found = _PART.match(text, place)
        if found is None:
            rest = text[place:].strip()
            wrong = f"from {shown(rest)} on it is not understood" if rest else "nothing follows"
            raise ParameterError(f"{wrong}, where a model is expected.")
        parts.append(_part(found[1], found[2] or "()"))
        place, joined = found.end(), found[3] == "+"
    if len(parts) < 2:
        raise ParameterError(f"{parts[0]} alone is no blend: name another part.")
    for number, part in enumerate(parts):
        if part in parts[:number]:
            raise ParameterError(f"{part} is there twice: leave one out, or set it otherwise.")
    return tuple(parts)


def _part(name: str, values: str) -> Part:
    """Return a checked part from a name and what is in parentheses after it."""
    name = canonical_name(name)
    if name == _BLEND:
        raise ParameterError("a blend cannot be part of a blend: name its parts instead.")
    part = Part(name, _params(name, values))
    part.make(0)._check_params()
    return part


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
    steps. In full ranking at most 10,000 users are used. Without validation data all weights are
    equal. `refit` fits every part again, up to its epoch, and keeps the weights. `Blend.of` blends
    models that are fitted already. A checkpoint has a folder for each part.

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

    name = _BLEND
    __init__ = init_from_params(BlendSettings)

    #: Stored runs of earlier revisions are not reused.
    _revision: ClassVar[int] = 3

    def _chooses(self, timed: bool) -> bool:
        """Return True: weights are chosen on validation data."""
        return True

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
            model._fitted()
        blend: Self = cls(parts=" + ".join(str(Part.of(model)) for model in models))
        blend._check_params()
        known = models[0].learned_.known
        for model in models[1:]:
            _check_same(models[0], model)
        log = Interactions.from_rows(
            known.users, known.items, known.seen.entry_rows, known.seen.indices
        )
        run = TrainingRun(blend.name, log, known, validation)
        learned = blend._join(models, run)
        blend._take_over(learned, replace(run, known=learned.known), started)
        return blend

    def _learn(self, run: TrainingRun) -> FittedScorer:
        parts = self._parts()
        before: Sequence[FittedScorer | None] = [None] * len(parts)
        epochs = [0] * len(parts)  # validation data choose them
        if isinstance(run.before, Blended):
            if parts != read_parts(self.settings_.parts):
                raise ParameterError(
                    f"Blend: parts={shown(self.settings.parts)} are not those that weights were "
                    "chosen for, so that refit has none: use fit."
                )
            before, epochs = run.before.parts, run.before.best_epochs.tolist()
        if run.validation is not None:  # shared by all parts, so that it is prepared once
            from transcf.evaluation.validation import as_validation

            run = replace(run, validation=as_validation(run.train, run.validation))
        models: list[Recommender[Any]] = []
        for number, (part, epoch, old) in enumerate(zip(parts, epochs, before, strict=True), 1):
            options, model = run.options, part.make(self.settings.random_state)
            if options.checkpoint is not None:
                folder = options.checkpoint / f"{number}-{part.name}"
                options = replace(options, checkpoint=folder)
            try:
                model._fit(
                    run.train, run.validation, options, epoch or None, kept_trend=trend_of(old)
                )
            except DivergedRunError as error:  # one part is not a blend
                raise DivergenceError(f"Part {number} of the blend: {error}") from error
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
            from transcf.evaluation.validation import as_validation

            judge = as_validation(run.train, run.validation).sampled(_USERS)
            weights, figure = best_weights(judge, self.name, learned, spreads)
            run.report["validation"] = {judge.metric: figure}
        names, epochs = list(map(str, self._parts())), [model.best_epoch_ for model in models]
        run.report["weights"] = {
            name: round(weight, 4) for name, weight in zip(names, weights.tolist(), strict=True)
        }
        run.report["best_epochs"] = {
            name: epoch for name, epoch in zip(names, epochs, strict=True) if epoch is not None
        }
        kept = np.array([epoch or 0 for epoch in epochs], np.int64)
        return Blended(run.known, self.name, learned, weights, spreads, kept)

    def _restore(
        self, arrays: Arrays, known: TrainingData, settings: BlendSettings
    ) -> FittedScorer:
        parts = read_parts(settings.parts)
        restore = [part.make(settings.random_state)._restore_with_offsets for part in parts]
        return Blended.from_arrays(arrays, known, self.name, restore)

    def _parts(self) -> tuple[Part, ...]:
        return read_parts(self.settings.parts)


def _check_same(first: Recommender[Any], other: Recommender[Any]) -> None:
    """Raise a `DataError` unless two models were fitted on the same interactions."""
    one, two = first.learned_.known, other.learned_.known
    same_ids = one is two or (one.users == two.users and one.items == two.items)
    same = one is two or (
        same_ids
        and one.timed == two.timed
        and np.array_equal(one.seen.indptr, two.seen.indptr)
        and np.array_equal(one.histories.items, two.histories.items)
    )
    if not same:
        what = "interactions" if same_ids else "users or items"
        raise DataError(
            f"{first.name} and {other.name} were fitted on different {what} and cannot be blended: "
            "fit both on the same interactions, in the same order."
        )
