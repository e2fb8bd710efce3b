"""The report of a model: accuracy against a baseline, lists, example users, analyses."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from copy import copy
from dataclasses import dataclass, field
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
from transcf.experiments.pages import Drawing, Page, Section, bars
from transcf.models.base import Recommender
from transcf.models.baselines import Popularity, RecentPopularity
from transcf.models.params import values_of
from transcf.models.registry import name_and_params
from transcf.models.training import FitOptions
from transcf.paper.analysis import WHAT, Subject
from transcf.paper.spaces import Analysis, typical_users
from transcf.tables import Table, legend

#: Length of the lists, and accuracy metrics; the first one is compared by group.
LENGTH = 10
METRICS = (f"NDCG@{LENGTH}", f"HitRate@{LENGTH}", f"Recall@{LENGTH}", f"MRR@{LENGTH}")
_OTHER_METRICS = ("AUC", f"novelty@{LENGTH}", f"ILD@{LENGTH}")
_GROUPS = 4  # of users, of about the same size
_USERS, _RECOMMENDED, _HISTORY = 5, 5, 5  # example users, and items shown of each
#: Labels of entries of `report_`.
_TRAINING = {
    "fitted_on": "fitted on",
    "dataset": "data",
    "split": "held out",
    "best_epoch": "epoch",
    "seconds": "seconds of training",
}
_CHARTS_ONLY = ("variety", "likeness")  # analyses whose charts show all values of their tables
#: Parts of `report_of`.
PARTS = ("opening the data", "evaluating", "analysing")


@dataclass(frozen=True, eq=False)
class Quality:
    """Evaluations of a model and of a baseline on the same held-out events."""

    model: Evaluation
    baseline: Evaluation  # of popularity or, if it is better, of recent popularity
    split: Split
    is_twin: bool  # whether `model` has the same settings, but was fitted without these events

    def metrics(self) -> pl.DataFrame:
        """Return accuracy and properties of lists: `metric, model, baseline, times`."""
        ours, base = (_means(found) for found in (self.model, self.baseline))
        rows = [
            (name, ours[name], base[name], ours[name] / base[name] if base[name] else None)
            for name in ours
            if name in base
        ]
        columns = ["metric", "model", "baseline", "times"]
        return pl.DataFrame(rows, columns, orient="row", infer_schema_length=None)

    def by_activity(self) -> pl.DataFrame:
        """Return accuracy by the number of events of users: `group, users, model, baseline`."""
        return self._by(self._known.by_user.counts[self._rows], "event")

    def by_popularity(self) -> pl.DataFrame:
        """Return accuracy by the number of users of the held-out items (median of a user)."""
        test, counts = self.split.test, self._known.by_item.counts
        popularity = np.zeros(len(self._rows))
        for place, row in enumerate(self._rows):
            held_out = counts[test.by_user.row(int(row))]
            popularity[place] = np.median(held_out[held_out > 0])
        return self._by(popularity, "user")

    @property
    def _known(self) -> Interactions:
        return _fitted_on(self.model, self.split)

    @property
    def _rows(self) -> npt.NDArray[np.int32]:
        return self.split.train.users.rows(self.model.per_user["user_id"])

    def _by(self, values: npt.NDArray[Any], noun: str) -> pl.DataFrame:
        edges = np.unique(np.quantile(values.astype(np.float64), np.linspace(0, 1, _GROUPS + 1)))
        groups = np.searchsorted(edges[1:-1], values, side="left")
        rows = []
        for number in np.unique(groups):
            members = groups == number
            low, high = int(values[members].min()), int(values[members].max())
            many = counted(high, noun)
            name = many if low == high else f"{low:,} to {many}"
            both = (self.model, self.baseline)
            means = [float(e.per_user[METRICS[0]].to_numpy()[members].mean()) for e in both]
            rows.append((name, int(members.sum()), *means))
        return pl.DataFrame(rows, ["group", "users", "model", "baseline"], orient="row")


def evaluate_quality(model: Recommender[Any], split: Split, *, held_out: bool) -> Quality:
    """Evaluate a model and a baseline on the test part of a split.

    Unless the test part was held out from the model, a twin is evaluated: a copy that is fitted on
    the events before it, with the same number of epochs.
    """
    twin = model if held_out else copy(model).refit(split.before_test, FitOptions())
    found = evaluate(twin, split, k=[LENGTH], beyond=True)
    known = _fitted_on(found, split)
    baselines: list[Recommender[Any]] = [Popularity()]
    baselines += [RecentPopularity()] if known.timestamps is not None else []
    evaluated = [
        evaluate(one.fit(known), split, found.protocol, k=[LENGTH], beyond=True)
        for one in baselines
    ]
    best = max(evaluated, key=lambda one: one.metrics[METRICS[0]].mean)
    return Quality(found, best, split, not held_out)


def _fitted_on(found: Evaluation, split: Split) -> Interactions:
    return split.train if found.protocol.endswith("no-refit") else split.before_test


def _means(found: Evaluation) -> dict[str, float]:
    means = {name: estimate.mean for name, estimate in found.metrics.items()}
    figures = {name: means[name] for name in (*METRICS, *_OTHER_METRICS) if name in means}
    return figures | {k: v for k, v in found.catalogue.items() if not k.startswith("future")}


@dataclass(frozen=True, eq=False)
class ModelReport:
    """The content of a report."""

    model: Recommender[Any]
    log: Interactions | None = None  # its data, if they are available
    quality: Quality | None = None  # None if nothing can be held out
    analyses: list[Analysis] = field(default_factory=list)
    missing: dict[str, str] = field(default_factory=dict)  # why parts are not available

    def page(self) -> Page:
        """Make the report; needs matplotlib."""
        known = self.model.learned_.known
        sizes = (
            counted(int(known.active.sum()), "user"),
            counted(int((known.item_counts > 0).sum()), "item"),
            counted(int(known.item_counts.sum()), "event"),
        )
        page = Page(f"{self.model.name}: model report", f"Fitted on {', '.join(sizes)}.")
        page.section("Summary").add("facts", self._key_figures())
        report, params = self.model.report_, name_and_params(self.model)[1]
        facts = {"model": self.model.name}
        facts |= {label: str(report[key]) for key, label in _TRAINING.items() if key in report}
        facts |= {f"parameter {name}": str(value) for name, value in params.items()}
        page.section("Model").add("table", _two_columns("Model and data", "", facts))
        if self.quality is not None:
            _add_accuracy(page.section("Accuracy"), self.quality)
            lists = _quality_table(self.quality, f"Lists of {LENGTH} items", accuracy=False)
            page.section("Recommendation lists").add("table", lists)
        _add_example_users(page.section("Example users"), self.model, self.log)
        for found in self.analyses:
            section = page.section(found.title)
            section.add("figures", found.figures)
            if found.name in _CHARTS_ONLY:
                section.add("list", found.notes)
            else:
                section.add("table", found.table)
        values = values_of(self.model.settings_)
        table = _two_columns("All parameters", "parameter", values)
        page.section("Parameters").add("table", table)
        if self.missing:
            reasons = [f"{name}: {reason}" for name, reason in self.missing.items()]
            page.section("Not available").add("list", reasons)
        return page

    def _key_figures(self) -> dict[str, str]:
        facts: dict[str, str] = {}
        if self.quality is not None:
            model = self.quality.model
            for one in (model, self.quality.baseline):
                facts[f"{METRICS[0]} of {one.model}"] = f"{one.metrics[METRICS[0]].mean:.4f}"
            facts["users with a hit"] = f"{100 * model.metrics[METRICS[1]].mean:.1f} %"
            coverage = model.catalogue[f"coverage@{LENGTH}"]
            facts["items in at least one list"] = f"{100 * coverage:.0f} %"
        for analysis in self.analyses:
            if analysis.name == "closer":
                change = analysis.facts["median_change_percent"]
                facts["median change of distances by translation"] = f"{change:.2g} %"
        return facts


def report_of(
    model: Recommender[Any],
    data: str | None = None,
    on_progress: OnProgress = lambda text: None,
    track: Callable[[Iterable[str]], Iterable[str]] = iter,
) -> ModelReport:
    """Compute all parts that are available; the report says why others are missing.

    Args:
        model: A fitted model.
        data: A path or the name of a dataset; by default the data that the model was fitted on.
        on_progress: Called with one line of text at every step.
        track: Yields `PARTS` and counts them, as progress bars do.
    """
    parts = iter(track(PARTS))
    on_progress(next(parts))
    origin, quality, missing = model.report_, None, {}
    if data is None and "dataset" not in origin:
        reason = "the model does not say what it was fitted on: name it with --data DATA"
        return ModelReport(model, missing={"data": reason})
    is_own = data is None or absolute_name(data) == origin.get("dataset")
    name = origin["dataset"] if data is None else data
    reading = origin.get("reading", {}) if is_own else {}
    protocol = origin.get("protocol") if is_own else None
    log, split = open_log_and_split(name, protocol, seed=origin.get("split_seed", 0), **reading)
    on_progress(next(parts))
    try:
        if model.users_ != log.users or model.items_ != log.items:
            raise DataError(f"{name} has other users or items than the model was fitted on.")
        held_out = is_own and bool(origin.get("held_out"))
        quality = evaluate_quality(model, split, held_out=held_out)
    except (DataError, EvaluationError) as error:
        missing["accuracy"] = str(error)
    on_progress(next(parts))
    subject = Subject({model.name: model}, log)
    analyses, others = subject.all(WHAT, on_progress)
    return ModelReport(model, log, quality, analyses, missing | others)


def _two_columns(title: str, column: str, values: Mapping[str, Any]) -> Table:
    rows = [[name, str(value)] for name, value in values.items()]
    return Table(title, [column, "value"], rows, align="ll")


def _add_accuracy(section: Section, quality: Quality) -> None:
    if quality.is_twin:
        section.add(
            "note",
            "The model was fitted on all events. Accuracy is that of a model with the same "
            "parameters and epochs, fitted without the held-out events.",
        )
    facts = {
        "protocol": quality.model.protocol,
        "held out": quality.model.split,
        "baseline": quality.baseline.model,
    }
    section.add("facts", facts)
    section.add("table", _quality_table(quality, "Accuracy on held-out events", accuracy=True))
    by_activity = _group_chart("by number of events of the user", quality.by_activity())
    by_popularity = _group_chart("by number of users of the item", quality.by_popularity())
    section.add("figures", [by_activity, by_popularity])


def _quality_table(quality: Quality, title: str, *, accuracy: bool) -> Table:
    is_accuracy = pl.col("metric").is_in([*METRICS, "AUC"])
    frame = quality.metrics().filter(is_accuracy if accuracy else ~is_accuracy)
    return Table.of(frame, title, [legend(frame["metric"].to_list())])


def _group_chart(groups: str, frame: pl.DataFrame) -> Drawing:
    return bars(
        [f"{row['group']} ({row['users']:,})" for row in frame.to_dicts()],
        {name: frame[name].to_list() for name in ("model", "baseline")},
        title=f"{METRICS[0]} {groups} (number of users evaluated)",
        axis=METRICS[0],
    )


def _add_example_users(section: Section, model: Recommender[Any], log: Interactions | None) -> None:
    known, categories = model.learned_.known, {}
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
        section.add("table", Table(f"User {user}", columns, lines, [note], align="lll"))


def _reason(model: Recommender[Any], user: Id, item: Id) -> str:
    try:
        effects = model.explain(user, item, top=2).effects
    except TransCFError:
        return "-"
    named = [f"{each.item_id} ({100 * each.share:.0f} %)" for each in effects if each.effect > 0]
    return ", ".join(named) or "-"
