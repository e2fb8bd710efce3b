"""`form="auto"`: the form that is best on validation data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

from transcf.learning import Fit, Learned
from transcf.models.transcf.settings import CANDIDATES, TransCFSettings
from transcf.training.loop import DivergedRunError

#: What the report says of the choice.
CHOICE = ("validation_by_form",)
#: Learns with some settings.
Learn: TypeAlias = Callable[[Fit, TransCFSettings], Learned]


def choose(fit: Fit, settings: TransCFSettings, learn: Learn) -> Learned:
    """Learn in every form that is worth it, and keep the one that validation data prefer.

    What was chosen is in `fit.chosen`, and the figures of all are in its report. Without
    validation data there is nothing to choose by, and the first one is taken.

    Args:
        fit: What to learn from; its outcome and report become those of the best form.
        settings: The model's, with the defaults of each form where nothing else was said.
        learn: Learns in one form.

    Raises:
        DivergedRunError: Training diverged in every form.
    """
    if fit.validation is None:
        return keep(fit, settings, learn, CANDIDATES[0])
    best: tuple[float, Fit, Learned] | None = None
    figures: dict[str, float | None] = {}
    ending = ""
    for form in CANDIDATES:
        trial = _apart(fit, form)
        try:
            learned = keep(trial, settings, learn, form)
        except DivergedRunError:
            figures[form] = None
            if best is None and form == CANDIDATES[-1]:
                _adopt(fit, trial, figures)
                raise
            continue
        assert trial.outcome is not None, "every form has epochs"
        is_cut_short = trial.outcome.ending == "interrupted"
        ending = trial.outcome.ending if is_cut_short else ending
        if not is_cut_short or best is None:
            reached = trial.outcome.history["metric"].max()
            figure = figures[form] = None if reached is None else float(reached)  # type: ignore[arg-type]
            if best is None or (figure or 0.0) > best[0]:
                best = figure or 0.0, trial, learned
        if is_cut_short:
            break
    assert best is not None, "there are forms"
    _adopt(fit, best[1], figures)
    if ending:  # the choice is not finished, whatever the form that is kept was
        fit.report["ending"] = ending
    return best[2]


def _adopt(fit: Fit, trial: Fit, figures: dict[str, float | None]) -> None:
    """Let what came of a trial be what came of the fit."""
    fit.outcome, fit.chosen = trial.outcome, trial.chosen
    fit.report |= trial.report | {"validation_by_form": figures}


def keep(fit: Fit, settings: TransCFSettings, learn: Learn, form: str) -> Learned:
    """Learn in one form, and note that it was chosen."""
    fit.chosen = settings.with_form(form)
    fit.report["form"] = form
    return learn(fit, fit.chosen)


def _apart(fit: Fit, form: str) -> Fit:
    """Return the same fit with a report and checkpoints of its own."""
    options = fit.options
    if options.checkpoint is not None:
        options = replace(options, checkpoint=options.checkpoint / form)
    return replace(fit, options=options, report={}, outcome=None)
