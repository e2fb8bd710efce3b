"""Named settings, shipped as data in `presets.toml`; some carry settings for single datasets.

Presets belong to a class, so that the ablations of a model share them.
"""

from __future__ import annotations

import tomllib
from functools import cache
from importlib.resources import files
from typing import Any

from transcf.errors import ParameterError
from transcf.models.registry import model_class


@cache
def _all() -> dict[str, dict[str, Any]]:
    text = files("transcf.models").joinpath("presets.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


def _of_class(model: str) -> dict[str, Any]:
    return _all().get(model_class(model).__name__, {})


def available_presets(model: str) -> tuple[str, ...]:
    """Return the names of the presets that a model has.

    Example:
        >>> available_presets("transcf")
        ('paper',)
    """
    return tuple(_of_class(model))


def preset(model: str, name: str, dataset: str | None = None) -> dict[str, Any]:
    """Return the hyper-parameters of a preset.

    Args:
        model: Name of the model, as in the registry.
        name: Name of the preset.
        dataset: Catalog name of the data; its own settings, where the preset has some, go
            before the general ones.

    Example:
        >>> preset("transcf", "paper", "delicious")["negatives"]
        1
    """
    if name not in available_presets(model):
        known = ", ".join(available_presets(model)) or "none"
        raise ParameterError(f"{model} has no preset {name!r}; it has: {known}.")
    settings = dict(_of_class(model)[name])
    for_datasets = settings.pop("datasets", {})
    own: dict[str, Any] = for_datasets.get(dataset, {})
    return settings | own
