"""Search spaces (`spaces.toml`), budgets, `Search`, which proposes settings, and their files."""

from __future__ import annotations

import json
import math
import tomllib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cache
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias

import numpy as np

from transcf.data.atomic import atomic_write_text
from transcf.data.files import path_of
from transcf.errors import (
    MissingExtraError,
    ParameterError,
    check_integer,
    check_word,
    is_word,
    shown,
)
from transcf.models.params import Number, values_of
from transcf.models.registry import canonical_name, create, current, model_class

if TYPE_CHECKING:
    from transcf.experiments.results import RunResult

#: Names of the spaces: the recommended values, and the grid of TransCF's paper.
SPACES = ("default", "paper")
#: Settings to try by name of the budget; the first is the default.
BUDGETS = {"none": 1, "small": 3, "medium": 10, "large": 40}
#: Samplers; TPE learns from earlier trials (extra `tune`).
SAMPLERS = ("random", "tpe", "grid")
#: Outcome of a trial. A pruned trial was stopped early because its metric was below the median.
State: TypeAlias = Literal["complete", "pruned", "failed"]

#: Half-lives and their unit depend on each other: fixing one fixes all.
_UNITS = {"half_life", "trend_half_life", "age_in"}
#: A random setting replaces TPE's proposal after this many repeats of earlier settings.
_ATTEMPTS = 20


# -- spaces and budgets ------------------------------------------------------------------------


@dataclass(frozen=True)
class Range:
    """A closed interval for TPE, and its values (`points`) in grids and random search.

    It holds integers only if both ends are integers; `log` samples on a logarithmic scale.
    """

    low: float
    high: float
    points: tuple[float, ...]
    log: bool = False

    def __post_init__(self) -> None:
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


#: Values by parameter.
Space: TypeAlias = dict[str, list[Any] | Range]


@dataclass(frozen=True)
class Budget:
    """How many settings to try, and which.

    Example:
        >>> Budget.of("medium").trials, Budget.of({"trials": 20, "sampler": "tpe"}).sampler
        (10, 'tpe')
    """

    trials: int = 1  # number of settings, the defaults included
    sampler: str = "random"  # one of `SAMPLERS`
    #: One of `SPACES`, or values by parameter in the form of `spaces.toml`.
    space: str | Mapping[str, Any] = "default"
    #: So many of the best settings are run again with two more seeds, and the best mean is chosen;
    #: 0 chooses by one seed.
    finalists: int = 0

    def __post_init__(self) -> None:
        check_integer("trials", self.trials, 1)
        check_integer("finalists", self.finalists, 0)
        check_word("sampler", self.sampler, SAMPLERS)
        if not isinstance(self.space, Mapping):
            check_word("space", self.space, SPACES)

    @classmethod
    def of(cls, asked: Any) -> Self:
        """Parse a budget: one of `BUDGETS`, a number, either as text, a table, or None for one."""
        if isinstance(asked, cls):
            return asked
        if asked is None:
            return cls()
        if isinstance(asked, Mapping):
            if not {"trials"} <= asked.keys() <= {f.name for f in fields(cls)}:
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
    return {kind: _parse(space) for kind, space in tomllib.loads(text).items()}


def _parse(space: Mapping[str, Any]) -> Space:
    found: Space = {}
    for name, values in space.items():
        try:
            if isinstance(values, Mapping):
                found[name] = Range(**{**values, "points": tuple(values["points"])})
            else:
                found[name] = [None if value == "none" else value for value in values]
        except (KeyError, TypeError) as error:
            raise ParameterError(
                f"The search space has {name} = {shown(values)}: give a list of values, or a table "
                "with low, high, points and, if you like, log."
            ) from error
    return found


def space_of(
    model: str,
    timed: bool = False,
    space: str | Mapping[str, Any] = "default",
    fixed: Collection[str] = (),
) -> Space:
    """Return the search space of a model; empty for a model without parameters to tune.

    `timed` adds the weights by age and the trend, for data with timestamps; spaces given by values
    and the paper's ignore it. `fixed` parameters are not searched.

    Example:
        >>> sorted(space_of("itemknn"))
        ['n_neighbors', 'shrinkage']
    """
    kind, spaces = model_class(model), _all_spaces()
    rules, left_out = kind._rules(), {*fixed}
    if _UNITS & left_out:
        left_out |= _UNITS
    found: Space
    if isinstance(space, Mapping):
        found = _parse(space)
        if unknown := sorted(found.keys() - rules.keys()):
            raise ParameterError(
                f"The search space has {unknown[0]!r}, which is no parameter of {kind.__name__}."
            )
    elif space == "paper":
        found = {
            name: [value for value in _grid_values(values) if rules[name].allows(value)]
            for name, values in spaces["paper"].items()
            if name in rules
        }
    else:
        found = spaces.get(canonical_name(model), spaces.get(kind.__name__, {}))
        if timed and "trend" in rules:
            by_age = spaces["with times"].items()
            found = found | {name: values for name, values in by_age if name in rules}
    return {name: values for name, values in found.items() if name not in left_out}


def grid_of(space: Space, seed: int | Sequence[int] | None = None) -> Iterator[dict[str, Any]]:
    """Yield every combination of values, in random order if there is a seed."""
    listed = {name: _grid_values(values) for name, values in space.items()}
    total = math.prod(map(len, listed.values())) if listed else 0
    order = range(total) if seed is None else np.random.default_rng(seed).permutation(total)
    for number in map(int, order):
        setting = {}
        for name, values in listed.items():  # the first parameter varies fastest
            number, place = divmod(number, len(values))
            setting[name] = values[place]
        yield setting


