"""How good a model is against a floor, for whom, and what it shows to people."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from transcf.data.report import counted
from transcf.data.split import Split
from transcf.evaluation import Evaluation, evaluate
from transcf.models.base import Recommender
from transcf.models.popularity import Popularity, RecentPopularity
from transcf.models.training import FitOptions

#: Length of the lists, and what is compared.
LENGTH = 10
METRICS = (f"N@{LENGTH}", f"H@{LENGTH}", f"R@{LENGTH}", f"MRR@{LENGTH}")
#: Groups of users of about the same size.
_GROUPS = 4

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Quality:
    """Figures of a model and of the floor on the same held-out events.

    Attributes:
        model: Of the model, or of its twin.
        floor: Of popularity or, where it ranks better, of recent popularity.
        split: What was held out.
        is_twin: Whether a twin was judged: the model's settings, fitted without held-out events.
    """

    model: Evaluation
    floor: Evaluation
    split: Split
    is_twin: bool

    def metrics(self) -> pl.DataFrame:
        """Return `figure, model, floor, times`: accuracy, and what lists are like."""
        both = [_figures(found) for found in (self.model, self.floor)]
        names = [name for name in both[0] if name in both[1]]
        ours, floor = ([figures[name] for name in names] for figures in both)
        times = [one / other if other else None for one, other in zip(ours, floor, strict=True)]
        return pl.DataFrame({"figure": names, "model": ours, "floor": floor, "times": times})

    def by_activity(self) -> pl.DataFrame:
        """Accuracy by how many events users had before."""
        return self._by(self._known.by_user.counts[self._rows], "event")

    def by_popularity(self) -> pl.DataFrame:
        """Accuracy by how many users had the held-out items before (median of a user's)."""
        test, counts = self.split.test, self._known.by_item.counts
        popularity = np.zeros(len(self._rows))
        for place, row in enumerate(self._rows):
            held_out = counts[test.by_user.row(int(row))]
            popularity[place] = np.median(held_out[held_out > 0])
        return self._by(popularity, "user")

    @property
    def _known(self) -> Any:
        """What was learned from."""
        is_refit = not self.model.protocol.endswith("no-refit")
        return self.split.before_test if is_refit else self.split.train

    @property
    def _rows(self) -> npt.NDArray[np.int32]:
        return self.split.train.users.rows(self.model.per_user["user_id"])

    def _by(self, values: npt.NDArray[Any], noun: str) -> pl.DataFrame:
        """Return `group, people, model, floor`: means of the first metric by values of users."""
        edges = group_edges(values.astype(np.float64), _GROUPS)
        groups = np.searchsorted(edges[1:-1], values, side="left")
        rows = []
        for number in range(len(edges) - 1):
            members = groups == number
            if members.any():
                low, high = int(values[members].min()), int(values[members].max())
                many = counted(high, noun)
                name = many if low == high else f"{low:,} to {many}"
                means = [
                    float(e.per_user[METRICS[0]].to_numpy()[members].mean()) for e in self._both
                ]
                rows.append((name, int(members.sum()), *means))
        columns = {"group": pl.String, "people": pl.Int64, "model": pl.Float64, "floor": pl.Float64}
        return pl.DataFrame(rows, columns, orient="row")

    @property
    def _both(self) -> tuple[Evaluation, Evaluation]:
        return self.model, self.floor


def group_edges(values: Floats, number: int) -> Floats:
    """Return edges of groups of about the same size, ascending and distinct.

    Example:
        >>> group_edges(np.array([1.0, 1.0, 1.0, 2.0, 3.0, 9.0]), 2).tolist()
        [1.0, 1.5, 9.0]
    """
    edges: Floats = np.unique(np.quantile(values, np.linspace(0, 1, number + 1)))
    return edges if len(edges) > 1 else np.array([edges[0], edges[0]])


def judged(model: Recommender[Any], split: Split, *, held_out: bool) -> Quality:
    """Judge a model and the floor on the test part of a split.

    The floor is the better one of popularity and, where there are times, recent popularity.

    Args:
        model: A fitted one; it is left as it is.
        split: Of its data.
        held_out: Whether the model has not learned from the test part. Otherwise a twin is fitted
            on what comes before it, as long as the model was.
    """
    judged_one = model if held_out else copy(model).refit(split.before_test, FitOptions())
    found = evaluate(judged_one, split, at=[LENGTH], beyond=True)
    known = split.train if found.protocol.endswith("no-refit") else split.before_test
    floors: list[Recommender[Any]] = [Popularity()]
    if known.timestamps is not None:
        floors.append(RecentPopularity())
    ranked = [
        evaluate(floor.fit(known), split, found.protocol, at=[LENGTH], beyond=True)
        for floor in floors
    ]
    best = max(ranked, key=lambda one: one.metrics[METRICS[0]].mean)
    return Quality(found, best, split, not held_out)


def _figures(found: Evaluation) -> dict[str, float]:
    means = {name: estimate.mean for name, estimate in found.metrics.items()}
    chosen = (*METRICS, "AUC", f"novelty@{LENGTH}", f"ILD@{LENGTH}")
    figures = {name: means[name] for name in chosen if name in means}
    return figures | {k: v for k, v in found.catalogue.items() if not k.startswith("future")}
