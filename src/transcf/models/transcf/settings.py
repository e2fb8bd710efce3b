"""TransCF's hyper-parameters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal, Self, TypeAlias

from transcf.errors import is_word
from transcf.kernels import Array
from transcf.learning import setting, settings
from transcf.learning.families import TripleSettings
from transcf.learning.forms import FORMS
from transcf.learning.room import Room, vectors
from transcf.learning.settings import rules_of, values_of
from transcf.learning.triples import rank_weights
from transcf.models.transcf.neural.settings import NEURAL_DEFAULTS, PartSettings, parts_of

Bound: TypeAlias = Literal["norm", "squared", "none"]

#: The form that is learned in a way of its own, and the word for whatever validation prefers.
MIXTURE, AUTO = "mixture", "auto"
#: What "auto" chooses from: the mixture, which is taken where nothing is held out, comes first.
CANDIDATES = (MIXTURE, "translation")
#: What tables call models of each form.
TITLES = {MIXTURE: "TransCF"} | {form.name: form.title for form in FORMS.values()}
#: Defaults of the forms that are learned from triples, where they are others than the mixture's.
TRIPLE_DEFAULTS: dict[str, Any] = {
    "epochs": 30,
    "learning_rate": 0.05,
    "init_scale": 0.01,
    "recency": 4.0,
}


@settings()
class MixtureSettings:
    """Hyper-parameters of the mixture of translations alone."""

    tau: float = setting(
        4.0, "How sharply nearness to the items of a history counts (mixture).", low=0, high=10
    )
    beta: float = setting(
        2.0, "How sharply nearness to the user's own point counts (mixture).", low=0, high=10
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
    negative_power: float = setting(
        0.5,
        "These are drawn in proportion to this power of their popularity, and count for as many "
        "more as they are drawn less; 0 draws all alike (mixture).",
        low=0,
        high=1,
    )
    debias: float = setting(
        0.0,
        "How much of an item's popularity scores leave out: this times the logarithm of its "
        "events. 0 asks what people take, 1 what they take more than others do (mixture).",
        low=0,
        high=2,
    )
    user_rate: float = setting(
        5.0,
        "Step size of users, as a multiple of the learning rate: a user moves once an epoch, items "
        "as often as a batch holds or draws them (mixture).",
        above=0,
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


#: Names in tables of neighbourhoods that are not the usual ones, and the weights that names mean.
SIDE_TITLES = {("friends", 0.5): "friends", ("category", 0.5): "categories"}
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
    "samples_per_user",
    *rules_of(SideSettings),
)


@settings(epochs=20, learning_rate=0.01, init_scale=0.03)
class TransCFSettings(TripleSettings, MixtureSettings, SideSettings, PartSettings):
    """Hyper-parameters of TransCF; learning rate and regularizers are per triple.

    Defaults are those of the mixture; `TRIPLE_DEFAULTS` says where the other forms differ.
    """

    form: str = setting(
        MIXTURE,
        f'The score. "{MIXTURE}": One translation for each item of the history; the nearest one '
        "counts. "
        + " ".join(f'"{form.name}": {form.__doc__}' for form in FORMS.values())
        + f' "{AUTO}": Whichever of {" and ".join(CANDIDATES)} is better on validation data.',
        words=(MIXTURE, *FORMS, AUTO),
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
        "fast",
        '"exact" takes mini-batches with gradients through all neighbours; in the '
        "mixture it compares with all items, and not with `shared_negatives` of them.",
    )

    def room(self, users: int, items: int) -> Room:
        """Return what the vectors take at least, with Adam's means of them where it is used."""
        plain = super().room(users, items)
        if self.form in FORMS and not self.parts:
            return plain
        rows = users + (2 if self.form == MIXTURE and not self.tied else 1) * items
        return replace(plain, size=3 * vectors(rows, self.dim))

    @property
    def uses_times(self) -> bool:
        """Whether times of events matter: in the mixture also to how items of a history fade."""
        return super().uses_times or (self.form not in FORMS and self.rho > 0)

    @property
    def parts(self) -> tuple[str, ...]:
        """Titles of what is learned about neighbourhoods and translations, if anything."""
        return parts_of({"neighbors": self.neighbors, "mapping": self.mapping})

    @property
    def title(self) -> str:
        """What tables call the model: its form, what it learns beside vectors, whom it asks.

        Example:
            >>> TransCFSettings(form="dot", neighbors="attention", mapping="network").title
            'TransCF-dot-attention-map'
        """
        asked = (title for (name, _), title in SIDE_TITLES.items() if getattr(self, name))
        parts, base = (*self.parts, *asked), TITLES.get(self.form, TITLES[MIXTURE])
        if parts and self.form == "translation":  # what such parts are made for
            base = TITLES[MIXTURE]
        return "-".join([base, *parts])

    def usual_scale(self) -> float:
        """Return what `init_scale` is by default, for this form."""
        usual = super().usual_scale()
        return float(own_defaults({"form": self.form}).get("init_scale", usual))

    def with_defaults(self, values: dict[str, Any]) -> dict[str, Any]:
        """Return changes of parameters, with those that follow from them.

        What was left at the defaults of the present form takes those of the new one.
        """
        present = values_of(self)
        old, new = own_defaults(present), own_defaults(present | values)
        return {name: new[name] for name in new if present[name] == old[name]} | values

    def with_form(self, form: str) -> Self:
        """Return the same for another form, with its defaults where nothing else was said.

        What the form does not look at is left at its default.
        """
        unused = ONLY_MIXTURE_HAS if form in FORMS else MIXTURE_HAS_NO
        usual = {name: getattr(type(self), name) for name in unused}
        return replace(self, **(self.with_defaults({"form": form}) | usual))

    def rank_weights(self, n_items: int) -> Array:
        """Weight of the hinge by the number of violations among the negatives."""
        return rank_weights(self.negatives, n_items if self.rank_weighting else None)


def own_defaults(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return those defaults of a model with such parameters that differ between forms."""
    if not is_word(params.get("form", MIXTURE), FORMS):
        return {name: getattr(TransCFSettings, name) for name in TRIPLE_DEFAULTS}
    return TRIPLE_DEFAULTS | (NEURAL_DEFAULTS if parts_of(params) else {})
