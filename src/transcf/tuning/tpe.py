"""Proposals by a tree-structured Parzen estimator; needs optuna."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
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

from transcf.tuning.search import Tried
from transcf.tuning.spaces import Range, Space, Values

_STATES = {
    "complete": TrialState.COMPLETE,
    "pruned": TrialState.PRUNED,
    "failed": TrialState.FAIL,
}


def propose(
    space: Space,
    usual: Mapping[str, Any],
    history: Sequence[Tried],
    pending: Sequence[Mapping[str, Any]],
    seed: Sequence[int],
) -> dict[str, Any]:
    """Return the setting that looks best after a history; the same for the same arguments.

    A study is put together for each proposal: adding a hundred trials takes a few hundredths of a
    second, and nothing has to be kept in step.

    Args:
        space: What may be tried.
        usual: What the parameters are in the trial that sets none of them.
        history: What was tried.
        pending: What is being tried.
        seed: Numbers that the draw depends on.
    """
    whole = distributions(space)
    number = int(np.random.SeedSequence(list(seed)).generate_state(1)[0])
    with quietly():
        study = optuna.create_study(
            direction="maximize", sampler=optuna.samplers.TPESampler(seed=number)
        )
    known = [frozen(tried, usual, whole) for tried in history]
    under_way = [
        create_trial(state=TrialState.RUNNING, params={**usual, **one}, distributions=whole)
        for one in pending
        if len(_contained({**usual, **one}, whole)) == len(whole)
    ]
    # A trial with other parameters than the rest would keep these from being looked at together.
    study.add_trials([one for one in [*known, *under_way] if len(one.params) == len(whole)])
    drawn = study.ask(whole).params
    return {name: _brief(space[name], drawn[name]) for name in space}


def distributions(
    space: Space, usual: Mapping[str, Any] | None = None
) -> dict[str, BaseDistribution]:
    """Write a space as Optuna does; on request wide enough for what is usual.

    Example:
        >>> distributions({"dim": [32, 64]}, {"dim": 50})
        {'dim': CategoricalDistribution(choices=(32, 64, 50))}
    """
    return {name: _distribution(values, name, usual or {}) for name, values in space.items()}


def frozen(
    tried: Tried, usual: Mapping[str, Any], whole: Mapping[str, BaseDistribution]
) -> FrozenTrial:
    """Write a trial as Optuna does; what no distribution holds is left out."""
    params = _contained({**usual, **tried.setting}, whole)
    return create_trial(
        state=_STATES[tried.state],
        value=None if tried.state == "failed" else tried.figure,
        params=params,
        distributions={name: whole[name] for name in params},
        intermediate_values=dict(tried.curve),
    )


@contextmanager
def quietly() -> Iterator[None]:
    """Keep Optuna from telling about studies that come and go."""
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        yield
    finally:
        optuna.logging.set_verbosity(before)


def _contained(params: Mapping[str, Any], whole: Mapping[str, BaseDistribution]) -> dict[str, Any]:
    """Return the parameters with a value that their distribution holds."""
    return {name: params[name] for name in whole if _holds(whole[name], params[name])}


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
    if values.whole:
        return IntDistribution(int(low), int(high), log=values.log)
    return FloatDistribution(low, high, log=values.log)


def _brief(values: Values, drawn: Any) -> Any:
    return values.brief(drawn) if isinstance(values, Range) else drawn
