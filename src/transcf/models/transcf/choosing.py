"""`form="auto"`: the form that is best on validation data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

from transcf.learning import Fit, Learned
from transcf.models.transcf.settings import CANDIDATES, TransCFSettings
from transcf.training.loop import DivergedRunError

#: Learns with some settings.
Learn: TypeAlias = Callable[[Fit, TransCFSettings], Learned]


def choose(fit: Fit, settings: TransCFSettings, learn: Learn, before: str | None) -> Learned:
    """Learn in every form that is worth it, and keep the one that validation data prefer.

    What was chosen is in `fit.chosen`, and the figures of all are in its report. Without
    validation data there is nothing to choose by, and the first one is taken.

    Args:
        fit: What to learn from; its outcome and report become those of the best form.
        settings: The model's, with the defaults of each form where nothing else was said.
        learn: Learns in one form.
        before: The form that was chosen before, where that choice is to be kept.

    Raises:
        DivergedRunError: Training diverged in every form.
    """
    if before is not None or fit.validation is None:
        return _take(fit, settings.with_form(before or CANDIDATES[0]), learn)
    best: tuple[float, Fit, Learned] | None = None
    figures: dict[str, float | None] = {}
    failed: DivergedRunError | None = None
    for form in CANDIDATES:
        trial, own = _apart(fit, form), settings.with_form(form)
        try:
            learned = _take(trial, own, learn)
        except DivergedRunError as error:
            failed, figures[form] = error, None
            continue
        if trial.report["ending"] == "interrupted":
            raise KeyboardInterrupt  # half a choice is none
        assert trial.outcome is not None, "every form has epochs"
        figure = figures[form] = float(trial.outcome.history["metric"].max())  # type: ignore[arg-type]
        if best is None or figure > best[0]:
            best = figure, trial, learned
    if best is None:
        assert failed is not None, "there are forms"
        raise failed
    _, trial, learned = best
    fit.outcome, fit.chosen = trial.outcome, trial.chosen
    fit.report |= trial.report | {"validation_by_form": figures}
    return learned


def _take(fit: Fit, settings: TransCFSettings, learn: Learn) -> Learned:
    """Learn in one form, and note that it was chosen."""
    fit.chosen = settings
    learned = learn(fit, settings)
    fit.report["form"] = settings.form
    return learned


def _apart(fit: Fit, form: str) -> Fit:
    """Return the same fit with a report and checkpoints of its own."""
    options = fit.options
    if options.checkpoint is not None:
        options = replace(options, checkpoint=options.checkpoint / form)
    return replace(fit, options=options, report={}, outcome=None)
