"""Settings that several models share."""

from __future__ import annotations

from typing import Literal

from transcf.errors import shown
from transcf.models.event_weights import WeightSettings
from transcf.models.memory import MemoryEstimate, vectors
from transcf.models.settings import setting, settings
from transcf.models.torch.common import Device

#: Most samples of a user and epoch.
MOST_SAMPLES = 1_000_000


@settings()
class IterationSettings:
    """What every model has that is trained epoch by epoch."""

    epochs: int = setting(30, "Most epochs to train.", low=1)
    validate_every: int | None = setting(
        None, "Epochs between validations; None validates about ten times.", low=1
    )
    validation_users: int | None = setting(
        1000,
        "Users that a validation in full ranking looks at, always the same ones; None looks at "
        "all. Figures that are reported always look at all.",
        low=1,
    )
    patience: int | None = setting(
        None, "Validations without a new best before stopping; None never stops early.", low=1
    )
    random_state: int = setting(
        0,
        "Seed; the same seed gives the same bits for any number of threads.",
        low=0,
        high=2**63 - 1,
    )


@settings()
class FactorSettings:
    """What models have that learn a vector for everybody and everything by small steps."""

    dim: int = setting(64, "Length of the vectors.", low=1, high=4096)
    learning_rate: float = setting(0.05, "Step size.", above=0)
    init_scale: float = setting(0.1, "Standard deviation of the first vectors.", above=0, high=100)

    def room(self, users: int, items: int) -> MemoryEstimate:
        """Return what the vectors take at least."""
        return MemoryEstimate(vectors(users + items, self.dim), f"dim={self.dim}")


def divergence_hint_of(settings: object, usual: str) -> str:
    """Say what to lower when training diverges: first vectors that start far out, above all.

    Args:
        settings: Those of the training.
        usual: What the model would lower.

    Example:
        >>> divergence_hint_of(TripleSettings(init_scale=5.0), "learning_rate")
        'init_scale (5, by default 0.1) or learning_rate'
    """
    if not isinstance(settings, FactorSettings):
        return usual
    given, default = settings.init_scale, type(settings).init_scale
    if given <= default:
        return usual
    return f"init_scale ({given:g}, by default {default:g}) or {usual}"


@settings()
class TripleSettings(FactorSettings, IterationSettings, WeightSettings):
    """What models have that learn from triples: a user, an item of theirs, one that is not."""

    samples_per_user: int | None = setting(
        None,
        "Triples per user and epoch; None draws as many as the user has items.",
        low=1,
        high=MOST_SAMPLES,
    )
    decay: Literal["linear", "none"] = setting(
        "linear", '"linear" lowers the learning rate evenly over the epochs, "none" keeps it.'
    )

    def rate_at(self, epoch: float) -> float:
        """Learning rate of an epoch, counted from 1; linear decay would reach 0 after the last."""
        if self.decay == "none":
            return self.learning_rate
        return self.learning_rate * max(0.0, 1 - (epoch - 1) / self.epochs)


@settings(epochs=16)
class LeastSquaresSettings(IterationSettings, WeightSettings):
    """What models have that learn vectors by alternating least squares."""

    dim: int = setting(64, "Length of the vectors.", low=1)

    def room(self, users: int, items: int) -> MemoryEstimate:
        """Return what the vectors and the parts of a Gram matrix take at least."""
        from transcf.models.gram import GRAM_PARTS

        grams = (GRAM_PARTS + 2) * 4 * self.dim**2
        return MemoryEstimate(vectors(users + items, self.dim) + grams, f"dim={shown(self.dim)}")


@settings()
class NeuralSettings(FactorSettings, IterationSettings, WeightSettings):
    """What models have that are trained with torch, by Adam."""

    device: Device = setting(
        "auto",
        'Where to train: "auto" takes CUDA where there is some. A CPU trains on one thread, so '
        "that the same seed gives the same bits.",
    )