def _grid_values(values: list[Any] | Range) -> list[Any]:
    return list(values.points) if isinstance(values, Range) else values


# -- trials ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Trial:
    """One setting and its result."""

    setting: Mapping[str, Any]  # proposed parameters; empty for the defaults
    state: State  # outcome
    #: Metric on validation data: None if failed, the best epoch so far if pruned.
    figure: float | None = None
    seconds: float = 0.0  # wall-clock time of fit and evaluation
    epoch: int | None = None  # best epoch, for models with epochs
    curve: Mapping[int, float] = field(default_factory=dict)  # metric by validated epoch
    reason: str = ""  # why the trial failed

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

    `fixed` parameters are not searched; settings of `start` replace the defaults; `timed` as for
    `space_of`. TPE needs the extra `tune`.
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
        self.space = space_of(model, timed, self.budget.space, fixed or ())
        params = values_of(create(model, **{**(start or {}), **(fixed or {})}).settings)
        #: Values of the searched parameters in the trial with the defaults.
        self.usual = {name: params[name] for name in self.space}
        self._seed = seed
        if self.budget.sampler == "tpe":
            check_optuna("The sampler tpe")

    def settings(self) -> Iterator[dict[str, Any]]:
        """Yield the settings that the grid or random search tries, in order."""
        yield {}
        seed = None if self.budget.sampler == "grid" else (self._seed, 0)
        yield from (one for one in grid_of(self.space, seed) if self.key(one) != self.key({}))

    def ask(
        self, history: Sequence[Trial], running: Collection[Mapping[str, Any]] = ()
    ) -> dict[str, Any] | None:
        """Return a new setting other than those of `history` and those that are `running`.

        Returns None if the budget is spent or the space is exhausted.
        """
        if len(history) >= self.budget.trials:
            return None
        known = {self.key(one) for one in (*(trial.setting for trial in history), *running)}
        if self.budget.sampler == "tpe" and self.space and self.key({}) in known:
            from transcf.experiments.trials import propose

            for attempt in range(_ATTEMPTS):
                seed = [self._seed, len(history) + len(running), attempt, 0]
                drawn = int(np.random.SeedSequence(seed).generate_state(1)[0])
                setting = propose(self, history, running, drawn)
                if self.key(setting) not in known:
                    return setting
        return next((one for one in self.settings() if self.key(one) not in known), None)

    def key(self, setting: Mapping[str, Any]) -> str:
        """Identify a setting by the values of all searched parameters."""
        return json.dumps({**self.usual, **setting}, sort_keys=True)


def check_optuna(what: str) -> None:
    """Raise a `MissingExtraError` that says what needs Optuna if it is not installed."""
    if find_spec("optuna") is None:
        raise MissingExtraError(what, "tune")


# -- settings in files -------------------------------------------------------------------------


@dataclass(frozen=True)
class Config:
    """A model with its settings."""

    model: str  # name in the registry
    params: Mapping[str, Any] = field(default_factory=dict)  # parameters that are set
    #: How they were found; for information only.
    found: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def read(cls, path: str | Path, model: str | None = None) -> Self:
        """Read a TOML file; `model` is the expected model, if any."""
        file = path_of(path)
        if not file.is_file():
            raise ParameterError(f"There is no file {path}: `transcf tune --out {path}` writes it.")
        try:
            content = tomllib.loads(file.read_text(encoding="utf-8"))
        except ValueError as problem:
            raise ParameterError(f"{path} is not a TOML file: {problem}.") from problem
        about = content.get("model")
        if not isinstance(about, dict) or not isinstance(about.get("name"), str):
            raise ParameterError(f'{path} names no model: write [model] and name = "bpr" into it.')
        if unknown := sorted(about.keys() - {"name", "params"}):
            raise ParameterError(
                f"{path} has {unknown[0]!r} under [model], which holds name and params alone."
            )
        params = about.get("params", {})
        if not isinstance(params, dict):
            raise ParameterError(f"{path} has params = {shown(params)}: write [model.params].")
        name, params = current(about["name"], params)
        if model is not None and canonical_name(model) != name:
            raise ParameterError(
                f"{path} has settings of {name}, not of {canonical_name(model)}: name one model."
            )
        rules = model_class(name)._rules()
        params = {
            key: None if value == "none" and isinstance(rules.get(key), Number) else value
            for key, value in params.items()
        }
        create(name, **params)._check_params()
        return cls(name, params, content.get("found", {}))

    def to_toml(self) -> str:
        """Return the text of the file."""
        tables = {"model": {"name": self.model}, "model.params": self.params}
        tables |= {"found": self.found} if self.found else {}
        return "\n".join(
            "\n".join([f"[{name}]", *(f"{key} = {_toml(value)}" for key, value in values.items())])
            + "\n"
            for name, values in tables.items()
        )

    def write(self, path: str | Path) -> Path:
        """Write the file atomically."""
        return atomic_write_text(path_of(path), self.to_toml())


def _toml(value: Any) -> str:
    """Format a value for TOML; except for None, as in JSON."""
    return '"none"' if value is None else json.dumps(value)
