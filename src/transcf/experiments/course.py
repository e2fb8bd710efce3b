"""Running contenders: settings chosen on validation data, then judged, once for each seed."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from time import perf_counter
from typing import Any, TypeAlias

from transcf.data.interactions import Interactions
from transcf.data.split import Split
from transcf.errors import (
    DivergenceError,
    FitWarning,
    MissingExtraError,
    ParameterError,
    TransCFError,
)
from transcf.evaluation import Validation
from transcf.experiments.cells import Cell, Result, curve_of
from transcf.experiments.contenders import Contender
from transcf.experiments.judging import Judging
from transcf.experiments.runs import Run
from transcf.experiments.store import Store
from transcf.experiments.work import Job, answer, finish, nothing_to_wait_for, together
from transcf.learning.settings import values_of
from transcf.models.recommender import Recommender
from transcf.models.registry import canonical_name
from transcf.training.options import FitOptions
from transcf.training.trainable import Epoch
from transcf.tuning import Trial

#: Called with one line of text that tells what is being done.
OnProgress: TypeAlias = Callable[[str], None]

#: Times in the report of a fit: the whole, and parts of it.
_CLOCKS = ("seconds", "training_seconds", "validation_seconds")


@dataclass(frozen=True)
class Course:
    """How contenders of a table are run.

    Attributes:
        split: Where; its test part is read by the final judging alone.
        judging: How.
        seeds: At least one; a model without chance is run once.
        on_progress: Called with one line of text at every step; without it, epochs show on a
            terminal.
        with_validation: Whether to judge the kept models by all of the validation part, too, for
            tables that show it.
        store: Where results are kept and taken from; None runs everything.
        dataset: Name of the data, for who looks at the store.
    """

    split: Split
    judging: Judging
    seeds: Sequence[int] = (0,)
    on_progress: OnProgress | None = None
    with_validation: bool = True
    store: Store | None = None
    dataset: str = ""

    def job(self, contender: Contender) -> Job[Run]:
        """Choose settings on validation data (first seed), then fit and judge with every seed.

        Where the protocol says so, each model learns anew from train and validation, up to the
        epoch that was chosen, before it is judged.
        """
        found = yield from _Runner(self, contender, self.judging.on(self.split)).job()
        return found


def run(contender: Contender, split: Split, judging: Judging, seeds: Sequence[int]) -> Run:
    """Run one contender, and keep nothing; `Course` can do more."""
    return finish(Course(split, judging, seeds).job(contender))


def trial(
    model: Recommender[Any],
    train: Interactions,
    validation: Validation,
    *,
    options: Callable[[], FitOptions] = FitOptions,
    on_fitted: Callable[[float], object] = lambda figure: None,
    store: Store | None = None,
    about: Mapping[str, str] | None = None,
) -> Job[Result]:
    """Fit a model on the training part, and judge it by all of the validation part.

    Args:
        model: With its settings; it is fitted unless the store has the result.
        train: What to learn from.
        validation: What to choose epoch and settings by.
        options: How to run the fit; asked for when it starts.
        on_fitted: Called with the validation figure after a fit.
        store: Where the result is kept and taken from, or None.
        about: `dataset` and `model` by name, for who looks at the store.

    Returns:
        A job with the result; one with an error if the setting does not train.

    Example:
        >>> from transcf import EASE, open_split
        >>> split = open_split("synthetic")
        >>> found = finish(trial(EASE(), split.train, Validation.of(split)))
        >>> found.validation > 0.1
        True
    """

    def make() -> Result:
        started = perf_counter()
        try:
            with warnings.catch_warnings():
                # A search tries poor settings, too; the metric says how poor they are.
                warnings.simplefilter("ignore", FitWarning)
                model.fit(train, validation, options())
            figure = validation(model)
        except (ParameterError, MissingExtraError):
            raise
        except TransCFError as error:
            return _failed(model, error, started)
        _check_finished(model)
        on_fitted(figure)
        return _result(model, started, [model.report_], validation=figure, curve=curve_of(model))

    if store is None:
        return nothing_to_wait_for(make)
    return answer(store, Cell.trial(model, train, validation), make, about or {})


def as_trial(setting: Mapping[str, Any], found: Result) -> Trial:
    """Convert the result of a setting to a trial of a search."""
    if found.error is not None:
        return Trial(setting, "failed", None, found.spent, reason=str(found.error))
    curve = {
        epoch["epoch"]: epoch["metric"] for epoch in found.curve if epoch["metric"] is not None
    }
    return Trial(setting, "complete", found.validation, found.spent, found.best_epoch, curve)


class _Runner:
    """One contender under way."""

    def __init__(self, course: Course, contender: Contender, judging: Judging) -> None:
        self._course, self._contender, self._judging = course, contender, judging
        split = course.split
        self._validation = Validation.of(split, judging.protocol, judging.ties, judging.at)
        #: The best trial of this process: its model need not be fitted again.
        self._kept: tuple[float, Mapping[str, Any], Recommender[Any]] | None = None

    def job(self) -> Job[Run]:
        course = self._course
        choices, trials = yield from self._tried()
        chosen = choices[_best(trials)] if trials else choices[0]
        seeds = course.seeds if self._contender.takes_seed else course.seeds[:1]
        results = yield from together([self._judged(seed, chosen) for seed in seeds])
        for found in results:
            if found.error is not None:
                raise found.error
        return Run(self._contender.name, results, chosen, trials)

    def _tried(self) -> Job[tuple[Sequence[Mapping[str, Any]], list[Result]]]:
        """Try what there is to choose from; without a choice nothing is tried."""
        choices, begin = self._contender.choices, self._contender.search
        search = None if begin is None else begin()
        if search is None:
            numbered = enumerate(choices if len(choices) > 1 else (), start=1)
            trials = yield from together([self._trial(n, c, len(choices)) for n, c in numbered])
            return choices, trials
        # Each proposal follows from the figures before it: with a store, they are soon there again.
        proposed, trials = list[Mapping[str, Any]](), list[Result]()
        while (setting := search.ask()) is not None:
            proposed.append(setting)
            found = yield from self._trial(len(proposed), setting, search.budget.trials)
            trials.append(found)
            search.tell(as_trial(setting, found))
        return proposed, trials

    def _trial(self, number: int, choice: Mapping[str, Any], total: int) -> Job[Result]:
        """Try one setting."""
        contender, course = self._contender, self._course
        model = contender.make(course.seeds[0], choice)
        step = f"{contender.name}, setting {number} of {total}"

        def keep(figure: float) -> None:
            if self._kept is None or figure > self._kept[0]:
                self._kept = figure, choice, model

        return trial(
            model,
            course.split.train,
            self._validation,
            options=lambda: self._options(step),
            on_fitted=keep,
            store=course.store,
            about=self._about(),
        )

    def _judged(self, seed: int, chosen: Mapping[str, Any]) -> Job[Result]:
        """Fit with one seed, anew from train and validation if the protocol says so, and judge."""
        model, course = self._contender.make(seed, chosen), self._course

        def make() -> Result:
            started = perf_counter()
            try:
                return self._fit_and_judge(model, seed, chosen, started)
            except DivergenceError as error:
                return _failed(model, error, started)

        if course.store is None:
            return nothing_to_wait_for(make)
        cell = Cell.judged(model, course.split, self._judging)
        if not course.with_validation and course.store.find(cell) is None:
            # Nothing is there that says more than is asked for.
            cell = Cell.judged(model, course.split, self._judging, validated=False)
        return answer(course.store, cell, make, self._about())

    def _fit_and_judge(
        self, model: Recommender[Any], seed: int, chosen: Mapping[str, Any], started: float
    ) -> Result:
        judging, split, validation = self._judging, self._course.split, self._validation
        step, recorder = f"{self._contender.name}, seed {seed}", None
        wants_figure = self._course.with_validation
        kept, self._kept = self._kept, None
        is_first = seed == self._course.seeds[0]
        if kept is not None and kept[1] == chosen and is_first and not judging.picks_epochs_on_test:
            model = kept[2]
        elif wants_figure or model.chooses() or not judging.refits:
            recorder = judging.fit(model, split, validation, self._options(step))
            _check_finished(model)
        figure = validation(model) if wants_figure else None
        reports, curve = [], curve_of(model) if model.is_fitted else []
        if judging.refits:
            reports += [dict(model.report_)] if model.chooses() else []
            _refit(model, split, self._options(f"{step}, refit"))
        reports.append(model.report_)
        evaluation = judging.judge(model, split) if recorder is None else recorder.result()
        return _result(
            model,
            started,
            reports,
            validation=figure,
            curve=curve,
            evaluation=evaluation,
            full_ranking=judging.full_ranking(model, split),
        )

    def _about(self) -> dict[str, str]:
        return {"dataset": self._course.dataset, "model": canonical_name(self._contender.model)}

    def _options(self, step: str) -> FitOptions:
        """Report a step and its epochs; without a listener, epochs have a bar of their own."""
        tell = self._course.on_progress
        if tell is None:
            return FitOptions()
        tell(step)

        def on_epoch(epoch: Epoch[Any]) -> None:
            tell(f"{step}, epoch {epoch.number}")

        return FitOptions(progress=False, on_epoch=on_epoch)


def _best(trials: Sequence[Result]) -> int:
    """Return the place of the best trial, the first of equal ones.

    Raises:
        TransCFError: None could be trained; the reason of the first.
    """
    figures = [-inf if found.validation is None else found.validation for found in trials]
    best = max(range(len(trials)), key=figures.__getitem__)
    if (error := trials[best].error) is not None:
        raise error
    return best


def _failed(model: Recommender[Any], error: TransCFError, started: float) -> Result:
    """Note why a setting did not train."""
    spent, settings = round(perf_counter() - started, 3), values_of(model.settings)
    return Result(type(model).__name__, settings, spent=spent, error=error)


def _result(
    model: Recommender[Any], started: float, reports: Sequence[Mapping[str, Any]], **found: Any
) -> Result:
    """Put the times of fits together with what was found."""
    clocks = {
        name: sum(report.get(name, 0.0) for report in reports)
        for name in _CLOCKS
        if name in reports[-1]
    }
    seconds = clocks.pop("seconds")
    spent = round(perf_counter() - started, 3)
    return Result.of(model, seconds=seconds, parts=clocks, spent=spent, **found)


def _refit(model: Recommender[Any], split: Split, options: FitOptions) -> None:
    """Learn anew from train and validation, up to the epoch that was chosen, if there is any."""
    if model.is_fitted:
        model.refit(split.before_test, options)
    else:
        model.fit(split.before_test, None, options)
    _check_finished(model)


def _check_finished(model: Recommender[Any]) -> None:
    """Pass on an interruption, which a fit answers by ending early with its best epoch."""
    if model.report_.get("ending") == "interrupted":
        raise KeyboardInterrupt
