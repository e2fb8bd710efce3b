"""TransCF's hyper-parameters."""

from __future__ import annotations

from typing import Literal, TypeAlias

from transcf.kernels import Array
from transcf.learning import setting, settings
from transcf.learning.families import TripleSettings
from transcf.learning.forms import FORMS
from transcf.learning.triples import rank_weights

Bound: TypeAlias = Literal["norm", "squared", "none"]


@settings(init_scale=0.01, recency=4.0)
class TransCFSettings(TripleSettings):
    """Hyper-parameters of TransCF; learning rate and regularizers are per triple."""

    form: str = setting(
        "translation",
        "The score. " + " ".join(f'"{form.name}": {form.__doc__}' for form in FORMS.values()),
        words=tuple(FORMS),
    )
    decay: Literal["linear", "none"] = setting(
        "linear", '"linear" lowers the learning rate evenly over the epochs, "none" keeps it.'
    )
    margin: float = setting(1.0, "How much nearer than j the item i should be.", low=0)
    reg_distance: float = setting(0.05, "Pulls users and their items together.", low=0)
    reg_neighborhood: float = setting(
        0.2, "Pulls vectors to the means of their neighbourhoods.", low=0
    )
    tie_neighbors: bool = setting(
        False, "Whether that pull moves the neighbours, too, as in the paper."
    )
    negatives: int = setting(20, "Items drawn to choose the hardest from.", low=1, high=1000)
    rank_weighting: bool = setting(
        True, "Whether violations by many of the drawn items weigh more."
    )
    item_bias: bool = setting(True, "Whether items have a bias.")
    bias_decay: float = setting(
        0.01, "Pulls the biases of a triple gently to zero, if there are any.", low=0
    )
    bias_rate: float = setting(
        0.2,
        "Step size of biases, as a share of the learning rate: a bias moves in every triple of its "
        "item, always the same way.",
        above=0,
    )
    refresh: int = setting(
        4,
        "How often per epoch the neighbourhood means are renewed (fast solver); less often where "
        "that would take longer than the training in between.",
        low=1,
    )
    bound: Bound = setting(
        "norm",
        "Vectors are brought into the unit ball after each epoch, those of users after each visit, "
        "and inside an epoch whoever gets ten times as far. "
        '"norm" divides by the norm, "squared" by the squared norm (as printed in the paper), '
        '"none" does not.',
    )
    solver: Literal["fast", "exact"] = setting(
        "fast", '"exact" takes mini-batches with gradients through all neighbours.'
    )

    def rate_at(self, epoch: int) -> float:
        """Learning rate of an epoch, counted from 1; linear decay would reach 0 after the last."""
        if self.decay == "none":
            return self.learning_rate
        return self.learning_rate * max(0.0, 1 - (epoch - 1) / self.epochs)

    def rank_weights(self, n_items: int) -> Array:
        """Weight of the hinge by the number of violations among the negatives."""
        return rank_weights(self.negatives, n_items if self.rank_weighting else None)
