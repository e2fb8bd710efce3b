"""Names of models and where their classes live; a class is imported when it is asked for."""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any

from transcf.errors import ParameterError

if TYPE_CHECKING:
    from transcf.models.base import Recommender


@dataclass(frozen=True)
class _Entry:
    """Where a class lives, and the parameters that make it the model of that name."""

    module: str
    class_name: str
    params: dict[str, Any] = field(default_factory=dict)


_MODELS = {
    "popularity": _Entry("transcf.models.popularity", "Popularity"),
    "inverse-popularity": _Entry("transcf.models.popularity", "InversePopularity"),
    "random": _Entry("transcf.models.random", "Random"),
    "itemknn": _Entry("transcf.models.itemknn", "ItemKNN"),
    "ease": _Entry("transcf.models.ease", "EASE"),
    "ials": _Entry("transcf.models.ials", "IALS"),
    "eals": _Entry("transcf.models.eals", "EALS"),
    "slim": _Entry("transcf.models.slim", "SLIM"),
    "fism": _Entry("transcf.models.fism", "FISM"),
    "bpr": _Entry("transcf.models.bpr", "BPR"),
    "aobpr": _Entry("transcf.models.aobpr", "AoBPR"),
    "cml": _Entry("transcf.models.cml", "CML"),
    "cdae": _Entry("transcf.models.cdae", "CDAE"),
    "neumf": _Entry("transcf.models.neumf", "NeuMF"),
    "lightgcn": _Entry("transcf.models.lightgcn", "LightGCN"),
    "transcf": _Entry("transcf.models.transcf", "TransCF"),
    "transcf-dot": _Entry("transcf.models.transcf", "TransCF", {"form": "dot"}),
    "transcf-alt": _Entry("transcf.models.transcf", "TransCF", {"form": "alt"}),
    "transcf-still": _Entry("transcf.models.transcf", "TransCF", {"form": "still"}),
    "transcf-emb": _Entry("transcf.models.transcf", "TransCF", {"form": "emb"}),
}


def available() -> tuple[str, ...]:
    """Return the names of all models.

    Example:
        >>> "ease" in available()
        True
    """
    return tuple(_MODELS)


def model_class(name: str) -> type[Recommender]:
    """Return the class of a model; capitals, blanks, `-` and `_` in the name do not matter.

    Example:
        >>> model_class("InversePopularity").__name__
        'InversePopularity'
    """
    return _import(_entry(name))


def create(name: str, **params: Any) -> Recommender:
    """Make a model by name.

    Args:
        name: One of `available()`.
        params: Its hyper-parameters; the others keep their defaults.

    Example:
        >>> create("ease", regularization=100.0)
        EASE(regularization=100.0, precision='float64')
    """
    entry = _entry(name)
    kind = _import(entry)
    kind().set_params(**params)  # says which names are unknown
    return kind(**{**entry.params, **params})


def registered_class(class_name: str) -> type[Recommender]:
    """Return a class by its own name, if it is registered: the only ones that files may name."""
    for entry in _MODELS.values():
        if entry.class_name == class_name:
            return _import(entry)
    raise ParameterError(f"There is no registered class {class_name!r}.")


def canonical_name(name: str) -> str:
    """Return the name that a model is registered by, however it was spelled.

    Example:
        >>> canonical_name("Inverse_Popularity")
        'inverse-popularity'
    """
    for known in _MODELS:
        if _bare(known) == _bare(name):
            return known
    raise ParameterError(f"There is no model {name!r}; there are: {', '.join(available())}.")


def _entry(name: str) -> _Entry:
    return _MODELS[canonical_name(name)]


def _import(entry: _Entry) -> type[Recommender]:
    found: type[Recommender] = getattr(import_module(entry.module), entry.class_name)
    return found


def _bare(name: str) -> str:
    return name.lower().translate(str.maketrans("", "", "-_ "))
