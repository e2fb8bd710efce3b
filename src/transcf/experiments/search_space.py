"""Search spaces (`spaces.toml`) and budgets: which values to try, how many, and in which order."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from itertools import islice
from typing import Any, Self, TypeAlias

import numpy as np

from transcf.errors import ParameterError, is_word, shown
from transcf.models.params import values_of
from transcf.models.registry import canonical_name, create, model_class

#: Names of the spaces: the recommended values, and the grid of TransCF's paper.
SPACES = ("default", "paper")
#: Settings to try by name of the budget; the first is the default.
BUDGETS = {"none": 1, "small": 3, "medium": 10, "large": 40}
#: Samplers; TPE learns from earlier trials (extra `tune`).
SAMPLERS = ("random", "tpe", "grid")

#: Half-lives and their unit depend on each other: fixing one fixes all.
_UNITS = {"half_life", "trend_half_life", "age_in"}


@dataclass(frozen=True)
class Range:
    """A closed interval for TPE, and its values in grids and random search.

    Attributes:
        low: Lower end; the range holds integers only if both ends are integers.
        high: Upper end.
        points: Values of grids and random search.
        log: Whether to sample on a logarithmic scale.
    """

    low: float
    high: float
    points: tuple[float, ...]
    log: bool = False

    def __post_init__(self) -> None:
        """Check the ends."""
        if not self.low < self.high or (self.log and self.low <= 0):
            raise ParameterError(f"{self} is no range: low has to be below high, above 0 with log.")

    @property
    def is_integer(self) -> bool:
        """Whether the range holds integers only."""
        return isinstance(self.low, int) and isinstance(self.high, int)

    def round(self, value: float) -> float:
        """Round to three significant digits, or to an integer, within the range."""
        rounded = round(value) if self.is_integer else float(f"{value:.3g}")
        return min(max(rounded, self.low), self.high)


#: Values of one parameter.
Values: TypeAlias = list[Any] | Range
#: Values by parameter.
Space: TypeAlias = dict[str, Values]


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


@cache
def _all_spaces() -> dict[str, Space]:
    text = files("transcf.experiments").joinpath("spaces.toml").read_text(encoding="utf-8")
    return {
        kind: {name: _parse(values) for name, values in space.items()}
        for kind, space in tomllib.loads(text).items()
    }


def _parse(listed: list[Any] | dict[str, Any]) -> Values:
    if isinstance(listed, dict):
        return Range(**{**listed, "points": tuple(listed["points"])})
    return [None if value == "none" else value for value in listed]


def space_of(model: str, timed: bool = False, space: str = "default") -> Space:
    """Return the search space of a model; empty for a model without parameters to tune.

    Args:
        model: Name in the registry.
        timed: Whether events have timestamps, which adds the weights by age and the trend.
        space: One of `SPACES`; the paper's space ignores `timed`.

    Example:
        >>> sorted(space_of("itemknn"))
        ['n_neighbors', 'shrinkage']
        >>> space_of("bpr", space="paper")["regularization"]
        [0.0, 0.001, 0.01, 0.1]
    """
    if not is_word(space, SPACES):
        raise ParameterError(f"There is no space {shown(space)}; there are: {', '.join(SPACES)}.")
    kind, spaces = model_class(model), _all_spaces()
    rules = kind._rules()
    if space == "paper":
        return {
            name: [value for value in _grid_values(values) if rules[name].allows(value)]
            for name, values in spaces["paper"].items()
            if name in rules
        }
    found = spaces.get(canonical_name(model), spaces.get(kind.__name__, {}))
    if timed and "trend" in rules:
        by_age = spaces["with times"].items()
        found = found | {name: values for name, values in by_age if name in rules}
    return found


def free_space(
    model: str, fixed: Collection[str] = (), timed: bool = False, space: str = "default"
) -> Space:
    """Return the search space without the parameters that are fixed.

    Example:
        >>> sorted(free_space("itemknn", fixed=["shrinkage"]))
        ['n_neighbors']
    """
    if _UNITS & {*fixed}:
        fixed = {*fixed, *_UNITS}
    found = space_of(model, timed, space)
    return {name: values for name, values in found.items() if name not in fixed}


def grid_of(space: Space, seed: int | Sequence[int] | None = None) -> Iterator[dict[str, Any]]:
    """Yield every combination of values, in random order if there is a seed.

    Example:
        >>> list(grid_of({"a": [1, 2], "b": Range(0.0, 1.0, points=(0.5,))}))
        [{'a': 1, 'b': 0.5}, {'a': 2, 'b': 0.5}]
    """
    listed = {name: _grid_values(values) for name, values in space.items()}
    total = math.prod(map(len, listed.values())) if listed else 0
    order = range(total) if seed is None else np.random.default_rng(seed).permutation(total)
    for number in map(int, order):
        setting = {}
        for name, values in listed.items():  # the first parameter varies fastest
            number, place = divmod(number, len(values))
            setting[name] = values[place]
        yield setting


def _grid_values(values: Values) -> list[Any]:
    return list(values.points) if isinstance(values, Range) else values


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
