"""The report of a model: data, accuracy, recommendation lists, example users, analyses."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import polars as pl

from transcf.analysis.classes import PAIRS
from transcf.analysis.quality import LENGTH, METRICS, Quality
from transcf.analysis.result import Analysis
from transcf.analysis.suite import ABOUT_MODELS, OnProgress, Subject, typical_users
from transcf.data.ids import Id
from transcf.data.interactions import Interactions
from transcf.data.report import counted
from transcf.errors import TransCFError
from transcf.legend import legend
from transcf.models.base import Recommender
from transcf.models.params import values_of
from transcf.models.registry import name_and_params
from transcf.pages import Drawing, Page, Section, Table
from transcf.pages.figures import bars

#: Number of example users, of recommended items, and of history items shown for each.
_USERS, _RECOMMENDED, _HISTORY = 5, 5, 5
#: Labels of entries of `report_`.
_TRAINING = {
    "fitted_on": "fitted on",
    "dataset": "data",
    "split": "held out",
    "best_epoch": "epoch",
    "seconds": "seconds of training",
}
_TITLES = {
    "variety": "Ratings and categories of users",
    "closer": "Distances before and after translation",
    "rating": "Ratings predicted from vectors",
    "category": "Categories predicted from vectors",
    "map": "A map of vectors",
    "likeness": "Similarity of categories",
    "tastes": "Categories of one user",
}
#: Analyses whose charts show all values of their tables.
_CHARTS_ONLY = ("variety", "likeness")


@dataclass(frozen=True, eq=False)
class Findings:
    """The content of a report.

    Attributes:
        model: The fitted model.
        log: Its data; None if they are not available.
        quality: Its accuracy on held-out events; None if nothing can be held out.
        analyses: Analyses of its vectors.
        missing: Why other parts are not available, by name.
    """

    model: Recommender[Any]
    log: Interactions | None = None
    quality: Quality | None = None
    analyses: list[Analysis] = field(default_factory=list)
    missing: dict[str, str] = field(default_factory=dict)

    def page(self) -> Page:
        """Make the report.

        Raises:
            MissingExtraError: matplotlib is not installed.
        """
        known = self.model.learned_.known
        sizes = (
            counted(int(known.active.sum()), "user"),
            counted(int((known.item_counts > 0).sum()), "item"),
            counted(int(known.item_counts.sum()), "event"),
        )
        page = Page(f"{self.model.name}: model report", f"Fitted on {', '.join(sizes)}.")
        summary = page.section("Summary").add("facts", _key_figures(self))
        if self.quality is None:
            summary.add("note", "There is no accuracy: the last section says why.")
        page.section("Model").add("table", _model_table(self.model))
        if self.quality is not None:
            _accuracy(page.section("Accuracy"), self.quality)
            lists = _quality_table(self.quality, f"Lists of {LENGTH} items", accuracy=False)
            page.section("Recommendation lists").add("table", lists)
        _example_users(page.section("Example users"), self.model, self.log)
        for found in self.analyses:
            section = page.section(_TITLES.get(found.name, found.title))
            section.add("figures", found.figures)
            if found.name in _CHARTS_ONLY:
                section.add("list", found.notes)
            else:
                section.add("table", found.table)
        settings = [[name, str(value)] for name, value in values_of(self.model.settings_).items()]
        table = Table("All parameters", ["parameter", "value"], settings, align="ll")
        page.section("Parameters").add("table", table)
        if self.missing:
            reasons = [f"{name}: {reason}" for name, reason in self.missing.items()]
            page.section("Not available").add("list", reasons)
        return page


def analyzed(
    model: Recommender[Any],
    log: Interactions,
    *,
    number: int = PAIRS,
    random_state: int = 0,
    on_progress: OnProgress = lambda text: None,
) -> tuple[list[Analysis], dict[str, str]]:
    """Run all analyses that model and data allow; return them and why others are missing."""
    subject = Subject({model.name: model}, log, number=number, random_state=random_state)
    return subject.all(ABOUT_MODELS, on_progress)


def _key_figures(found: Findings) -> dict[str, str]:
    facts: dict[str, str] = {}
    if found.quality is not None:
        model, floor = found.quality.model, found.quality.floor
        for one in (model, floor):
            facts[f"{METRICS[0]} of {one.model}"] = f"{one.metrics[METRICS[0]].mean:.4f}"
        facts["users with a hit"] = f"{100 * model.metrics[METRICS[1]].mean:.1f} %"
        facts["items in at least one list"] = f"{100 * model.catalogue[f'coverage@{LENGTH}']:.0f} %"
    for analysis in found.analyses:
        if analysis.name == "closer":
            change = analysis.facts["median_change_percent"]
            facts["median change of distances by translation"] = f"{change:.2g} %"
    return facts


def _model_table(model: Recommender[Any]) -> Table:
    facts = {"model": model.name}
    facts |= {label: str(model.report_[k]) for k, label in _TRAINING.items() if k in model.report_}
    facts |= {f"parameter {name}": str(v) for name, v in name_and_params(model)[1].items()}
    notes = ["Other parameters have their defaults; they are listed below."]
    return Table("Model and data", ["", "value"], list(map(list, facts.items())), notes, align="ll")


def _accuracy(section: Section, quality: Quality) -> None:
    if quality.is_twin:
        section.add(
            "note",
            "The model was fitted on all events. Accuracy is that of a model with the same "
            "parameters and epochs, fitted without the held-out events.",
        )
    section.add(
        "text",
        f"Protocol {quality.model.protocol}. Held out: {quality.model.split}. All items that a "
        f"user does not have are ranked. The baseline is {quality.floor.model}.",
    )
    section.add("table", _quality_table(quality, "Accuracy on held-out events", accuracy=True))
    by_activity = _group_chart("by number of events of the user", quality.by_activity())
    by_popularity = _group_chart("by number of users of the item", quality.by_popularity())
    section.add("figures", [by_activity, by_popularity])


def _quality_table(quality: Quality, title: str, *, accuracy: bool) -> Table:
    is_accuracy = pl.col("figure").is_in([*METRICS, "AUC"])
    frame = quality.metrics().filter(is_accuracy if accuracy else ~is_accuracy)
    notes = [legend(frame["figure"].to_list())]
    return Table.of(frame.rename({"figure": "metric", "floor": "baseline"}), title, notes)


def _group_chart(groups: str, frame: pl.DataFrame) -> Drawing:
    return bars(
        [f"{row['group']} ({row['people']:,})" for row in frame.to_dicts()],
        {"model": frame["model"].to_list(), "baseline": frame["floor"].to_list()},
        title=f"{METRICS[0]} {groups} (number of users evaluated)",
        axis=METRICS[0],
    )


def _example_users(section: Section, model: Recommender[Any], log: Interactions | None) -> None:
    known = model.learned_.known
    rows = typical_users(known, _USERS)
    categories = _categories(log)
    section.add(
        "text",
        "Chosen by the length of their histories, short to long. Explained by: the history items "
        "with the largest shares of the score.",
    )
    for row in rows:
        user = known.users.ids(rows[rows == row])[0]
        history = known.items.ids(known.histories[row][::-1][:_HISTORY]).to_list()
        latest = ", ".join(_named(item, categories) for item in history)
        recommended = model.recommend(user, k=_RECOMMENDED)["item_id"].to_list()
        lines = [
            [str(place), _named(item, categories), _reason(model, user, item)]
            for place, item in enumerate(recommended, start=1)
        ]
        note = f"{counted(len(known.histories[row]), 'item')} in the history; the latest: {latest}."
        columns = ["rank", "recommended", "explained by"]
        section.add("table", Table(f"User {user}", columns, lines, [note], align="lll"))


def _reason(model: Recommender[Any], user: Id, item: Id) -> str:
    try:
        effects = model.explain(user, item, top=2).effects
    except TransCFError:
        return "-"
    named = [f"{each.item_id} ({100 * each.share:.0f} %)" for each in effects if each.effect > 0]
    return ", ".join(named) or "-"


def _categories(log: Interactions | None) -> dict[Id, str]:
    """Return the categories of each item, joined by commas."""
    if log is None or log.categories is None:
        return {}
    joined = log.categories.group_by("item_id").agg(pl.col("category").sort().str.join(", "))
    return dict(joined.iter_rows())


def _named(item: Id, categories: dict[Id, str]) -> str:
    return f"{item} ({categories[item]})" if item in categories else str(item)
