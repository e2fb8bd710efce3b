"""Hyper-parameters of LightGCN."""

from __future__ import annotations

from transcf.models.families import NeuralSettings
from transcf.models.params import setting, settings


@settings(epochs=40, learning_rate=0.005)
class LightGCNSettings(NeuralSettings):
    """Hyper-parameters of LightGCN."""

    layers: int = setting(2, "Steps over the graph.", low=1, high=20)
    regularization: float = setting(
        1e-3, "L2 weight of the three vectors of a triple, before smoothing.", low=0, high=1e6
    )
    batch_size: int = setting(2048, "Triples in a batch.", low=1)
