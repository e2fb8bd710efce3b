"""Named settings, shipped as data in `presets.toml`; some carry settings for single datasets.

Presets belong to a class, so that the ablations of a model share them.
"""

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


def available_presets(class_name: str) -> tuple[str, ...]:
    """Return the names of the presets that a model has.

    Example:
        >>> available_presets("TransCF")
        ('paper',)
    """
    return tuple(_all().get(class_name, {}))


def preset(class_name: str, name: str, dataset: str | None = None) -> dict[str, Any]:
    """Return the hyper-parameters of a preset.

    Args:
        class_name: Name of the model's class.
        name: Name of the preset.
        dataset: Catalog name of the data; its own settings, where the preset has some, go
            before the general ones.

    Example:
        >>> preset("TransCF", "paper", "delicious")["negatives"]
        1
    """
    if name not in available_presets(class_name):
        known = ", ".join(available_presets(class_name)) or "none"
        raise ParameterError(f"{class_name} has no preset {name!r}; it has: {known}.")
    settings = dict(_all()[class_name][name])
    for_datasets = settings.pop("datasets", {})
    own: dict[str, Any] = for_datasets.get(dataset, {})
    return settings | own
