"""Budgets: how many settings of a model are tried, and which sampler proposes them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, Self

from transcf.errors import ParameterError, is_word, shown
from transcf.models.params import values_of
from transcf.models.registry import create
from transcf.tuning.spaces import SPACES, free_space, grid_of

#: Settings to try by name of the budget; the first is the default.
BUDGETS = {"none": 1, "small": 3, "medium": 10, "large": 40}
#: Samplers; TPE learns from earlier trials (extra `tune`).
SAMPLERS = ("random", "tpe", "grid")


@dataclass(frozen=True)
class Budget:
    """How many settings to try, and which.

    Attributes:
        trials: Number of settings, the defaults included.
        sampler: One of `SAMPLERS`.
        space: One of `SPACES`.

    Example:
        >>> Budget.of("medium"), Budget.of({"trials": 20, "sampler": "tpe"}).trials
        (Budget(trials=10, sampler='random', space='default'), 20)
    """

    trials: int = 1
    sampler: str = "random"
    space: str = "default"

    def __post_init__(self) -> None:
        """Check the values."""
        if isinstance(self.trials, bool) or not isinstance(self.trials, int) or self.trials < 1:
            raise ParameterError(
                f"A budget of trials={shown(self.trials)} is not allowed; it must be a number from "
                "1 on."
            )
        choices = (("sampler", self.sampler, SAMPLERS), ("space", self.space, SPACES))
        for what, word, words in choices:
            if not is_word(word, words):
                raise ParameterError(
                    f"There is no {what} {shown(word)}; there are: {', '.join(words)}."
                )

    @classmethod
    def of(cls, asked: Any) -> Self:
        """Parse a budget: one of `BUDGETS`, a number, either as text, a table, or a budget."""
        if isinstance(asked, cls):
            return asked
        if isinstance(asked, Mapping):
            if not {"trials"} <= asked.keys() <= {"trials", "sampler", "space"}:
                raise ParameterError(
                    f"The budget {shown(dict(asked))} is not understood: write trials, and sampler "
                    'or space if you like, as in { trials = 20, sampler = "tpe" }.'
                )
            return cls(**{**asked, "trials": cls.of(asked["trials"]).trials})
        if isinstance(asked, str) and asked.isdecimal():
            asked = int(asked)
        if isinstance(asked, int) and not isinstance(asked, bool):
            return cls(asked)
        if not is_word(asked, BUDGETS):
            raise ParameterError(
                f"There is no budget {shown(asked)}; there are: {', '.join(map(repr, BUDGETS))}, "
                "or a number of trials."
            )
        return cls(BUDGETS[asked])


def settings_to_try(
    model: str,
    budget: Any,
    fixed: Collection[str] = (),
    seed: int = 0,
    timed: bool = False,
    start: Mapping[str, Any] | None = None,
) -> list[dict[str, Any]]:
    """Return the settings that a budget allows: the defaults, then random ones without repeats.

    Args:
        model: Name in the registry.
        budget: Anything that `Budget.of` accepts.
        fixed: Parameters that are not searched.
        seed: Seed of the draws.
        timed: Whether events have timestamps.
        start: Settings that replace the defaults.

    Example:
        >>> settings_to_try("ease", "none"), len(settings_to_try("ease", "small"))
        ([{}], 3)
    """
    budget = Budget.of(budget)
    space = free_space(model, fixed, timed, budget.space)
    usual = values_of(create(model, **(start or {})).settings)
    others = (one for one in grid_of(space, seed) if any(usual[name] != one[name] for name in one))
    return [{}, *islice(others, budget.trials - 1)]
