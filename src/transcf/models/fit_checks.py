"""Warnings about a fit whose result is probably of no use."""

from __future__ import annotations

import warnings

import numpy as np

from transcf.data.interactions import Interactions
from transcf.data.partitioned.log import PartitionedLog
from transcf.errors import EvaluationError, FitWarning
from transcf.evaluation.validation import Validation, as_validation
from transcf.kernels import Array
from transcf.models.families import IterationSettings
from transcf.models.fitted import FittedScorer
from transcf.models.training import TrainingRun
from transcf.models.training_data import TrainingData
from transcf.retrieval.views import BlockView

#: Vectors have collapsed where the median norm is below this, or below this share of the largest.
_SMALLEST_NORM, _SMALLEST_SHARE = 1e-3, 1e-2


def warn_of_poor_fit(
    learned: FittedScorer, run: TrainingRun, settings: object, stacklevel: int
) -> None:
    """Warn of collapsed vectors, and of a model that ranks below popularity on validation data.

    Args:
        learned: What was learned, as it ranks.
        run: The fit that it comes from.
        settings: The model's settings.
        stacklevel: As for `warnings.warn`, counted from the caller.
    """
    for problem in (_collapse(learned), _below_popularity(learned, run, settings)):
        if problem:
            warnings.warn(problem, FitWarning, stacklevel=stacklevel + 1)


def _collapse(learned: FittedScorer) -> str:
    """Describe vectors that have shrunk to nothing."""
    known, attributes = learned.known, learned.attributes()
    sides = {"user": known.active, "item": known.item_counts > 0}
    for side, has_events in sides.items():
        vectors = attributes.get(f"{side}_vectors")
        if vectors is None:
            continue
        norms = np.linalg.norm(vectors[has_events], axis=1)
        median, largest = float(np.median(norms)), float(norms.max())
        if median < max(_SMALLEST_NORM, _SMALLEST_SHARE * largest):
            return (
                f"{learned.name}: the {side} vectors have collapsed (median norm {median:.2g}, "
                f"largest {largest:.2g}), so that rankings are arbitrary: lower regularization, or "
                "leave it at its default."
            )
    return ""


def _below_popularity(learned: FittedScorer, run: TrainingRun, settings: object) -> str:
    """Describe a model that validation data rank below popularity."""
    if not isinstance(run.validation, Interactions | PartitionedLog | Validation):
        return ""
    users = settings.validation_users if isinstance(settings, IterationSettings) else 1000
    try:
        judge = run.judge or as_validation(run.log, run.validation, users).sampled(users)
        floor = judge(_popularity(learned.known))
        figure = judge(learned) if run.ending is None else run.best_metric
    except EvaluationError:  # nobody to evaluate
        return ""
    if figure is None or figure >= floor:
        return ""
    return (
        f"{learned.name} ranks below popularity on the validation data ({judge.metric} "
        f"{figure:.4f}, popularity {floor:.4f}): change its parameters, or use another model."
    )


def _popularity(known: TrainingData) -> BlockView:
    scores: Array = known.item_counts.astype(np.float32)
    return BlockView("popularity", known.rankable, lambda users: np.tile(scores, (len(users), 1)))
