"""Fit and evaluate one model, or take the result from the run cache.

`fit_and_validate` is a trial: fitted on the training part, evaluated on the validation part, to
choose parameters. `fit_and_evaluate` fits a model with one seed as a protocol requires, and
evaluates it for a table.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
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
from transcf.evaluation import EpochRecorder, Validation
from transcf.experiments.eval_config import EvalConfig
from transcf.experiments.run_key import RunKey
from transcf.experiments.run_result import RunResult, curve_of
from transcf.experiments.store import Store, cached_run
from transcf.models.base import Recommender
from transcf.models.params import values_of
from transcf.models.training import Epoch, FitOptions

#: Called when a fit starts, with "fit" or "refit"; returns its options.
StartFit: TypeAlias = Callable[[str], FitOptions]

#: Times in the report of a fit: the total, and parts of it.
_CLOCKS = ("seconds", "training_seconds", "validation_seconds")


def _default_options(step: str) -> FitOptions:
    return FitOptions()


def fit_and_evaluate(
    model: Recommender[Any],
    split: Split,
    config: EvalConfig,
    cache: Store | None = None,
    *,
    is_fitted: bool = False,
    start_fit: StartFit = _default_options,
    about: Mapping[str, str] | None = None,
) -> RunResult:
    """Fit a model on the training part, refit it if the protocol says so, and evaluate it once.

    Args:
        model: With its parameters; it is fitted unless the cache has the result.
        split: The data; its test part is used for the evaluation only.
        config: How to evaluate.
        cache: Where results are stored and looked up, or None.
        is_fitted: The model was fitted on `split.train` with validation before: skip that fit.
        start_fit: Returns the options of each fit.
        about: `dataset` and `model` by name, for `transcf runs list`.

    Returns:
        The result; with an error if the training diverges.

    Raises:
        RunLockedError: Another process is computing this run.
        KeyboardInterrupt: A fit was interrupted.

    Example:
        >>> from transcf import EASE, open_split
        >>> result = fit_and_evaluate(EASE(), open_split("synthetic"), EvalConfig())
        >>> round(result.evaluation.metrics["N@10"].mean, 1)
        0.2
    """
    config = config.on(split)
    if cache is not None and not config.with_validation:
        # A stored run that has the validation metric, too, is as good.
        complete = RunKey.evaluated(model, split, replace(config, with_validation=True))
        if (found := cache.find(complete)) is not None:
            return found
    with cached_run(cache, partial(RunKey.evaluated, model, split, config), about) as run:
        if run.result is not None:
            return run.result
        started, validation, recorder = perf_counter(), config.validation(split), None
        try:
            if not is_fitted and (config.with_validation or model._chooses() or not config.refits):
                options = start_fit("fit")
                if (recorder := config.recorder(model, split)) is not None:
                    options = _recorded(options, recorder)
                model.fit(split.train, validation, options)
                _check_finished(model)
            metric = validation(model) if config.with_validation else None
            reports, curve = [], curve_of(model) if model.is_fitted else []
            if config.refits:
                reports += [dict(model.report_)] if model._chooses() else []
                _refit(model, split, start_fit("refit"))
            run.result = _result(
                model,
                started,
                [*reports, model.report_],
                validation=metric,
                curve=curve,
                evaluation=config.evaluate(model, split) if recorder is None else recorder.result(),
                full_ranking=config.full_ranking(model, split),
            )
        except DivergenceError as error:
            run.result = _failed(model, error, started)
        return run.result


def fit_and_validate(
    model: Recommender[Any],
    train: Interactions,
    validation: Validation,
    cache: Store | None = None,
    *,
    start_fit: StartFit = _default_options,
    about: Mapping[str, str] | None = None,
) -> RunResult:
    """Fit a model on the training part, and evaluate it on the whole validation part.

    This is a trial of a search. Arguments and exceptions are those of `fit_and_evaluate`. The
    result has an error if the model cannot be trained; invalid parameters raise.

    Example:
        >>> from transcf import EASE, open_split
        >>> split = open_split("synthetic")
        >>> fit_and_validate(EASE(), split.train, Validation.of(split)).validation > 0.1
        True
    """
    with cached_run(cache, partial(RunKey.trial, model, train, validation), about) as run:
        if run.result is not None:
            return run.result
        started = perf_counter()
        try:
            with warnings.catch_warnings():
                # A search tries poor settings, too; the metric says how poor they are.
                warnings.simplefilter("ignore", FitWarning)
                model.fit(train, validation, start_fit("fit"))
            metric = validation(model)
            _check_finished(model)
            run.result = _result(
                model, started, [model.report_], validation=metric, curve=curve_of(model)
            )
        except (ParameterError, MissingExtraError):
            raise
        except TransCFError as error:
            run.result = _failed(model, error, started)
        return run.result


def _recorded(options: FitOptions, recorder: EpochRecorder) -> FitOptions:
    """Return options with which a recorder evaluates every epoch."""

    def on_epoch(epoch: Epoch[Any]) -> None:
        recorder(epoch.snapshot)
        if options.on_epoch is not None:
            options.on_epoch(epoch)

    return replace(options, on_epoch=on_epoch)


def _refit(model: Recommender[Any], split: Split, options: FitOptions) -> None:
    """Fit on train and validation, up to the chosen epoch if there is one."""
    if model.is_fitted:
        model.refit(split.before_test, options)
    else:
        model.fit(split.before_test, None, options)
    _check_finished(model)


def _check_finished(model: Recommender[Any]) -> None:
    """Raise `KeyboardInterrupt` if a fit was interrupted: it returns its best epoch instead."""
    if model.report_.get("ending") == "interrupted":
        raise KeyboardInterrupt


def _failed(model: Recommender[Any], error: TransCFError, started: float) -> RunResult:
    spent, parameters = round(perf_counter() - started, 3), values_of(model.settings)
    return RunResult(type(model).__name__, parameters, spent=spent, error=error)


def _result(
    model: Recommender[Any], started: float, reports: Sequence[Mapping[str, Any]], **found: Any
) -> RunResult:
    """Add up the times of all fits."""
    clocks = {
        name: sum(report.get(name, 0.0) for report in reports)
        for name in _CLOCKS
        if name in reports[-1]
    }
    seconds = clocks.pop("seconds")
    spent = round(perf_counter() - started, 3)
    return RunResult.of(model, seconds=seconds, parts=clocks, spent=spent, **found)
