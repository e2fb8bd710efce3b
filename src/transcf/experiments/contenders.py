"""Contenders: models of a table with the settings that they may choose from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self, TypeAlias

from transcf.errors import ParameterError, shown
from transcf.models.recommender import Recommender
from transcf.models.registry import canonical_name, create, model_class, name_and_params

#: A model by its name, by its name and parameters, or as an object whose settings are taken.
ModelSpec: TypeAlias = "str | tuple[str, Mapping[str, Any]] | Recommender[Any]"


@dataclass(frozen=True)
class Contender:
    """A model with settings to choose from.

    Attributes:
        name: Stands for it in tables.
        model: Its name in the registry.
        params: Parameters that are set.
        choices: Further parameters to choose from on validation data.
    """

    name: str
    model: str
    params: Mapping[str, Any] = field(default_factory=dict)
    choices: Sequence[Mapping[str, Any]] = ({},)

    @classmethod
    def of(cls, spec: ModelSpec, name: str | None = None) -> Self:
        """Make a contender of a name, of a name with parameters, or of a model object.

        Of an object it takes the class and the parameters that differ from the defaults: these
        count as set by hand, the others may be searched. The object itself is left alone.

        Args:
            spec: Which model.
            name: Stands for it in tables; its name in the registry unless given.

        Example:
            >>> Contender.of(create("EASE", regularization=5.0)).params
            {'regularization': 5.0}
        """
        model, params = _name_and_params(spec)
        return cls(name or model, model, params)

    @property
    def takes_seed(self) -> bool:
        """Whether the seed of a run changes anything."""
        has_seed = "random_state" in model_class(self.model).rules()
        return has_seed and "random_state" not in self.params

    def make(self, seed: int, choice: Mapping[str, Any] | None = None) -> Recommender[Any]:
        """Make the model; a seed that is set by name wins over the general one."""
        has_seed = "random_state" in model_class(self.model).rules()
        general = {"random_state": seed} if has_seed else {}
        return create(self.model, **{**general, **self.params, **(choice or {})})

    def check(self) -> None:
        """Raise a `ParameterError` for a model or a setting that there cannot be."""
        for choice in self.choices:
            self.make(0, choice).check_params()


def _name_and_params(spec: ModelSpec) -> tuple[str, dict[str, Any]]:
    match spec:
        case str():
            return canonical_name(spec), {}
        case (str() as name, Mapping() as params):
            return canonical_name(name), dict(params)
        case Recommender():
            return name_and_params(spec)
    raise ParameterError(
        f"{shown(spec)} is no model: give a name, a pair of a name and its parameters, or a model."
    )
