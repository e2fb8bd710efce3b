"""NeuMF: matrix factorization and a multi-layer perceptron, alone or fused."""

from .model import NeuMF
from .settings import NeuMFSettings

__all__ = ["NeuMF", "NeuMFSettings"]
