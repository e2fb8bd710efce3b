"""Hyper-parameters of NeuMF, and the sizes that follow from them."""

from __future__ import annotations

from typing import Literal

from transcf.models.families import NeuralSettings
from transcf.models.fit_checks import MemoryEstimate, vectors
from transcf.models.params import setting, settings


@settings(epochs=10, learning_rate=0.002, init_scale=0.01)
class NeuMFSettings(NeuralSettings):
    """Hyper-parameters of NeuMF."""

    form: Literal["neumf", "gmf", "mlp"] = setting("neumf", "The whole, or one of its parts.")
    dim: int = setting(16, "Length of p, q and of the last hidden layer.", low=1, high=1024)
    layers: int = setting(
        3,
        "Hidden layers; p' and q' have the length `dim * 2^(layers - 1)`, and so has the first "
        "layer.",
        low=1,
        high=8,
    )
    pretrain: int = setting(
        0, 'Epochs in which GMF and MLP learn apart, before the others ("neumf" only).', low=0
    )
    regularization: float = setting(0.0, "L2 weight of the vectors of a pair.", low=0)
    negatives: int = setting(
        4, "Items drawn anew in every epoch for each interaction.", low=1, high=1000
    )
    batch_size: int = setting(2048, "Pairs in a batch, negatives included.", low=1)

    @property
    def gmf_width(self) -> int:
        """Length of the vectors of GMF."""
        return 0 if self.form == "mlp" else self.dim

    @property
    def mlp_width(self) -> int:
        """Length of the vectors of MLP; the first hidden layer is as wide."""
        return 0 if self.form == "gmf" else self.dim * 2 ** (self.layers - 1)

    @property
    def width(self) -> int:
        """Length of both together, as they are stored."""
        return self.gmf_width + self.mlp_width

    def room(self, users: int, items: int) -> MemoryEstimate:
        """Return what the vectors take at least."""
        what = f"dim={self.dim} and layers={self.layers}"
        return MemoryEstimate(vectors(users + items, self.width), what, "lower dim or layers")

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shapes of all weights that are neither a user's nor an item's."""
        shapes: dict[str, tuple[int, ...]] = {}
        if self.form != "mlp":
            shapes |= {"gmf_head": (self.dim,), "gmf_bias": (1,)}
        if self.form != "gmf":
            wide = self.mlp_width
            shapes |= {"user_weight": (wide, wide), "item_weight": (wide, wide), "bias_1": (wide,)}
            for layer in range(2, self.layers + 1):
                wide //= 2
                shapes |= {f"weight_{layer}": (2 * wide, wide), f"bias_{layer}": (wide,)}
            shapes |= {"mlp_head": (wide,), "mlp_bias": (1,)}
        return shapes
