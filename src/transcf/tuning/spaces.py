"""Search spaces: for each model the values of its parameters that are worth trying."""

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

#: Spaces by name: what is worth trying today, and the grid of TransCF's paper.
SPACES = ("default", "paper")

#: What models with such parameters may try besides, where events have times.
_WITH_TIMES = "with times"
#: What the paper tries, by parameter, for every model that has it.
_PAPER = "paper"
#: Half-lives and their unit, which belong together.
_UNITS = {"half_life", "trend_half_life", "age_in"}
#: Values that a grid takes from a range that names none.
_POINTS = 5
#: Draws from ranges that were all there before, after which nothing new is expected.
_PATIENCE = 1000


@dataclass(frozen=True)
class Range:
    """All numbers between two; whole ones if both ends are.

    Attributes:
        low: Smallest.
        high: Largest.
        log: Whether ratios count rather than differences.
        points: Values that stand for it in a grid and in the draws of a budget; none leaves
            grids five of equal distance, and draws the whole range.

    Example:
        >>> Range(0.01, 1.0, log=True).values()
        [0.01, 0.0316, 0.1, 0.316, 1.0]
    """

    low: float
    high: float
    log: bool = False
    points: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        """Refuse ends in the wrong order, and ratios of what has none."""
        if not self.low < self.high or (self.log and self.low <= 0):
            raise ParameterError(f"{self} is no range: low has to be below high, above 0 with log.")

    @property
    def whole(self) -> bool:
        """Whether all numbers of it are whole ones."""
        return isinstance(self.low, int) and isinstance(self.high, int)

    def values(self) -> list[float]:
        """Values that stand for it in a grid."""
        if self.points:
            return list(self.points)
        return list(dict.fromkeys(self.at(part) for part in np.linspace(0, 1, _POINTS).tolist()))

    def at(self, part: float) -> float:
        """Return the number at a part between 0 (low) and 1 (high)."""
        if self.log:
            return self.brief(self.low * (self.high / self.low) ** part)
        return self.brief(self.low + (self.high - self.low) * part)

    def brief(self, value: float) -> float:
        """Round to what settings are written with: three digits, or whole numbers."""
        brief = round(value) if self.whole else float(f"{value:.3g}")
        return min(max(brief, self.low), self.high)


#: What a parameter may be.
Values: TypeAlias = list[Any] | Range
#: What may be tried, by parameter.
Space: TypeAlias = dict[str, Values]


@cache
def _all() -> dict[str, Space]:
    text = files("transcf.tuning").joinpath("spaces.toml").read_text(encoding="utf-8")
    return {
        kind: {name: _values(values) for name, values in space.items()}
        for kind, space in tomllib.loads(text).items()
    }


def _values(listed: list[Any] | dict[str, Any]) -> Values:
    if isinstance(listed, dict):
        return Range(**{**listed, "points": tuple(listed.get("points", ()))})
    return [None if value == "none" else value for value in listed]


def space_of(model: str, timed: bool = False, space: str = "default") -> Space:
    """Return the values to choose from, by parameter; nothing for a model without choices.

    Args:
        model: Name of the model, as in the registry.
        timed: Whether events have times: then weights and trend are among the choices.
        space: One of `SPACES`; the paper's has no times.

    Example:
        >>> sorted(space_of("itemknn"))
        ['n_neighbors', 'shrinkage']
        >>> space_of("bpr", space="paper")["regularization"]
        [0.0, 0.001, 0.01, 0.1]
    """
    if not is_word(space, SPACES):
        raise ParameterError(f"There is no space {shown(space)}; there are: {', '.join(SPACES)}.")
    kind = model_class(model)
    if space == _PAPER:
        return _of_paper(model)
    found = _all().get(canonical_name(model), _all().get(kind.__name__, {}))
    if timed and "trend" in kind.rules():
        timely = _all()[_WITH_TIMES].items()
        found = found | {name: values for name, values in timely if name in kind.rules()}
    return found


def _of_paper(model: str) -> Space:
    """What the paper tries of the parameters that a model has."""
    rules = model_class(model).rules()
    return {
        name: [value for value in _listed(values) if rules[name].allows(value)]
        for name, values in _all()[_PAPER].items()
        if name in rules
    }


def free_space(
    model: str, fixed: Collection[str] = (), timed: bool = False, space: str = "default"
) -> Space:
    """Return what is left to choose from where some parameters are set by hand.

    Example:
        >>> sorted(free_space("itemknn", fixed=["shrinkage"]))
        ['n_neighbors']
    """
    if _UNITS & {*fixed}:
        fixed = {*fixed, *_UNITS}  # a unit or a number by hand: the other would not fit
    found = space_of(model, timed, space)
    return {name: values for name, values in found.items() if name not in fixed}


def grid_of(space: Space, seed: int | Sequence[int] | None = None) -> Iterator[dict[str, Any]]:
    """Yield every combination of values, in random order if there is a seed.

    Ranges stand with their points.

    Example:
        >>> list(grid_of({"a": [1, 2], "b": Range(0.0, 1.0, points=(0.5,))}))
        [{'a': 1, 'b': 0.5}, {'a': 2, 'b': 0.5}]
    """
    listed = {name: _listed(values) for name, values in space.items()}
    total = math.prod(map(len, listed.values())) if listed else 0
    order = range(total) if seed is None else np.random.default_rng(seed).permutation(total)
    return (_combination(listed, int(number)) for number in order)


def draws(space: Space, seed: int | Sequence[int]) -> Iterator[dict[str, Any]]:
    """Yield random settings without repeats, until there are no others.

    Where all parameters have listed values (or points), these are the combinations of the grid in
    random order; else each parameter is drawn by itself.
    """
    if all(isinstance(values, list) or values.points for values in space.values()):
        yield from grid_of(space, seed)
        return
    rng = np.random.default_rng(seed)
    drawn, repeats = set[tuple[Any, ...]](), 0
    while repeats < _PATIENCE:
        setting = {name: _draw(values, rng) for name, values in space.items()}
        if (key := tuple(setting.values())) in drawn:
            repeats += 1
            continue
        drawn.add(key)
        repeats = 0
        yield setting


def is_same(setting: Mapping[str, Any], start: Mapping[str, Any]) -> bool:
    """Whether settings say nothing but what is so already."""
    return all(start[name] == value for name, value in setting.items())


def _listed(values: Values) -> list[Any]:
    return values.values() if isinstance(values, Range) else values


def _draw(values: Values, rng: np.random.Generator) -> Any:
    if isinstance(values, Range):
        return values.at(float(rng.random()))
    return values[int(rng.integers(len(values)))]


def _combination(space: Mapping[str, list[Any]], number: int) -> dict[str, Any]:
    """Return one combination of values; each has a number."""
    setting = {}
    for name, values in space.items():
        number, place = divmod(number, len(values))
        setting[name] = values[place]
    return setting
