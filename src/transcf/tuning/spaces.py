"""Search spaces: the values of each model's parameters that are worth trying."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, TypeAlias

import numpy as np

from transcf.errors import ParameterError, is_word, shown
from transcf.models.registry import canonical_name, model_class

#: Names of the spaces: the recommended values, and the grid of TransCF's paper.
SPACES = ("default", "paper")

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


@cache
def _all_spaces() -> dict[str, Space]:
    text = files("transcf.tuning").joinpath("spaces.toml").read_text(encoding="utf-8")
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
    if space == "paper":
        return _paper_space(model)
    found = spaces.get(canonical_name(model), spaces.get(kind.__name__, {}))
    if timed and "trend" in kind._rules():
        by_age = spaces["with times"].items()
        found = found | {name: values for name, values in by_age if name in kind._rules()}
    return found


def _paper_space(model: str) -> Space:
    """Return the paper's grid of the parameters that a model has."""
    rules = model_class(model)._rules()
    return {
        name: [value for value in _grid_values(values) if rules[name].allows(value)]
        for name, values in _all_spaces()["paper"].items()
        if name in rules
    }


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
    return (_combination(listed, int(number)) for number in order)


def _grid_values(values: Values) -> list[Any]:
    return list(values.points) if isinstance(values, Range) else values


def _combination(space: Mapping[str, list[Any]], number: int) -> dict[str, Any]:
    """Return the combination with a given number, the first parameter varying fastest."""
    setting = {}
    for name, values in space.items():
        number, place = divmod(number, len(values))
        setting[name] = values[place]
    return setting
