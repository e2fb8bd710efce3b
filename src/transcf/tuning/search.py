"""`Search`: proposes settings of a model one at a time and learns from their trials."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from transcf.errors import MissingExtraError
from transcf.models.params import values_of
from transcf.models.registry import create
from transcf.tuning.budgets import Budget
from transcf.tuning.spaces import free_space, grid_of

#: Outcome of a trial. A pruned trial was stopped early because its metric was below the median.
State: TypeAlias = Literal["complete", "pruned", "failed"]

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
        self._propose = _import_tpe() if self.budget.sampler == "tpe" and self.space else None

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
        for attempt in range(_ATTEMPTS) if self._propose is not None else ():
            seed = [self._seed, number, attempt, 0]
            assert self._propose is not None
            setting = self._propose(self.space, self.usual, self.history, running, seed)
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


def _import_tpe() -> Callable[..., dict[str, Any]]:
    try:
        from transcf.tuning.tpe import propose
    except ImportError as error:
        raise MissingExtraError("The sampler tpe", "tune") from error
    return propose
