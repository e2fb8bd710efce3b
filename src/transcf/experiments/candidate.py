"""Candidates: models of a table with the settings that they may choose from."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Self, TypeAlias

from transcf.errors import ParameterError, shown
from transcf.models.base import Recommender
from transcf.models.params import flat_params
from transcf.models.registry import canonical_name, create, current, model_class, name_and_params
from transcf.tuning import Budget, Search, settings_to_try

#: A model by its name, by its name and parameters, or as an object whose settings are taken.
ModelSpec: TypeAlias = "str | tuple[str, Mapping[str, Any]] | Recommender[Any]"


@dataclass(frozen=True)
class Candidate:
    """A model with settings to choose from.

    Attributes:
        name: Stands for it in tables.
        model: Its name in the registry.
        params: Parameters that are set.
        choices: Further parameters to choose from on validation data.
        search: Begins a search that proposes them one by one instead, each in the light of those
            before it.
    """

    name: str
    model: str
    params: Mapping[str, Any] = field(default_factory=dict)
    choices: Sequence[Mapping[str, Any]] = ({},)
    search: Callable[[], Search] | None = None

    @classmethod
    def of(cls, spec: ModelSpec, name: str | None = None) -> Self:
        """Make a candidate of a name, of a name with parameters, or of a model object.

        Of an object it takes the class and the parameters that differ from the defaults: these
        count as set by hand, the others may be searched. The object itself is left alone.

        Args:
            spec: Which model.
            name: Stands for it in tables; its name in the registry unless given.

        Example:
            >>> Candidate.of(create("EASE", regularization=5.0)).params
            {'regularization': 5.0}
        """
        model, params = _name_and_params(spec)
        return cls(name or model, model, params)

    @property
    def takes_seed(self) -> bool:
        """Whether the seed of a run changes anything."""
        has_seed = "random_state" in model_class(self.model)._rules()
        return has_seed and "random_state" not in self.params

    def make(self, seed: int, choice: Mapping[str, Any] | None = None) -> Recommender[Any]:
        """Make the model; a seed that is set by name wins over the general one."""
        has_seed = "random_state" in model_class(self.model)._rules()
        general = {"random_state": seed} if has_seed else {}
        return create(self.model, **{**general, **flat_params(self.params), **(choice or {})})

    def within(
        self, budget: Any, timed: bool = False, start: Mapping[str, Any] | None = None
    ) -> Self:
        """Return it with what a budget lets it try; what is set stays.

        Args:
            budget: What `Budget.of` takes.
            timed: Whether events have times.
            start: Settings that stand in the place of the defaults, and may be searched.

        Example:
            >>> len(Candidate.of("ease").within("small").choices)
            3
        """
        budget, begun = Budget.of(budget), start or {}
        params = {**begun, **self.params}
        if budget.sampler == "random":
            tried = settings_to_try(self.model, budget, self.params, timed=timed, start=params)
            return replace(self, params=params, choices=tried, search=None)
        search = partial(
            Search, self.model, budget, fixed=dict(self.params), start=begun, timed=timed
        )
        return replace(self, params=params, choices=({},), search=search)

    def check(self) -> None:
        """Raise a `ParameterError` for a model or a setting that there cannot be."""
        for choice in self.choices:
            self.make(0, choice)._check_params()


def _name_and_params(spec: ModelSpec) -> tuple[str, dict[str, Any]]:
    match spec:
        case str():
            return canonical_name(spec), {}
        case (str() as name, Mapping() as params):
            return current(name, dict(params))
        case Recommender():
            return name_and_params(spec)
    raise ParameterError(
        f"{shown(spec)} is no model: give a name, a pair of a name and its parameters, or a model."
    )
