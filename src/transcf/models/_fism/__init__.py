"""How FISM is trained."""

from .training import Hyper, Training, user_vectors

__all__ = ["Hyper", "Training", "user_vectors"]
