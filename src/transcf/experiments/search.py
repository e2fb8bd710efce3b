"""`Search`: proposes settings of a model one at a time and learns from their trials (Optuna)."""

from __future__ import annotations

import json
import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias

import numpy as np

from transcf.errors import MissingExtraError
from transcf.experiments.search_space import Budget, Range, Space, Values, free_space, grid_of
from transcf.models.params import values_of
from transcf.models.registry import create

if TYPE_CHECKING:
    import optuna
    from optuna.distributions import BaseDistribution
    from optuna.trial import FrozenTrial

    from transcf.experiments.run_result import RunResult

#: Outcome of a trial. A pruned trial was stopped early because its metric was below the median.
State: TypeAlias = Literal["complete", "pruned", "failed"]
#: Names of these states in Optuna.
STATES = {"complete": "COMPLETE", "pruned": "PRUNED", "failed": "FAIL"}

#: A random setting replaces TPE's proposal after this many repeats of earlier settings.
_ATTEMPTS = 20


@dataclass(frozen=True)
class Trial:
    """One setting and its result.

    Attributes:
        setting: Proposed parameters; empty for the defaults.
        state: Outcome.
        figure: Metric on validation data: None if failed, the best epoch so far if pruned.
        seconds: Wall-clock time of fit and evaluation.
        epoch: Best epoch, for models with epochs.
        curve: Metric by validated epoch.
        reason: Why the trial failed.
    """

    setting: Mapping[str, Any]
    state: State
    figure: float | None = None
    seconds: float = 0.0
    epoch: int | None = None
    curve: Mapping[int, float] = field(default_factory=dict)
    reason: str = ""

    @classmethod
    def of(cls, setting: Mapping[str, Any], found: RunResult) -> Self:
        """Return the trial of a setting with the result of its run."""
        if found.error is not None:
            return cls(setting, "failed", None, found.spent, reason=str(found.error))
        curve = {one["epoch"]: one["metric"] for one in found.curve if one["metric"] is not None}
        return cls(setting, "complete", found.validation, found.spent, found.best_epoch, curve)


class Search:
    """Proposes settings of a model: the defaults first, and none of them twice.

    Proposals depend only on the seed and on the trials so far, so an interrupted search can be
    replayed from its trials.

    Args:
        model: Name in the registry.
        budget: Anything that `Budget.of` accepts.
        fixed: Parameters that are not searched, with their values.
        start: Settings that replace the defaults.
        seed: Seed of the proposals.
        timed: Whether events have timestamps.

    Raises:
        MissingExtraError: The sampler is TPE, and Optuna is not installed.
    """

    def __init__(
        self,
        model: str,
        budget: Any,
        *,
        fixed: Mapping[str, Any] | None = None,
        start: Mapping[str, Any] | None = None,
        seed: int = 0,
        timed: bool = False,
    ) -> None:
        self.budget = Budget.of(budget)
        self.space = free_space(model, fixed or (), timed, self.budget.space)
        params = values_of(create(model, **{**(start or {}), **(fixed or {})}).settings)
        #: Values of the searched parameters in the trial with the defaults.
        self.usual = {name: params[name] for name in self.space}
        self.history: list[Trial] = []
        self._tried = set[str]()
        self._seed = seed
        self._others = grid_of(self.space, None if self.budget.sampler == "grid" else (seed, 0))
        self._uses_tpe = self.budget.sampler == "tpe" and bool(self.space)
        if self._uses_tpe:
            import_optuna("The sampler tpe")

    def ask(self, running: Collection[Mapping[str, Any]] = ()) -> dict[str, Any] | None:
        """Return a new setting, or None if the budget is spent or the space is exhausted.

        Args:
            running: Settings of trials that have not finished; they are not proposed again.
        """
        number = len(self.history) + len(running)
        if len(self.history) >= self.budget.trials:
            return None
        known = self._tried | {self.key(setting) for setting in running}
        if self.key({}) not in known:
            return {}
        for attempt in range(_ATTEMPTS) if self._uses_tpe else ():
            seed = [self._seed, number, attempt, 0]
            setting = propose(self.space, self.usual, self.history, running, seed)
            if self.key(setting) not in known:
                return setting
        return next((one for one in self._others if self.key(one) not in known), None)

    def tell(self, trial: Trial) -> None:
        """Add a finished trial."""
        self._tried.add(self.key(trial.setting))
        self.history.append(trial)

    def key(self, setting: Mapping[str, Any]) -> str:
        """Identify a setting by the values of all searched parameters."""
        return json.dumps({**self.usual, **setting}, sort_keys=True)


