"""Search spaces and trials as Optuna has them, and its tree-structured Parzen estimator."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.trial import FrozenTrial, TrialState, create_trial

from transcf.tuning.search import Trial
from transcf.tuning.spaces import Range, Space, Values

STATES = {
    "complete": TrialState.COMPLETE,
    "pruned": TrialState.PRUNED,
    "failed": TrialState.FAIL,
}


def propose(
    space: Space,
    usual: Mapping[str, Any],
    history: Collection[Trial],
    running: Collection[Mapping[str, Any]],
    seed: Sequence[int],
) -> dict[str, Any]:
    """Return a setting proposed by `TPESampler`; it depends only on the arguments.

    The in-memory study is built for each proposal, which takes a few hundredths of a second for a
    hundred trials, so that proposals can be replayed from the trials.

    Args:
        space: Search space.
        usual: Values of its parameters in the trial with the defaults.
        history: Finished trials.
        running: Settings of trials that have not finished.
        seed: Seed of the sampler.
    """
    whole = distributions(space)
    number = int(np.random.SeedSequence(list(seed)).generate_state(1)[0])
    trials = [to_frozen(trial, usual, whole) for trial in history]
    # RUNNING trials count as bad ones (constant liar), which keeps parallel proposals apart.
    trials += [freeze({**usual, **one}, whole, state=TrialState.RUNNING) for one in running]
    # A trial that lacks a parameter would exclude that parameter from the joint estimate.
    trials = [trial for trial in trials if len(trial.params) == len(whole)]
    study = memory_study(trials, sampler=optuna.samplers.TPESampler(seed=number))
    drawn = study.ask(whole).params
    return {
        name: values.round(drawn[name]) if isinstance(values, Range) else drawn[name]
        for name, values in space.items()
    }


def memory_study(trials: Iterable[FrozenTrial], **options: Any) -> optuna.Study:
    """Return an in-memory study with some trials, and with options of `optuna.create_study`."""
    with quiet_optuna():
        study = optuna.create_study(direction="maximize", **options)
    study.add_trials(trials)
    return study


def distributions(
    space: Space, usual: Mapping[str, Any] | None = None
) -> dict[str, BaseDistribution]:
    """Convert a space to Optuna's distributions, optionally widened to hold the usual values.

    Example:
        >>> distributions({"dim": [32, 64]}, {"dim": 50})
        {'dim': CategoricalDistribution(choices=(32, 64, 50))}
    """
    return {name: _distribution(values, name, usual or {}) for name, values in space.items()}


def to_frozen(
    trial: Trial, usual: Mapping[str, Any], whole: Mapping[str, BaseDistribution]
) -> FrozenTrial:
    """Convert a finished trial; values outside of their distribution are left out."""
    return freeze(
        {**usual, **trial.setting},
        whole,
        state=STATES[trial.state],
        value=None if trial.state == "failed" else trial.figure,
        intermediate_values=dict(trial.curve),
    )


def freeze(
    params: Mapping[str, Any], whole: Mapping[str, BaseDistribution], **result: Any
) -> FrozenTrial:
    """Create a trial of Optuna; values outside of their distribution are left out."""
    held = {name: params[name] for name in whole if _holds(whole[name], params[name])}
    used = {name: whole[name] for name in held}
    return create_trial(params=held, distributions=used, **result)


@contextmanager
def quiet_optuna() -> Iterator[None]:
    """Hide Optuna's log messages about studies, and its warnings about experimental features."""
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            warnings.filterwarnings("ignore", "Heartbeat of storage is supposed")
            yield
    finally:
        optuna.logging.set_verbosity(before)


def _holds(distribution: BaseDistribution, value: Any) -> bool:
    if isinstance(distribution, CategoricalDistribution):
        return value in distribution.choices
    assert isinstance(distribution, FloatDistribution | IntDistribution)
    return isinstance(value, int | float) and distribution.low <= value <= distribution.high


def _distribution(values: Values, name: str, usual: Mapping[str, Any]) -> BaseDistribution:
    if not isinstance(values, Range):
        more = [usual[name]] if name in usual and usual[name] not in values else []
        return CategoricalDistribution([*values, *more])
    low, high, value = values.low, values.high, usual.get(name)
    if value is not None and (value > 0 or not values.log):
        low, high = min(low, value), max(high, value)
    if values.is_integer:
        return IntDistribution(int(low), int(high), log=values.log)
    return FloatDistribution(low, high, log=values.log)
