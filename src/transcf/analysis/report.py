"""The report of a model: one page for somebody who decides whether to use it."""

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
from transcf.learning.settings import values_of
from transcf.legend import legend
from transcf.models.recommender import Recommender
from transcf.models.registry import name_and_params
from transcf.pages import Page, Section, Table
from transcf.pages.figures import bars

#: People who are shown, items of a list, and past items that are named.
_PEOPLE, _LIST, _PAST = 5, 5, 5
#: Facts about a training that the first table shows, where there are some.
_FACTS = {
    "fitted_on": "fitted on",
    "dataset": "data",
    "split": "held out",
    "best_epoch": "epoch",
    "seconds": "seconds of training",
}


@dataclass(frozen=True, eq=False)
class Findings:
    """What a report says.

    Attributes:
        model: The fitted model.
        log: Its data; None where they are not here.
        quality: How good it is; None where nothing can be held out.
        analyses: What its vectors encode.
        missing: Why other parts are missing, by name.
    """

    model: Recommender[Any]
    log: Interactions | None = None
    quality: Quality | None = None
    analyses: list[Analysis] = field(default_factory=list)
    missing: dict[str, str] = field(default_factory=dict)

    def page(self) -> Page:
        """Put the page together."""
        model = self.model
        known = model.learned_.known
        sizes = (
            counted(int(known.active.sum()), "user"),
            counted(int((known.item_counts > 0).sum()), "item"),
            counted(int(known.item_counts.sum()), "event"),
        )
        page = Page(f"{model.name}: a report", f"Learned from {', '.join(sizes)}.")
        _in_short(page.section("In short"), self)
        _origin(page.section("What it was fitted on"), model)
        if self.quality is not None:
            _quality(page.section("How good it is"), self.quality)
            _lists(page.section("What it shows to people"), self.quality)
        _people(page.section("Five people"), model, self.log)
        for found in self.analyses:
            _analysis(page.section(_TITLES.get(found.name, found.title)), found)
        _settings(page.section("All settings"), model)
        if self.missing:
            words = [f"{name}: {reason}" for name, reason in self.missing.items()]
            page.section("What is missing here").bullets(words)
        return page


_TITLES = {
    "variety": "Ratings and categories of users",
    "closer": "Do translations bring users closer?",
    "rating": "Do vectors know ratings?",
    "category": "Do vectors know categories?",
    "map": "A map of vectors",
    "likeness": "Which categories are alike",
    "tastes": "Tastes of one user",
}


#: Analyses whose figures say all that their tables would.
_IN_FIGURES = ("variety", "likeness")


def analyzed(
    model: Recommender[Any],
    log: Interactions,
    *,
    number: int = PAIRS,
    random_state: int = 0,
    on_progress: OnProgress = lambda text: None,
) -> tuple[list[Analysis], dict[str, str]]:
    """Run all analyses that model and data allow; say why others are missing."""
    subject = Subject({model.name: model}, log, number=number, random_state=random_state)
    return subject.all(ABOUT_MODELS, on_progress)


def _in_short(section: Section, found: Findings) -> None:
    figures: dict[str, str] = {}
    if found.quality is not None:
        metric = METRICS[0]
        ours, floor = (e.metrics[metric].mean for e in (found.quality.model, found.quality.floor))
        lists = found.quality.model.catalogue
        figures[f"{metric} of {found.quality.model.model}"] = f"{ours:.4f}"
        figures[f"{metric} of {found.quality.floor.model}"] = f"{floor:.4f}"
        figures["users with a hit"] = f"{100 * found.quality.model.metrics[METRICS[1]].mean:.1f} %"
        figures["items that are in anybody's list"] = f"{100 * lists[f'coverage@{LENGTH}']:.0f} %"
        section.text(_verdict(ours, floor, found.quality))
    for analysis in found.analyses:
        if analysis.name == "closer":
            change = analysis.facts["median_change_percent"]
            figures["change of a distance by translation"] = f"{change:.2g} %"
    if figures:
        section.key_figures(figures)
    if found.quality is None:
        section.note("Nothing could be held out to judge it by: see the end of the page.")


def _verdict(ours: float, floor: float, quality: Quality) -> str:
    who = "A twin with its settings" if quality.is_twin else "It"
    floor_name = quality.floor.model
    if floor and ours > floor:
        said = f"{who} ranks {ours / floor:.1f} times as well as the same list for everybody"
    else:
        said = f"{who} ranks no better than the same list for everybody"
    return f"{said} ({floor_name}), by {METRICS[0]} on {counted(quality.model.users, 'user')}."


