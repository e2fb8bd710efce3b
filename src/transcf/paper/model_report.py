"""The report of a model: accuracy against a baseline, example users, analyses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from transcf.data.datasets import absolute_name
from transcf.data.ids import Id
from transcf.data.interactions import Interactions
from transcf.data.report import counted
from transcf.data.split import Split
from transcf.data.splitters import open_log_and_split
from transcf.errors import DataError, EvaluationError, TransCFError
from transcf.evaluation import Evaluation, evaluate
from transcf.experiments.experiment import OnProgress
from transcf.experiments.pages import Drawing, Page, bars
from transcf.models.base import Recommender
from transcf.models.baselines import Popularity, RecentPopularity
from transcf.models.params import values_of
from transcf.models.training import FitOptions
from transcf.paper.analysis import WHAT, Subject
from transcf.paper.spaces import Analysis, typical_users
from transcf.tables import Table, legend

#: Length of the lists, and the metric that is compared by group.
LENGTH = 10
METRIC = f"NDCG@{LENGTH}"
#: Number of calls of `on_progress`.
PARTS = 2 + len(WHAT)
_GROUPS = 4  # of users, of about the same size
_USERS, _RECOMMENDED, _HISTORY = 5, 5, 5  # example users, and items shown of each
#: Entries of `report_` that are shown.
_TRAINING = ("fitted_on", "dataset", "split", "best_epoch", "seconds")
_TWIN_NOTE = (
    "The model was fitted on all events: these are figures of a model with the same parameters and "
    "epochs, fitted without the held-out events."
)


@dataclass(frozen=True, eq=False)
class Quality:
    """Evaluations of a model and of a baseline on the same held-out events."""

    model: Evaluation
    baseline: Evaluation  # of popularity or, if it is better, of recent popularity
    known: Interactions  # events before the held-out ones
    split: Split
    is_twin: bool  # whether `model` has the same settings, but was fitted without these events

    def metrics(self) -> pl.DataFrame:
        """Return accuracy and properties of lists: `metric, model, baseline, times`."""
        ours, base = (
            {name: estimate.mean for name, estimate in found.metrics.items()} | found.catalogue
            for found in (self.model, self.baseline)
        )
        rows = [(name, mean, base[name]) for name, mean in ours.items() if name in base]
        frame = pl.DataFrame(rows, ["metric", "model", "baseline"], orient="row")
        model, baseline = pl.col("model"), pl.col("baseline")
        return frame.with_columns(times=pl.when(baseline != 0).then(model / baseline))

    def by_activity(self) -> pl.DataFrame:
        """Return accuracy by the number of events of users: `group, users, model, baseline`."""
        return self._by(self.known.by_user.counts[self._rows])

    def by_popularity(self) -> pl.DataFrame:
        """Return accuracy by the number of users of the held-out items (median of a user)."""
        counts, test = self.known.by_item.counts, self.split.test.by_user
        held_out = [counts[test.row(int(row))] for row in self._rows]
        return self._by(np.array([np.median(each[each > 0]) for each in held_out]))

    @property
    def _rows(self) -> npt.NDArray[np.int32]:
        return self.split.train.users.rows(self.model.per_user["user_id"])

    def _by(self, values: npt.NDArray[Any]) -> pl.DataFrame:
        edges = np.unique(np.quantile(values.astype(np.float64), np.linspace(0, 1, _GROUPS + 1)))
        users = pl.DataFrame(
            {
                "place": np.searchsorted(edges[1:-1], values, side="left"),
                "value": values.astype(np.int64),
                "model": self.model.per_user[METRIC],
                "baseline": self.baseline.per_user[METRIC],
            }
        )
        low, high = pl.col("value").min(), pl.col("value").max()
        name = pl.format("{} to {}", low, high).alias("group")
        means = (pl.col("model").mean(), pl.col("baseline").mean())
        found = users.group_by("place").agg(name, pl.len().alias("users"), *means)
        return found.sort("place").drop("place")


def evaluate_quality(model: Recommender[Any], split: Split, *, held_out: bool) -> Quality:
    """Evaluate a model and a baseline on the test part of a split.

    Unless the test part was held out from the model, a twin is evaluated: a copy that is fitted on
    the events before it, with the same number of epochs.
    """
    twin = model if held_out else copy(model).refit(split.before_test, FitOptions())
    found = evaluate(twin, split, k=[LENGTH], beyond=True)
    known = split.train if found.protocol.endswith("no-refit") else split.before_test
    baselines: list[Recommender[Any]] = [Popularity()]
    baselines += [RecentPopularity()] if known.timestamps is not None else []
    evaluated = [
        evaluate(one.fit(known), split, found.protocol, k=[LENGTH], beyond=True)
        for one in baselines
    ]
    best = max(evaluated, key=lambda one: one.metrics[METRIC].mean)
    return Quality(found, best, known, split, not held_out)


def report_of(
    model: Recommender[Any], data: str | None = None, on_progress: OnProgress = lambda text: None
) -> tuple[Page, dict[str, str]]:
    """Compute all parts of the report that are available; the second value says why others are not.

    Args:
        model: A fitted model.
        data: A path or the name of a dataset; by default the data that the model was fitted on.
        on_progress: Called with one line of text at each of `PARTS` steps.
    """
    on_progress("opening the data")
    origin, quality, missing = model.report_, None, {}
    if data is None and "dataset" not in origin:
        reason = "the model does not say what it was fitted on: name it with --data DATA"
        return page_of(model, missing={"data": reason}), {"data": reason}
    is_own = data is None or absolute_name(data) == origin.get("dataset")
    name = origin["dataset"] if data is None else data
    reading = origin.get("reading", {}) if is_own else {}
    protocol = origin.get("protocol") if is_own else None
    log, split = open_log_and_split(name, protocol, seed=origin.get("split_seed", 0), **reading)
    on_progress("evaluating")
    try:
        if model.users_ != log.users or model.items_ != log.items:
            raise DataError(f"{name} has other users or items than the model was fitted on.")
        held_out = is_own and bool(origin.get("held_out"))
        quality = evaluate_quality(model, split, held_out=held_out)
    except (DataError, EvaluationError) as error:
        missing["accuracy"] = str(error)
    analyses, others = Subject({model.name: model}, log).all(WHAT, on_progress)
    missing |= others
    return page_of(model, log, quality, analyses, missing), missing


def page_of(
    model: Recommender[Any],
    log: Interactions | None = None,
    quality: Quality | None = None,
    analyses: Sequence[Analysis] = (),
    missing: Mapping[str, str] | None = None,
) -> Page:
    """Make the report of what there is; needs matplotlib."""
    known = model.learned_.known
    sizes = (
        counted(int(known.active.sum()), "user"),
        counted(int((known.item_counts > 0).sum()), "item"),
        counted(int(known.item_counts.sum()), "event"),
    )
    page = Page(f"{model.name}: model report", f"Fitted on {', '.join(sizes)}.")
    if quality is not None:
        page.add("Accuracy", *_accuracy(quality))
    page.add("Example users", *_example_users(model, log))
    for found in analyses:
        page.add(found.title, found.figures, found.table)
    report = {name: model.report_[name] for name in _TRAINING if name in model.report_}
    for title, values in (
        ("Parameters", report | values_of(model.settings_)),
        ("Not available", missing or {}),
    ):
        if values:
            rows = [[name, str(value)] for name, value in values.items()]
            page.add(title, Table(title, ["name", "value"], rows, align="ll"))
    return page


def _accuracy(quality: Quality) -> tuple[dict[str, str], Table, list[Drawing]]:
    model, baseline = quality.model, quality.baseline
    facts = {
        f"{METRIC} of {one.model}": f"{one.metrics[METRIC].mean:.4f}" for one in (model, baseline)
    }
    facts |= {"protocol": model.protocol}
    frame = quality.metrics()
    notes = [f"Held out: {model.split}.", legend(frame["metric"]), *[_TWIN_NOTE] * quality.is_twin]
    table = Table.of(frame, f"Held-out events, and lists of {LENGTH} items", notes)
    charts = {
        "by number of events of the user": quality.by_activity(),
        "by number of users of the item": quality.by_popularity(),
    }
    drawings = [
        bars(
            [f"{group} ({users:,})" for group, users in by.select("group", "users").iter_rows()],
            {name: by[name].to_list() for name in ("model", "baseline")},
            title=f"{METRIC} {title} (number of users evaluated)",
            axis=METRIC,
        )
        for title, by in charts.items()
    ]
    return facts, table, drawings


def _example_users(model: Recommender[Any], log: Interactions | None) -> list[Table]:
    known, categories, tables = model.learned_.known, {}, []
    if log is not None and log.categories is not None:
        joined = log.categories.group_by("item_id").agg(pl.col("category").sort().str.join(", "))
        categories = dict(joined.iter_rows())

    def named(item: Id) -> str:
        return f"{item} ({categories[item]})" if item in categories else str(item)

    rows = typical_users(known, _USERS)
    for row, user in zip(rows, known.users.ids(rows), strict=True):
        history = known.items.ids(known.histories[row][::-1][:_HISTORY]).to_list()
        latest = ", ".join(map(named, history))
        recommended = model.recommend(user, k=_RECOMMENDED)["item_id"].to_list()
        lines = [
            [str(place), named(item), _reason(model, user, item)]
            for place, item in enumerate(recommended, start=1)
        ]
        note = f"{counted(len(known.histories[row]), 'item')} in the history; the latest: {latest}."
        columns = ["rank", "recommended", "explained by (share of the score)"]
        tables.append(Table(f"User {user}", columns, lines, [note], align="lll"))
    return tables


def _reason(model: Recommender[Any], user: Id, item: Id) -> str:
    try:
        effects = model.explain(user, item, top=2).effects
    except TransCFError:
        return "-"
    named = [f"{each.item_id} ({100 * each.share:.0f} %)" for each in effects if each.effect > 0]
    return ", ".join(named) or "-"
