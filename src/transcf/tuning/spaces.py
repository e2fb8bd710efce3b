"""Search spaces: for each model the values of its parameters that are worth trying."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Collection
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np

from transcf.errors import ParameterError, is_word, shown
from transcf.models.registry import canonical_name, create, model_class

#: How many settings of each model are tried, by the name of the budget; the first is the default.
BUDGETS = {"none": 1, "small": 3, "medium": 10, "large": 40}


#: What models with such parameters may try besides, where events have times.
_WITH_TIMES = "with times"
#: Half-lives and their unit, which belong together.
_UNITS = {"half_life", "trend_half_life", "age_in"}


@cache
def _all() -> dict[str, dict[str, list[Any]]]:
    text = files("transcf.tuning").joinpath("spaces.toml").read_text(encoding="utf-8")
    return {
        kind: {
            name: [None if value == "none" else value for value in values]
            for name, values in space.items()
        }
        for kind, space in tomllib.loads(text).items()
    }


def space_of(model: str, timed: bool = False) -> dict[str, list[Any]]:
    """Return the values to choose from, by parameter; nothing for a model without choices.

    Args:
        model: Name of the model, as in the registry.
        timed: Whether events have times: then weights and trend are among the choices.

    Example:
        >>> sorted(space_of("itemknn"))
        ['n_neighbors', 'shrinkage']
    """
    kind = model_class(model)
    space = _all().get(canonical_name(model), _all().get(kind.__name__, {}))
    if timed and "trend" in kind.rules():
        timely = _all()[_WITH_TIMES].items()
        space = space | {name: values for name, values in timely if name in kind.rules()}
    return space


def check_budget(budget: str) -> None:
    """Raise a `ParameterError` for a budget that there is not."""
    if not is_word(budget, BUDGETS):
        raise ParameterError(
            f"There is no budget {shown(budget)}; there are: {', '.join(map(repr, BUDGETS))}."
        )


def settings_to_try(
    model: str, budget: str, fixed: Collection[str] = (), seed: int = 0, timed: bool = False
) -> list[dict[str, Any]]:
    """Return the settings that a budget allows: the defaults, then random ones without repeats.

    Args:
        model: Name of the model, as in the registry.
        budget: One of `BUDGETS`.
        fixed: Parameters to leave alone.
        seed: Of the draw.
        timed: Whether events have times.

    Example:
        >>> settings_to_try("ease", "none")
        [{}]
        >>> len(settings_to_try("ease", "small"))
        3
    """
    check_budget(budget)
    if _UNITS & {*fixed}:
        fixed = {*fixed, *_UNITS}  # a unit or a number by hand: the other would not fit
    space = {name: values for name, values in space_of(model, timed).items() if name not in fixed}
    total = math.prod(map(len, space.values()))
    defaults = create(model).get_params()
    settings: list[dict[str, Any]] = [{}]
    for number in np.random.default_rng(seed).permutation(total).tolist() if space else ():
        if len(settings) == BUDGETS[budget]:
            break
        setting = _combination(space, number)
        if any(defaults[name] != value for name, value in setting.items()):
            settings.append(setting)
    return settings


def _combination(space: dict[str, list[Any]], number: int) -> dict[str, Any]:
    """Return one combination of values; each has a number."""
    setting = {}
    for name, values in space.items():
        number, place = divmod(number, len(values))
        setting[name] = values[place]
    return setting
