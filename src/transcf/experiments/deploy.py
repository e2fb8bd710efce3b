"""Fit a model for production: choose epoch and trend on held-out events, then fit on all."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from transcf.data.interactions import Interactions
from transcf.data.partitioned import PartitionedLog
from transcf.data.split import Split
from transcf.errors import EvaluationError
from transcf.evaluation import Validation
from transcf.models.base import Recommender
from transcf.models.training import FitOptions


def fit_for_use(
    model: Recommender[Any],
    log: Interactions | PartitionedLog,
    split: Split | PartitionedLog,
    validation: Validation | PartitionedLog,
    options: FitOptions | None = None,
) -> str:
    """Choose epoch (or weights) and trend on held-out events, then fit on all events with them.

    Models without epochs have nothing to choose where events have no times. A log that is too small
    to hold anything out is fitted without validation. After an interruption while the epoch is
    being chosen, the model has the best epoch so far, without the held-out events.

    Args:
        model: The model.
        log: All events of the final fit.
        split: The same log with events held out.
        validation: The validation on these events, or the validation part of a partitioned log.
        options: Options of both fits; each has a folder of checkpoints inside the given one.

    Returns:
        Description of the fit.

    Example:
        >>> from transcf import EASE, EventWeights, Validation, leave_one_out, synthesize
        >>> log = synthesize(users=100, items=40, interactions=1500, seed=0)
        >>> split, untimed = leave_one_out(log), EventWeights(trend=0)
        >>> fit_for_use(EASE(event_weights=untimed), log, split, Validation.of(split))
        'all 1,500 events; there was no epoch to choose'
    """
    options = options or FitOptions()
    events = f"all {len(log):,} events"
    timed = log.timestamps is not None if isinstance(log, Interactions) else log.timed
    if not model._chooses(timed):
        model.fit(log, None, options)
        return f"{events}; there was no epoch to choose"
    try:
        model.fit(split.train, validation, _in(options, "choice"))
    except EvaluationError as error:
        model.fit(log, None, _in(options, "all"))
        return f"{events}, without choosing an epoch: {error}"
    if model.report_.get("ending") == "interrupted":
        return f"a part of the events, interrupted while the epoch was chosen ({split.how})"
    epoch = model.best_epoch_
    chosen = f"epoch {epoch} was"
    if epoch is None:
        chosen = "the trend was" if "trend" in model.report_ else "weights were"
    model.refit(log, _in(options, "all"))
    return f"{events}, after {chosen} chosen on held-out ones ({split.how})"


def _in(options: FitOptions, name: str) -> FitOptions:
    """Return the options with a folder of checkpoints of its own."""
    if options.checkpoint is None:
        return options
    return replace(options, checkpoint=options.checkpoint / name)
