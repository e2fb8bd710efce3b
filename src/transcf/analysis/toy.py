"""A picture of the idea: a user of several tastes as one point, and as one that is moved.

The log is made up: three categories, and users who like two of them each. Both models are fitted in
two dimensions, so that what is drawn is what they have learned.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from transcf.analysis.figures import Plane, plane
from transcf.analysis.result import Analysis
from transcf.data.interactions import Interactions
from transcf.data.readers import read_interactions
from transcf.kernels import Array
from transcf.models.cml import CML
from transcf.models.mixture import TransCFMixture
from transcf.models.mixture.learned import Mixture
from transcf.pages import Drawing

#: The categories, and which two of them each kind of user likes.
CATEGORIES = ("books", "films", "games")
_KINDS = ((0, 1), (0, 2), (1, 2))
#: Items of a category, users of a kind, and items that a user has of each of their tastes.
_ITEMS, _USERS, _HAS = 12, 20, 5


def toy_log(seed: int = 0) -> Interactions:
    """Make up the log: user "books + films 0" has five books and five films, and so on."""
    generator = np.random.default_rng(seed)
    users, items = [], []
    for kind in _KINDS:
        for number in range(_USERS):
            name = f"{' + '.join(CATEGORIES[taste] for taste in kind)} {number}"
            for taste in kind:
                chosen = np.sort(generator.choice(_ITEMS, _HAS, replace=False))
                users += [name] * _HAS
                items += [f"{CATEGORIES[taste]} {item:02}" for item in chosen]
    return read_interactions(pl.DataFrame({"user_id": users, "item_id": items}))


def toy(*, random_state: int = 0) -> Analysis:
    """Fit CML and TransCFMixture in two dimensions, and draw where a user of two tastes is.

    The table has the mean distance of that user, over the items of each of the two tastes, from
    where CML has them, where the mixture has them, and where it moves them for the item.

    Args:
        random_state: Of the log and of both models.
    """
    log = toy_log(random_state)
    cml = CML(
        dim=2, epochs=300, learning_rate=0.1, negatives=1, rank_weighting=False,
        random_state=random_state,
    ).fit(log)  # fmt: skip
    mixture = TransCFMixture(
        dim=2, epochs=200, learning_rate=0.02, shared_negatives=100, random_state=random_state
    ).fit(log)
    learned = mixture.learned_
    assert isinstance(learned, Mixture), "it learns nothing else"
    user = f"{CATEGORIES[0]} + {CATEGORIES[1]} 0"
    row = int(mixture.users_.rows([user])[0])
    kinds = [str(item).partition(" ")[0] for item in log.items.series.to_list()]
    history = learned.known.histories[row]
    own = learned.users[row]
    gain = learned.settings.tau / (learned.settings.tau + learned.settings.beta)
    moved = own + gain * (learned.history[history] - own)
    rows = []
    for taste in CATEGORIES:
        items = np.flatnonzero([kind == taste for kind in kinds]).astype(np.int32)
        people = np.full(len(items), row, np.int32)
        r = learned.translations(people, items)
        rows.append(
            {
                "taste": taste,
                "has": int(np.isin(history, items).sum()),
                "CML": _mean_distance(cml.user_vectors_[row], cml.item_vectors_[items]),
                "mixture_before": _mean_distance(own, learned.items[items]),
                "mixture_moved": _mean_distance(own + r, learned.items[items]),
            }
        )

    def draw() -> list[Drawing]:
        still = Plane(cml.item_vectors_, kinds, cml.user_vectors_[row])
        moving = Plane(learned.items, kinds, own, moved, history)
        return [
            plane(still, CATEGORIES, title="CML: one point between both tastes"),
            plane(
                moving, CATEGORIES, title="TransCFMixture: moved toward each item of the history"
            ),
        ]

    notes = (
        "Mean distance from the items of a category. The user has items of the first two. The "
        "published translation is too short to be seen.",
    )
    title = f"A user with two tastes ({CATEGORIES[0]}, {CATEGORIES[1]}) in two dimensions"
    return Analysis("toy", title, pl.DataFrame(rows), draw, {"user_id": user}, notes)


def _mean_distance(point: Array, items: Array) -> float:
    return float(np.linalg.norm(items - point, axis=1).mean())
