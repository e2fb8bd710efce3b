"""Blend: several models that answer as one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np

from transcf.data.interactions import Interactions
from transcf.errors import DataError, DivergenceError, ParameterError, shown
from transcf.io.tensors import Arrays
from transcf.kernels.compiling import clock
from transcf.models.base import Recommender, init_from_params
from transcf.models.blend.learned import Blended, Floats
from transcf.models.blend.parts import BLEND, PARTS, Part, read_parts, written
from transcf.models.blend.weights import best_weights, equal_weights
from transcf.models.fitted import FittedScorer
from transcf.models.params import setting, settings
from transcf.models.training import DivergedRunError, Held, TrainingRun
from transcf.models.training_data import TrainingData
from transcf.models.trend import typical_spread

#: Users that weights are chosen by in full ranking, unless a sample was asked for.
_USERS = 10_000


@settings()
class BlendSettings:
    """Hyper-parameters of Blend."""

    parts: str = setting(
        "ease + transcf-mixture",
        "What is blended: names of models, each with its parameters in parentheses where they are "
        "not the usual ones.",
        rule=PARTS,
    )
    random_state: int = setting(
        0, "Seed of all parts that have one and set none of their own.", low=0, high=2**63 - 1
    )


class Blend(Recommender[BlendSettings]):
    """Several models that answer as one, each with a weight that validation data chose.

    Formula: `score(u, i) = sum over parts k of w_k s_k(u, i) / d_k`, where s_k is the score of the
    part and d_k how much its scores differ for a user (standard deviation over items, mean over
    users), so that w_k is what it has to say. Weights are none below 0 and add up to 1.

    `fit` fits every part, its epoch chosen on validation data as ever, and then chooses the
    weights on the same data: of two parts the best of 0, .05, ..., 1; of more, one after the
    other in such steps. In full ranking it looks at 10,000 users at most. Without validation data
    all weights are equal. `refit` fits every part anew, up to its epoch, and keeps the weights.
    `Blend.of` blends models that are fitted already. A checkpoint has a folder for each part.

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

    name = BLEND
    __init__ = init_from_params(BlendSettings)

    #: Any model may be among the parts.
    _revision: ClassVar[int] = 3

    @classmethod
    def _chooses(cls) -> bool:
        """Weights are chosen on validation data, whatever the parts choose."""
        return True

    @classmethod
    def of(cls, models: Sequence[Recommender[Any]], validation: Held = None) -> Self:
        """Blend models that are fitted already, without fitting any of them again.

        Args:
            models: Two or more, fitted on the same interactions. What they have learned is shared
                with them, not copied.
            validation: Held-out interactions with the same ids, or a `Validation`, to choose the
                weights by; None gives all of them the same.

        Raises:
            DataError: They were fitted on different interactions.
            ParameterError: One of them cannot be part of a blend.

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
        blend: Self = cls(parts=written(map(Part.of, models)))
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
        parts, epochs = self._parts(), self._chosen_epochs(run)
        if run.validation is not None:  # one for all, so that what it works out is worked out once
            from transcf.evaluation.validation import as_validation

            run = replace(run, validation=as_validation(run.train, run.validation))
        models: list[Recommender[Any]] = []
        for number, (part, epoch) in enumerate(zip(parts, epochs, strict=True), start=1):
            options, model = run.options, part.make(self.settings.random_state)
            if options.checkpoint is not None:
                folder = options.checkpoint / f"{number}-{part.name}"
                options = replace(options, checkpoint=folder)
            try:
                model._fit(run.train, run.validation, options, epoch)
            except DivergedRunError as error:  # what it keeps of the part is no blend
                raise DivergenceError(f"Part {number} of the blend: {error}") from error
            if model.report_.get("ending") == "interrupted":
                raise KeyboardInterrupt  # without its other parts a blend is nothing to keep
            models.append(model)
        run.report["part_seconds"] = {
            str(part): model.report_["seconds"] for part, model in zip(parts, models, strict=True)
        }
        return self._join(models, run)

    def _chosen_epochs(self, run: TrainingRun) -> list[int | None]:
        """Return where each part stops: None where it finds out."""
        if run.before is None:
            return [None for _ in self._parts()]
        assert isinstance(run.before, Blended), "a blend learns nothing else"
        if read_parts(self.settings.parts) != read_parts(self.settings_.parts):
            raise ParameterError(
                f"Blend: parts={shown(self.settings.parts)} are not those that weights were chosen "
                "for, so that refit has none: use fit."
            )
        return [epoch or None for epoch in run.before.best_epochs.tolist()]

    def _join(self, models: Sequence[Recommender[Any]], run: TrainingRun) -> FittedScorer:
        """Blend fitted models, and say in the report how."""
        learned = [model.learned_ for model in models]
        spreads = np.array([typical_spread(part) for part in learned])
        weights = self._weights(learned, spreads, run)
        epochs = {
            str(part): model.best_epoch_
            for part, model in zip(self._parts(), models, strict=True)
            if model.best_epoch_ is not None
        }
        named = zip(map(str, self._parts()), weights.tolist(), strict=True)
        run.report["weights"] = {part: round(weight, 4) for part, weight in named}
        run.report["best_epochs"] = epochs
        kept = np.array([model.best_epoch_ or 0 for model in models], np.int64)
        return Blended(run.known, self.name, learned, weights, spreads, kept)

    def _weights(
        self, learned: Sequence[FittedScorer], spreads: Floats, run: TrainingRun
    ) -> Floats:
        if isinstance(run.before, Blended):
            return run.before.weights
        if run.validation is None:
            return equal_weights(len(learned))
        from transcf.evaluation.validation import as_validation

        judge = as_validation(run.train, run.validation).sampled(_USERS)
        weights, figure = best_weights(judge, self.name, learned, spreads)
        run.report["validation"] = {judge.metric: figure}
        return weights

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
    if one is two:
        return
    if one.users != two.users or one.items != two.items:
        raise DataError(
            f"{first.name} and {other.name} were fitted on different users or items and cannot be "
            "blended: fit both on the same interactions."
        )
    same = one.timed == two.timed and all(
        np.array_equal(mine, yours)
        for mine, yours in (
            (one.seen.indptr, two.seen.indptr),
            (one.histories.items, two.histories.items),
        )
    )
    if not same:
        raise DataError(
            f"{first.name} and {other.name} were fitted on different interactions and cannot be "
            "blended: fit both on the same ones, in the same order."
        )
