"""`Search`: asks for settings one by one, and is told what came of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from transcf.errors import MissingExtraError
from transcf.models.registry import create
from transcf.tuning.budgets import Budget
from transcf.tuning.spaces import draws, free_space, grid_of

#: How a trial ended: judged, given up since others were ahead, or not trainable.
State: TypeAlias = Literal["complete", "pruned", "failed"]

#: Proposals of TPE that were there before, after which a random one takes their place.
_ATTEMPTS = 20


@dataclass(frozen=True)
class Tried:
    """One setting, and what came of it.

    Attributes:
        setting: What was proposed; nothing for the defaults.
        state: How it ended.
        figure: On validation data; None if it failed, the best so far if it was pruned.
        seconds: Wall clock of the fit and the judging.
        epoch: The epoch that was kept, for models with epochs.
        curve: The figure after every epoch that was validated.
        reason: Why it failed.
    """

    setting: Mapping[str, Any]
    state: State
    figure: float | None = None
    seconds: float = 0.0
    epoch: int | None = None
    curve: Mapping[int, float] = field(default_factory=dict)
    reason: str = ""


class Search:
    """Proposes settings of a model, the defaults first and none of them twice.

    What is proposed follows from the seed and from what was told: who asks again after telling the
    same is proposed the same, so that a search that was killed can be replayed from its figures.

    Args:
        model: Name of the model, as in the registry.
        budget: How many settings, by whom; what `Budget.of` takes.
        fixed: Parameters to leave alone, with their values.
        start: Settings that stand in the place of the defaults.
        seed: Of the draws.
        timed: Whether events have times.
        stream: Draws from 1 on are other ones, and leave the defaults to those of 0: for several
            processes that search together.

    Example:
        >>> search = Search("ease", {"trials": 3, "sampler": "grid"})
        >>> while (setting := search.ask()) is not None:
        ...     search.tell(Tried(setting, "complete", -setting.get("regularization", 500.0)))
        >>> search.best.setting
        {'regularization': 3.0}
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
        stream: int = 0,
    ) -> None:
        """Find out what may be tried."""
        self.budget = Budget.of(budget)
        self.space = free_space(model, fixed or (), timed, self.budget.space)
        usual = create(model, **{**(start or {}), **(fixed or {})}).get_params()
        #: What the parameters of the space are unless something else is proposed.
        self.usual = {name: usual[name] for name in self.space}
        self.history: list[Tried] = []
        self._pending: list[Mapping[str, Any]] = []
        self._forgotten: list[dict[str, Any]] = []
        self._seed, self._stream = seed, stream
        self._known = set[str]()
        listed = self.budget.sampler == "grid"
        self._others: Iterator[dict[str, Any]] = (
            grid_of(self.space, (seed, stream) if stream else None)
            if listed
            else draws(self.space, (seed, stream))
        )
        self._propose = _tpe() if self.budget.sampler == "tpe" and self.space else None

    @property
    def best(self) -> Tried | None:
        """The first of those with the best figure that was not pruned."""
        done = [tried for tried in self.history if tried.state == "complete"]
        return max(done, key=lambda tried: tried.figure or 0.0, default=None)

    def ask(self) -> dict[str, Any] | None:
        """Return a setting to try, or None if the budget is used up or nothing else is left."""
        if len(self.history) + len(self._pending) >= self.budget.trials:
            return None
        setting = self._next()
        if setting is not None:
            self._known.add(self._key(setting))
            self._pending.append(setting)
        return setting

    def tell(self, tried: Tried) -> None:
        """Take note of what came of a setting, proposed here or known from elsewhere."""
        if tried.setting in self._pending:
            self._pending.remove(tried.setting)
        self._known.add(self._key(tried.setting))
        self.history.append(tried)

    def forget(self, setting: Mapping[str, Any]) -> None:
        """Propose a setting again whose trial was interrupted, before all others."""
        self._pending.remove(setting)
        self._known.discard(self._key(setting))
        self._forgotten.append(dict(setting))

    def _next(self) -> dict[str, Any] | None:
        while self._forgotten:
            setting = self._forgotten.pop(0)
            if self._key(setting) not in self._known:  # somebody else may have tried it
                return setting
        if not self._stream and self._key({}) not in self._known:
            return {}
        for attempt in range(_ATTEMPTS) if self._propose is not None else ():
            number = len(self.history) + len(self._pending)
            seed = [self._seed, number, attempt, self._stream]
            assert self._propose is not None
            setting = self._propose(self.space, self.usual, self.history, self._pending, seed)
            if self._key(setting) not in self._known:
                return setting
        return next((one for one in self._others if self._key(one) not in self._known), None)

    def _key(self, setting: Mapping[str, Any]) -> str:
        """Name what a setting comes to; the defaults are the same however they are said."""
        return json.dumps({**self.usual, **setting}, sort_keys=True)


def _tpe() -> Callable[..., dict[str, Any]]:
    try:
        from transcf.tuning.tpe import propose
    except ImportError as error:
        raise MissingExtraError("The sampler tpe", "tune") from error
    return propose
