"""Blend: the text that names its parts, the search for weights, what it learns, and the model."""

from transcf.models.blend.model import Blend, BlendSettings

__all__ = ["Blend", "BlendSettings"]
