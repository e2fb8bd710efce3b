"""Hyper-parameters of TransCF."""

from __future__ import annotations

from typing import Literal

from transcf.kernels import Array
from transcf.models.event_weights import EventWeights
from transcf.models.families import TripleSettings
from transcf.models.params import setting, settings
from transcf.models.transcf.score_functions import SCORE_FUNCTIONS
from transcf.models.triples import rank_weights
from transcf.models.vectors import NormConstraint

#: Weight of the squared biases of a triple in the loss, if items have biases.
BIAS_DECAY = 0.01
#: Step size of biases, relative to the learning rate: a bias moves in every triple of its item.
BIAS_RATE = 0.2


@settings()
class ObjectiveSettings:
    """Hyper-parameters of the published loss."""

    margin: float = setting(1.0, "Margin of the hinge loss.", low=0)
    reg_distance: float = setting(
        0.05, "Weight of the distance between users and their items in the loss.", low=0
    )
    reg_neighborhood: float = setting(
        0.2, "Weight of the distance between vectors and their neighbourhoods in the loss.", low=0
    )


@settings(init_scale=0.01, event_weights=EventWeights(recency=4.0))
class TransCFSettings(TripleSettings, ObjectiveSettings):
    """Hyper-parameters of TransCF; learning rate and regularizers are per triple."""

    variant: str = setting(
        "translation",
        "The score: "
        + " ".join(f'"{name}": {kind.__doc__}' for name, kind in SCORE_FUNCTIONS.items()),
        words=tuple(SCORE_FUNCTIONS),
    )
    tie_neighbors: bool = setting(
        False, "Whether the neighbourhood term also moves the neighbours, as in the paper."
    )
    negatives: int = setting(
        20, "Negative items drawn per triple, of which the hardest is used.", low=1, high=1000
    )
    rank_weighting: bool = setting(
        True, "Whether triples with more violating negatives have a larger weight."
    )
    item_bias: bool = setting(True, "Whether items have a bias.")
    neighborhood_updates: int = setting(
        4,
        "Updates of the neighbourhood means per epoch (fast solver); fewer where they would take "
        "longer than the training between them.",
        low=1,
    )
    norm_constraint: NormConstraint = setting(
        "norm",
        "Vectors are projected into the unit ball after each epoch, those of users after each "
        "visit, and within an epoch any vector that is ten times as long. "
        '"norm" divides by the norm, "squared" by the squared norm (as printed in the paper), '
        '"none" does not constrain them.',
    )
    solver: Literal["fast", "exact"] = setting(
        "fast", '"exact" takes mini-batches with gradients through all neighbours.'
    )

    @property
    def title(self) -> str:
        """Name of the model in tables."""
        return SCORE_FUNCTIONS[self.variant].title

    @property
    def bias_decay(self) -> float:
        """Weight of squared biases in the loss."""
        return BIAS_DECAY

    def rank_weights(self, n_items: int) -> Array:
        """Return the weight of the hinge by the number of violations among the negatives."""
        return rank_weights(self.negatives, n_items if self.rank_weighting else None)
