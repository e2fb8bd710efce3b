"""Hyper-parameters of what TransCF learns about neighbourhoods and translations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from transcf.learning import setting, settings
from transcf.learning.neural.library import Device
from transcf.learning.settings import rules_of


@settings()
class PartSettings:
    """Hyper-parameters of attention and of the learned map."""

    neighbors: Literal["mean", "attention"] = setting(
        "mean",
        'What q and n are: "mean" averages the neighbours; "attention" weighs those of the user by '
        "how they go with the item, those of the item by how they go with the user.",
    )
    mapping: Literal["product", "network"] = setting(
        "product",
        'What makes the translation of q and n: their product, or "network", which adds a learned '
        "map of both to it.",
    )
    hidden: int = setting(8, "Width of the hidden layer of that map.", low=1, high=4096)
    neighbors_at_most: int = setting(
        30,
        "Neighbours that a step looks at, drawn anew for each batch where there are more "
        "(attention, network); scores look at all.",
        low=1,
    )
    device: Device = setting(
        "auto",
        'Where to train with torch (attention, network): "auto" takes CUDA where there is some. A '
        "CPU trains on one thread, so that the same seed gives the same bits.",
    )

    def weight_shapes(self, dim: int) -> dict[str, tuple[int, ...]]:
        """Return the shapes of all weights that are neither a user's nor an item's."""
        shapes: dict[str, tuple[int, ...]] = {}
        if self.neighbors == "attention":
            shapes |= {"item_attention": (dim,), "user_attention": (dim,), "temperatures": (2,)}
        if self.mapping == "network":
            wide = self.hidden
            shapes |= {"map_q": (dim, wide), "map_n": (dim, wide), "map_bias": (wide,)}
            shapes["map_out"] = (wide, dim)
        return shapes


#: Names in tables, after that of the form.
PART_TITLES = {("neighbors", "attention"): "attention", ("mapping", "network"): "map"}
#: Defaults where they are others.
NEURAL_DEFAULTS: dict[str, Any] = {"epochs": 10, "learning_rate": 0.01}
#: What a model with such parts does not look at.
NEURAL_HAS_NO = ("refresh", "solver")


def parts_of(params: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the titles of the learned parts that parameters ask for.

    Example:
        >>> parts_of({"neighbors": "attention", "mapping": "product"})
        ('attention',)
    """
    return tuple(title for (name, value), title in PART_TITLES.items() if params.get(name) == value)


def unused_parts(parts: tuple[str, ...]) -> tuple[str, ...]:
    """Return the settings of `PartSettings` that a model with such parts does not look at."""
    details = [name for name in rules_of(PartSettings) if name not in ("neighbors", "mapping")]
    if not parts:
        return tuple(details)
    return () if "map" in parts else ("hidden",)