def _origin(section: Section, model: Recommender[Any]) -> None:
    facts = {"model": model.name}
    facts |= {words: str(model.report_[k]) for k, words in _FACTS.items() if k in model.report_}
    own = {name: str(value) for name, value in name_and_params(model)[1].items()}
    facts |= {f"setting {name}": value for name, value in own.items()}
    notes = ["All other settings have their defaults; the end of the page lists them."]
    rows = list(map(list, facts.items()))
    section.table(Table("The model", ["", "value"], rows, notes, align="ll"))


def _settings(section: Section, model: Recommender[Any]) -> None:
    settings = [[name, str(value)] for name, value in values_of(model.settings_).items()]
    section.table(Table("Settings", ["setting", "value"], settings, align="ll"))


def _quality(section: Section, quality: Quality) -> None:
    if quality.is_twin:
        section.note(
            "The model has learned from everything, so a twin was judged: the same settings and "
            "epochs, fitted without the held-out events."
        )
    section.text(
        f"Protocol {quality.model.protocol}. Held out: {quality.model.split}. Every user's list is "
        f"ranked over all items that they do not have. The floor is {quality.floor.model}."
    )
    frame = quality.metrics()
    accuracy = frame.filter(pl.col("figure").is_in([*METRICS, "AUC"]))
    explained = legend(accuracy["figure"].to_list())
    section.table(Table.of(accuracy, "Accuracy on held-out events", [explained]))
    for what, found in (
        ("by how many events users had", quality.by_activity()),
        ("by how many users had the held-out item", quality.by_popularity()),
    ):
        section.figure(
            bars(
                [f"{row['group']} ({row['people']:,})" for row in found.to_dicts()],
                {name: found[name].to_list() for name in ("model", "floor")},
                title=f"{METRICS[0]} {what} (people judged)",
                axis=METRICS[0],
            )
        )


def _lists(section: Section, quality: Quality) -> None:
    frame = quality.metrics()
    shown = frame.filter(~pl.col("figure").is_in([*METRICS, "AUC"]))
    names = shown["figure"].to_list()
    explained = legend(names)
    section.table(Table.of(shown, f"Lists of {LENGTH} for everybody judged", [explained]))
    coverage, gini = (
        frame.filter(pl.col("figure") == f"{name}@{LENGTH}")["model"][0]
        for name in ("coverage", "gini")
    )
    section.text(
        f"{100 * coverage:.1f} % of the items are in anybody's list. A Gini coefficient of "
        f"{gini:.2f} says how unevenly they come up: 0 is all alike, near 1 is a few items for all."
    )


def _people(section: Section, model: Recommender[Any], log: Interactions | None) -> None:
    known = model.learned_.known
    rows = typical_users(known, _PEOPLE)
    kinds = _kinds(log)
    section.text(
        "Chosen by the length of their histories, short to long. What drew an item are the past "
        "items with the largest shares in its score."
    )
    for row in rows:
        user = known.users.ids(rows[rows == row])[0]
        history = known.items.ids(known.histories[row][::-1][:_PAST]).to_list()
        past = ", ".join(_named(item, kinds) for item in history)
        total = len(known.histories[row])
        listed = model.recommend(user, k=_LIST)["item_id"].to_list()
        lines = [
            [str(place), _named(item, kinds), _reason(model, user, item)]
            for place, item in enumerate(listed, start=1)
        ]
        has = f"Has {counted(total, 'item')}; the latest: {past}."
        title = f"User {user}"
        section.table(Table(title, ["", "recommended", "drawn by"], lines, [has], align="rll"))


def _reason(model: Recommender[Any], user: Id, item: Id) -> str:
    try:
        effects = model.explain(user, item, top=2).effects
    except TransCFError:
        return "-"
    drew = [f"{each.item_id} ({100 * each.share:.0f} %)" for each in effects if each.effect > 0]
    return ", ".join(drew) or "-"


def _kinds(log: Interactions | None) -> dict[Id, str]:
    """The categories of items, in words."""
    if log is None or log.categories is None:
        return {}
    joined = log.categories.group_by("item_id").agg(pl.col("category").sort().str.join(", "))
    return dict(joined.iter_rows())


def _named(item: Id, kinds: dict[Id, str]) -> str:
    return f"{item} ({kinds[item]})" if item in kinds else str(item)


def _analysis(section: Section, found: Analysis) -> None:
    for drawing in found.figures:
        section.figure(drawing)
    if found.name not in _IN_FIGURES:
        section.table(found.table)
        return
    for note in found.notes:
        section.text(note)
