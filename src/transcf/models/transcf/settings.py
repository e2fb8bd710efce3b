"""TransCF's hyper-parameters."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal, TypeAlias

from transcf.kernels import Array
from transcf.learning import setting, settings
from transcf.learning.families import TripleSettings
from transcf.learning.forms import FORMS
from transcf.learning.room import Room, vectors
from transcf.learning.settings import rules_of
from transcf.learning.triples import rank_weights

Bound: TypeAlias = Literal["norm", "squared", "none"]

#: The form that is learned in a way of its own.
MIXTURE = "mixture"
#: What tables call models of each form.
TITLES = {form.name: form.title for form in FORMS.values()} | {MIXTURE: "TransCF-mixture"}
#: Defaults of the mixture where they are others.
MIXTURE_DEFAULTS: dict[str, Any] = {
    "epochs": 20,
    "learning_rate": 0.01,
    "init_scale": 0.03,
    "recency": 0.0,
}


@settings()
class MixtureSettings:
    """Hyper-parameters of the mixture of translations alone."""

    tau: float = setting(
        4.0, "How sharply nearness to the items of a history counts (mixture).", low=0, high=10
    )
    beta: float = setting(
        3.0, "How sharply nearness to the user's own point counts (mixture).", low=0, high=10
    )
    rho: float = setting(
        1.5,
        "How fast the items of a history fade with the number of places between them and the "
        "target, or the present: d^-rho, where events have times (mixture).",
        low=0,
        high=50,
    )
    future: float = setting(
        0.5,
        "How much events after a target count when the model learns, where events have times "
        "(mixture).",
        low=0,
        high=1,
    )
    tied: bool = setting(
        False,
        "Whether the items of a history have the vectors of recommended items; else they have "
        "vectors of their own (mixture).",
    )
    shared_negatives: int = setting(
        1000, "Items that all events of a batch are compared with (mixture).", low=1
    )
    batch_events: int | None = setting(
        None,
        "Events of a batch, at least one whole history (mixture); None takes 1,024, and fewer "
        "where there are few events.",
        low=1,
    )


@settings()
class SideSettings:
    """What neighbourhoods are made of beside events."""

    friends: float = setting(
        0.0,
        "Share of a user's friends, against the user's items, in the user's neighbourhood, where "
        "the log has links between users (not in the mixture).",
        low=0,
        high=1,
    )
    category: float = setting(
        0.0,
        "Share of the other items of an item's categories, against the item's users, in the "
        "item's neighbourhood, where the log has categories (not in the mixture).",
        low=0,
        high=1,
    )


#: What only the mixture looks at, and what it does not.
ONLY_MIXTURE_HAS = tuple(rules_of(MixtureSettings))
MIXTURE_HAS_NO = (
    "margin",
    "reg_distance",
    "reg_neighborhood",
    "tie_neighbors",
    "negatives",
    "rank_weighting",
    "bias_decay",
    "bias_rate",
    "refresh",
    "solver",
    "samples_per_user",
    *rules_of(SideSettings),
)


@settings(init_scale=0.01, recency=4.0)
class TransCFSettings(TripleSettings, MixtureSettings, SideSettings):
    """Hyper-parameters of TransCF; learning rate and regularizers are per triple."""

    form: str = setting(
        "translation",
        "The score. "
        + " ".join(f'"{form.name}": {form.__doc__}' for form in FORMS.values())
        + f' "{MIXTURE}": One translation for each item of the history; the nearest one counts.',
        words=(*FORMS, MIXTURE),
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
        "and inside an epoch whoever gets ten times as far; in the mixture after each step. "
        '"norm" divides by the norm, "squared" by the squared norm (as printed in the paper), '
        '"none" does not.',
    )
    solver: Literal["fast", "exact"] = setting(
        "fast", '"exact" takes mini-batches with gradients through all neighbours.'
    )

    def room(self, users: int, items: int) -> Room:
        """Return what the vectors take at least, with Adam's means of them in the mixture."""
        plain = super().room(users, items)
        if self.form != MIXTURE:
            return plain
        rows = users + (1 if self.tied else 2) * items
        return replace(plain, size=3 * vectors(rows, self.dim))

    @property
    def title(self) -> str:
        """What tables call the model: its form, and what its neighbourhoods are mixed with."""
        parts = ("-friends" if self.friends else "", "-categories" if self.category else "")
        return TITLES.get(self.form, "TransCF") + "".join(parts)

    def usual_scale(self) -> float:
        """Return what `init_scale` is by default, for this form."""
        usual = super().usual_scale()
        return float(MIXTURE_DEFAULTS["init_scale"]) if self.form == MIXTURE else usual

    def rate_at(self, epoch: float) -> float:
        """Learning rate of an epoch, counted from 1; linear decay would reach 0 after the last."""
        if self.decay == "none":
            return self.learning_rate
        return self.learning_rate * max(0.0, 1 - (epoch - 1) / self.epochs)

    def rank_weights(self, n_items: int) -> Array:
        """Weight of the hinge by the number of violations among the negatives."""
        return rank_weights(self.negatives, n_items if self.rank_weighting else None)