def import_optuna(what: str) -> Any:
    """Return Optuna, or raise a `MissingExtraError` that says what needs it."""
    try:
        import optuna
    except ImportError as error:
        raise MissingExtraError(what, "tune") from error
    return optuna


def propose(
    space: Space,
    usual: Mapping[str, Any],
    history: Collection[Trial],
    running: Collection[Mapping[str, Any]],
    seed: Sequence[int],
) -> dict[str, Any]:
    """Return a setting proposed by Optuna's `TPESampler`; it depends only on the arguments.

    The in-memory study is built for each proposal, which takes a few hundredths of a second for a
    hundred trials, so that proposals can be replayed from the trials.

    Args:
        space: Search space.
        usual: Values of its parameters in the trial with the defaults.
        history: Finished trials.
        running: Settings of trials that have not finished.
        seed: Seed of the sampler.
    """
    import optuna

    whole = distributions(space)
    number = int(np.random.SeedSequence(list(seed)).generate_state(1)[0])
    trials = [to_frozen(trial, usual, whole) for trial in history]
    # RUNNING trials count as bad ones (constant liar), which keeps parallel proposals apart.
    trials += [freeze({**usual, **one}, whole, "RUNNING") for one in running]
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
    import optuna

    with quiet_optuna():
        study = optuna.create_study(direction="maximize", **options)
    study.add_trials(trials)
    return study


@contextmanager
def quiet_optuna() -> Iterator[None]:
    """Hide Optuna's log messages about studies, and its warnings about experimental features."""
    import optuna

    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            warnings.filterwarnings("ignore", "Heartbeat of storage is supposed")
            yield
    finally:
        optuna.logging.set_verbosity(before)


def to_frozen(
    trial: Trial, usual: Mapping[str, Any], whole: Mapping[str, BaseDistribution]
) -> FrozenTrial:
    """Convert a finished trial; values outside of their distribution are left out."""
    params, figure = {**usual, **trial.setting}, None if trial.state == "failed" else trial.figure
    curve = dict(trial.curve)
    return freeze(params, whole, STATES[trial.state], value=figure, intermediate_values=curve)


def freeze(
    params: Mapping[str, Any], whole: Mapping[str, BaseDistribution], state: str, **result: Any
) -> FrozenTrial:
    """Create a trial of Optuna; values outside of their distribution are left out."""
    from optuna.trial import TrialState, create_trial

    held = {name: params[name] for name in whole if _holds(whole[name], params[name])}
    used = {name: whole[name] for name in held}
    return create_trial(params=held, distributions=used, state=TrialState[state], **result)


def _holds(distribution: Any, value: Any) -> bool:
    if hasattr(distribution, "choices"):
        return value in distribution.choices
    is_number = isinstance(value, int | float)
    return is_number and bool(distribution.low <= value <= distribution.high)


def distributions(
    space: Space, usual: Mapping[str, Any] | None = None
) -> dict[str, BaseDistribution]:
    """Convert a space to Optuna's distributions, optionally widened to hold the usual values.

    Example:
        >>> distributions({"dim": [32, 64]}, {"dim": 50})
        {'dim': CategoricalDistribution(choices=(32, 64, 50))}
    """
    return {name: _distribution(values, name, usual or {}) for name, values in space.items()}


def _distribution(values: Values, name: str, usual: Mapping[str, Any]) -> BaseDistribution:
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if not isinstance(values, Range):
        more = [usual[name]] if name in usual and usual[name] not in values else []
        return CategoricalDistribution([*values, *more])
    low, high, value = values.low, values.high, usual.get(name)
    if value is not None and (value > 0 or not values.log):
        low, high = min(low, value), max(high, value)
    if values.is_integer:
        return IntDistribution(int(low), int(high), log=values.log)
    return FloatDistribution(low, high, log=values.log)
