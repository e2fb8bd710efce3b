"""NeuMF's weights before training, and when its parts become one."""

from __future__ import annotations

import numpy as np

from transcf.io.tensors import Arrays
from transcf.models.neumf.settings import NeuMFSettings

#: What GMF has to say when GMF and MLP are joined; the rest is MLP's.
MIX = 0.5


def initial_weights(settings: NeuMFSettings, rng: np.random.Generator) -> Arrays:
    """Draw weights uniformly, such that answers vary as much as inputs; biases are zero."""
    weights = {}
    for name, shape in settings.shapes().items():
        inputs = shape[0] * (2 if name in ("user_weight", "item_weight") else 1)
        edge = 0.0 if "bias" in name else np.sqrt(3 / inputs)
        weights[name] = rng.uniform(-edge, edge, shape).astype(np.float32)
    return weights


def mixed(weights: Arrays) -> Arrays:
    """Return the weights of one model whose logits are the mixed logits of GMF and of MLP."""
    shares = {"gmf_head": MIX, "gmf_bias": MIX, "mlp_head": 1 - MIX, "mlp_bias": 1 - MIX}
    return {name: value * np.float32(shares.get(name, 1)) for name, value in weights.items()}


def served(settings: NeuMFSettings, tensors: Arrays) -> Arrays:
    """Return what scores of a run's tensors, as copies; parts that are still apart get mixed."""
    weights = {name: tensors[name].copy() for name in settings.shapes()}
    return {
        "user_vectors": tensors["users.rows"][:, : settings.width].copy(),
        "item_vectors": tensors["items.rows"][:, : settings.width].copy(),
        **(weights if tensors["joined"][0] else mixed(weights)),
    }
