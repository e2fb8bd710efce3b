"""A user of two tastes in two dimensions: a point in CML, a position per past item in the mixture.

Writes the table (toy.json, toy.csv) and the figures of the documentation (toy-1.svg, toy-2.svg).

Run: python benchmarks/toy.py [FOLDER]
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl

from transcf import CML, Interactions, TransCFMixture, read_interactions
from transcf.experiments.pages import INK, Drawing, canvas, finish
from transcf.kernels import Array
from transcf.models.mixture.fitted import Mixture
from transcf.paper import Analysis

#: Categories of the example, and the two that each kind of user likes.
CATEGORIES = ("books", "films", "games")
_KINDS = ((0, 1), (0, 2), (1, 2))
_TOY_ITEMS, _TOY_USERS, _TOY_HISTORY = 12, 20, 5  # per category, per kind, per user and category


def toy_log(seed: int = 0) -> Interactions:
    """Make a log: user "books + films 0" has five books and five films, and so on."""
    generator = np.random.default_rng(seed)
    users, items = [], []
    for kind in _KINDS:
        for number in range(_TOY_USERS):
            name = f"{' + '.join(CATEGORIES[taste] for taste in kind)} {number}"
            for taste in kind:
                chosen = np.sort(generator.choice(_TOY_ITEMS, _TOY_HISTORY, replace=False))
                users += [name] * _TOY_HISTORY
                items += [f"{CATEGORIES[taste]} {item:02}" for item in chosen]
    return read_interactions(pl.DataFrame({"user_id": users, "item_id": items}))


def toy(*, random_state: int = 0) -> Analysis:
    """Fit CML and TransCFMixture in two dimensions, and draw where a user of two tastes is.

    The table has the mean distance of that user from the items of each category: in CML, in the
    mixture before translation, and after it.
    """
    log = toy_log(random_state)
    cml = CML(
        dim=2, epochs=300, learning_rate=0.1, negatives=1, rank_weighting=False,
        random_state=random_state,
    ).fit(log)  # fmt: skip
    mixture = TransCFMixture(
        dim=2, epochs=200, learning_rate=0.02, shared_negatives=100, random_state=random_state
    ).fit(log)
    learned = mixture._without_trend()
    assert isinstance(learned, Mixture)
    user = f"{CATEGORIES[0]} + {CATEGORIES[1]} 0"
    row = int(mixture.users_.rows([user])[0])
    kinds = [str(item).partition(" ")[0] for item in log.items.series.to_list()]
    history, own = learned.known.histories[row], learned.users[row]
    gain = learned.settings.tau / (learned.settings.tau + learned.settings.beta)
    moved = own + gain * (learned.history[history] - own)
    rows = []
    for taste in CATEGORIES:
        items = np.flatnonzero([kind == taste for kind in kinds]).astype(np.int32)
        r = learned.translations(np.full(len(items), row, np.int32), items)
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
        moving = "TransCFMixture: moved toward each item of the history"
        still = "CML: one point between both tastes"
        return [
            _plane(still, cml.item_vectors_, kinds, cml.user_vectors_[row], np.empty((0, 2))),
            _plane(moving, learned.items, kinds, own, moved),
        ]

    notes = (
        "Mean distance from the items of a category. The user has items of the first two. The "
        "published translation is too short to be seen.",
    )
    title = f"A user with two tastes ({CATEGORIES[0]}, {CATEGORIES[1]}) in two dimensions"
    return Analysis("toy", title, pl.DataFrame(rows), draw, {"user_id": user}, notes)


def _mean_distance(point: Array, items: Array) -> float:
    return float(np.linalg.norm(items - point, axis=1).mean())


def _plane(title: str, items: Array, kinds: Sequence[str], user: Array, moved: Array) -> Drawing:
    """Draw items (n, 2) by category, a user, and arrows to translated positions (m, 2)."""
    with canvas(3.9) as (figure, axes):
        for number, kind in enumerate(CATEGORIES):
            places = items[[own == kind for own in kinds]]
            axes.plot(*places.T, "osD"[number], ms=5, alpha=0.85, label=kind)
        for place in moved:
            arrow = {"arrowstyle": "-|>", "color": INK, "linewidth": 0.8, "alpha": 0.7}
            axes.annotate("", tuple(place), tuple(user), arrowprops=arrow)
        if len(moved):
            axes.plot(*moved.T, "o", color=INK, markersize=3, label="moved")
        axes.plot(*user, "*", color=INK, markersize=13, label="user")
        axes.set_aspect("equal", adjustable="datalim")
        axes.margins(0.12)
        axes.grid()
        return finish(figure, title)


if __name__ == "__main__":
    toy().write(Path(sys.argv[1] if len(sys.argv) > 1 else "docs/results"))
