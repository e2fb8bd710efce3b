"""Named settings, shipped as data in `presets.toml`; some carry settings for single datasets."""

from __future__ import annotations

import tomllib
from functools import cache
from importlib.resources import files
from typing import Any

from transcf.errors import ParameterError


@cache
def _all() -> dict[str, dict[str, Any]]:
    text = files("transcf.models").joinpath("presets.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


def available_presets(model: str) -> tuple[str, ...]:
    """Return the names of the presets that a model has.

    Example:
        >>> available_presets("transcf")
        ('paper',)
    """
    return tuple(_all().get(model, {}))


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
    settings = dict(_all()[model][name])
    for_datasets = settings.pop("datasets", {})
    own: dict[str, Any] = for_datasets.get(dataset, {})
    return settings | own
