"""NeuMF without torch: its sizes, its first weights, and its scores."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from transcf.training.trainable import Tensors

Form: TypeAlias = Literal["neumf", "gmf", "mlp"]
Array: TypeAlias = npt.NDArray[Any]

#: What GMF has to say when GMF and MLP are joined; the rest is MLP's.
MIX = 0.5


@dataclass(frozen=True)
class Hyper:
    """Settings of a run; `NeuMF` explains them."""

    form: Form
    dim: int
    layers: int
    pretrain: int
    learning_rate: float
    regularization: float
    negatives: int
    batch_size: int
    init_scale: float
    seed: int

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


def initial_weights(hyper: Hyper, rng: np.random.Generator) -> dict[str, Array]:
    """Draw weights uniformly, such that answers vary as much as inputs; biases are zero."""
    weights = {}
    for name, shape in hyper.shapes().items():
        inputs = shape[0] * (2 if name in ("user_weight", "item_weight") else 1)
        edge = 0.0 if "bias" in name else np.sqrt(3 / inputs)
        weights[name] = rng.uniform(-edge, edge, shape).astype(np.float32)
    return weights


def mixed(weights: dict[str, Array]) -> dict[str, Array]:
    """Return the weights of one model whose logits are the mixed logits of GMF and of MLP."""
    shares = {"gmf_head": MIX, "gmf_bias": MIX, "mlp_head": 1 - MIX, "mlp_bias": 1 - MIX}
    return {name: value * np.float32(shares.get(name, 1)) for name, value in weights.items()}


def served(hyper: Hyper, tensors: Tensors) -> Tensors:
    """Return what a fitted model needs of a run's tensors; parts that are apart get mixed."""
    weights = {name: np.array(tensors[name]) for name in hyper.shapes()}
    return {
        "user_vectors": np.array(tensors["users.rows"][:, : hyper.width]),
        "item_vectors": np.array(tensors["items.rows"][:, : hyper.width]),
        **(weights if tensors["joined"][0] else mixed(weights)),
    }


def first_layer_of_users(weights: dict[str, Array], users: Array) -> Array:
    """Return what users, (n, d), add to the sums of the first layer, the bias included."""
    sums: Array = users @ weights["user_weight"] + weights["bias_1"]
    return sums


def first_layer_of_items(weights: dict[str, Array], items: Array) -> Array:
    """Return what items, (n, d), add to the sums of the first layer."""
    sums: Array = items @ weights["item_weight"]
    return sums


def upper_layers(weights: dict[str, Array], sums: Array) -> Array:
    """Turn sums of the first layer, (n, width), which are overwritten, into logits, (n,)."""
    x, layer = np.maximum(sums, 0, out=sums), 2
    while f"weight_{layer}" in weights:
        x = x @ weights[f"weight_{layer}"]
        x += weights[f"bias_{layer}"]
        np.maximum(x, 0, out=x)
        layer += 1
    logits: Array = x @ weights["mlp_head"] + weights["mlp_bias"]
    return logits
