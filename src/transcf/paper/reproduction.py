"""Tables and analyses of TransCF's paper, computed again and compared with the printed figures.

The tables are studies, `studies/reproduce-*.toml`. Printed figures of the analyses are in
`published.toml`.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from math import inf, prod
from pathlib import Path
from statistics import mean
from typing import Any, TypeAlias

import numpy as np
import polars as pl

from transcf.data.atomic import atomic_write_text
from transcf.data.datasets import load_split
from transcf.data.filters import paper_filter
from transcf.data.interactions import Interactions
from transcf.data.json_text import to_json
from transcf.data.readers import open_data
from transcf.data.split import Split, draw_candidates
from transcf.data.splitters import leave_one_out
from transcf.errors import check_word
from transcf.evaluation import Validation, evaluate
from transcf.experiments.experiment import OnProgress
from transcf.experiments.results import Comparison
from transcf.experiments.study import Study, load_study
from transcf.models.base import Recommender
from transcf.models.params import values_of
from transcf.models.registry import create, load, preset_of
from transcf.models.training import FitOptions
from transcf.paper.analysis import Subject
from transcf.paper.pairs import (
    FOLDS,
    HELD_OUT,
    LEARNED_FROM,
    Target,
    accuracies,
    balanced,
    closer,
    labels_of,
)
from transcf.paper.spaces import Analysis
from transcf.tables import Table

#: The tables.
TABLES = ("performance", "regularizers", "ablations")
#: Settings per model, how many of the best are run with more seeds, and seeds, by the name of the
#: budget.
BUDGETS = {"preset": (1, 0, 2), "quick": (4, 0, 2), "medium": (12, 3, 5), "full": (30, 3, 5)}

#: Analyses of each dataset.
PLANS: dict[str, tuple[str, ...]] = {
    "delicious": ("closer",),
    "ciao": ("variety", "closer", "rating", "category", "map", "likeness"),
    "bookcrossing": ("variety", "closer", "rating"),
    "movietweetings": ("variety", "closer", "rating", "category", "map", "likeness"),
}
#: Names in tables, and models.
MODELS = {"TransCF": "transcf", "CML": "cml", "mixture": "transcf-mixture"}
#: Forests: share of the pairs, trees, and how many of five folds are computed, by budget.
FORESTS = {
    "preset": (0.25, 100, 1),
    "quick": (0.25, 100, 1),
    "medium": (0.25, 300, FOLDS),
    "full": (1.0, 300, FOLDS),
}
#: Maximum number of triples of a fit with the paper's settings: limits epochs on large data.
_TRIPLES = 140_000_000
#: How to read the columns.
NOTES = (
    "closer: pairs that are closer after the translation; as published: training pairs, corrected: "
    "held-out pairs.",
    "rating, category: accuracy of forests on training pairs, with balanced classes (budget full: "
    "all pairs, 300 trees, five folds; quick: a quarter of the pairs, 100 trees, one of the folds)."
    " As published: drawn with replacement, so that copies of a pair are on both sides of a fold; "
    "corrected: every pair once, and no item in two folds.",
)


def load_table(
    name: str,
    budget: str = "full",
    *,
    datasets: Sequence[str] | None = None,
    models: Sequence[str] | None = None,
    protocols: Sequence[str] | None = None,
) -> Study:
    """Return the study of a table (one of `TABLES`), for a budget (one of `BUDGETS`).

    `datasets` and `models` (by their names in the table) select a part of it; `protocols` replace
    those of the study.
    """
    check_word("table", name, TABLES)
    check_word("budget", budget, BUDGETS)
    study = load_study(f"reproduce-{name}").only(datasets, models)
    trials, finalists, seeds = BUDGETS[budget]

    def with_trials(budget: Any) -> Any:
        if not isinstance(budget, Mapping):
            return budget
        return {**budget, "trials": trials, "finalists": finalists}

    return replace(
        study,
        seeds=seeds,
        budget=with_trials(study.budget),
        models=tuple(replace(plan, budget=with_trials(plan.budget)) for plan in study.models),
        datasets=tuple(
            replace(plan, protocols=list(plan.protocols if protocols is None else protocols))
            for plan in study.datasets
        ),
    )


def with_shape(study: Study, comparison: Comparison) -> Comparison:
    """Add `compare_shape` to a comparison, if there is one."""
    shape = compare_shape(study, comparison)
    return replace(comparison, about={**comparison.about, **({"shape": shape} if shape else {})})


def compare_shape(
    study: Study, comparison: Comparison, metric: str = "HitRate@10"
) -> dict[str, Any] | None:
    """Compare the cells of a sweep with the printed ones; None unless all are computed and printed.

    The result has the `rank correlation` (Spearman) of the cells; the best cell, and the effect of
    each parameter (mean at its largest value minus mean at its smallest), printed and ours.
    """
    from scipy.stats import spearmanr

    published = study.published(comparison.dataset, comparison.protocol)
    printed = {name: entry[metric] for name, entry in published.items()}
    ours = {name: entry[metric]["mean"] for name, entry in comparison.summaries.items()}
    cells = {plan.title: plan.params for plan in study.models if plan.title in printed}
    axes = _axes(list(cells.values()))
    if not axes or not cells.keys() <= ours.keys():
        return None
    correlation, _ = spearmanr([printed[t] for t in cells], [ours[t] for t in cells])
    shape: dict[str, Any] = {"rank correlation": round(float(correlation), 4)}
    for name, figures in (("printed", printed), ("ours", ours)):
        shape[f"best cell, {name}"] = max(cells, key=figures.__getitem__)
        for axis, values in axes.items():
            most, least = (
                mean(figures[t] for t, params in cells.items() if params[axis] == end)
                for end in (max(values), min(values))
            )
            shape[f"effect of {axis}, {name}"] = round(most - least, 4)
    return shape


def _axes(cells: Sequence[Mapping[str, Any]]) -> dict[str, set[Any]]:
    """Return the values of the swept parameters; empty unless the grid is complete."""
    if len({frozenset(params) for params in cells}) != 1:
        return {}
    values = {name: {params[name] for params in cells} for name in cells[0]}
    swept = {name: found for name, found in values.items() if len(found) > 1}
    return swept if prod(map(len, swept.values())) == len(cells) else {}


@dataclass(frozen=True, eq=False)
class Reproduction:
    """Analyses of a dataset: printed figures, the same computed as published, and corrected."""

    dataset: str  # name of the data
    budget: str  # one of `BUDGETS`
    rows: pl.DataFrame  # `analysis, figure, printed, as_published, corrected`, in per cent
    analyses: Sequence[Analysis]  # further analyses of the same models
    models: Mapping[str, Mapping[str, Any]]  # settings and accuracy of each fitted model, by name

    def to_dict(self) -> dict[str, Any]:
        """JSON form."""
        return {
            "dataset": self.dataset,
            "budget": self.budget,
            "models": self.models,
            "rows": self.rows.to_dicts(),
            "notes": NOTES,
            "analyses": [found.to_dict() for found in self.analyses],
        }

    @property
    def table(self) -> Table:
        """The rows as a table of text."""
        names = {name: name.replace("_", " ") for name in self.rows.columns}
        return Table.of(self.rows.rename(names), f"{self.dataset}: in per cent", NOTES, digits=2)

    def write(self, folder: Path) -> list[Path]:
        """Write `reproduce-analysis-DATASET.json` and an SVG file per chart; return their paths."""
        texts = {f"reproduce-analysis-{self.dataset}.json": to_json(self.to_dict()) + "\n"}
        for found in self.analyses:
            texts |= found.svg_files(f"{self.dataset}-{found.name}")
        return [atomic_write_text(folder / name, text) for name, text in texts.items()]


def reproduce(
    dataset: str,
    budget: str = "full",
    *,
    models: Path | None = None,
    on_progress: OnProgress = lambda text: None,
) -> Reproduction:
    """Fit the models of the paper's analyses and the mixture, and run the analyses.

    TransCF has the settings under which it is nearest to the published analyses
    (`published.toml`), or else those of its preset; the other models have their presets, with
    epochs chosen on the validation part by the paper's protocol.

    Budgets below "full" fit smaller forests (`FORESTS`). Fitted models are kept in the folder
    `models`, where later calls find them.
    """
    check_word("datasets", dataset, PLANS)
    check_word("budget", budget, BUDGETS)
    log, split = _data(dataset)
    fitted = {}
    for name in MODELS:
        on_progress(f"{dataset}: {name}")
        fitted[name] = _fitted(name, dataset, split, models)
    subject = Subject(fitted, log)
    ours: dict[str, _Figures] = {}
    analyses = []
    for what in PLANS[dataset]:
        on_progress(f"{dataset}: {what}")
        if what == "closer":
            ours[what] = _closeness(subject)
            analyses.append(subject.analyze(what))
        elif what in ("rating", "category"):
            ours[what] = _forests(subject, what, budget)  # type: ignore[arg-type]
        else:
            analyses.append(subject.analyze(what))
            facts = analyses[-1].facts.items()
            ours[what] = {n: {"as_published": v} for n, v in facts if isinstance(v, float)}
    return Reproduction(
        dataset,
        budget,
        _rows(ours, _published().get(dataset, {})),
        analyses,
        {name: _facts(model, split) for name, model in fitted.items()},
    )


#: Figures of one analysis: `as_published` and `corrected`, by name.
_Figures: TypeAlias = dict[str, dict[str, float]]


def _closeness(subject: Subject) -> _Figures:
    """Return shares of closer pairs: training pairs (as published), held-out pairs (corrected)."""
    found: _Figures = {}
    learned = subject.pairs.in_training
    for kind, some in (("as_published", learned), ("corrected", ~learned)):
        for name, space in subject.spaces.items():
            if not (space.has_translations and some.any()):
                continue
            shares = closer(space, subject.pairs.take(some))
            for pairs, percent in shares.frame.select("pairs", "closer_percent").iter_rows():
                if pairs not in (LEARNED_FROM, HELD_OUT):  # all of them are one or the other
                    found.setdefault(f"{name}: {pairs}", {})[kind] = percent
    return found


def _forests(subject: Subject, target: Target, budget: str) -> _Figures:
    """Return accuracies of forests on training pairs.

    As published: classes are balanced with copies, and folds are random. Corrected: every pair
    once, and no item is in two folds.
    """
    part, trees, folds = FORESTS[budget]
    pairs = subject.pairs.take(subject.pairs.in_training)
    pairs = pairs.at_most(int(part * len(pairs)), np.random.default_rng(0))
    _, labels = labels_of(pairs, target)
    found: _Figures = {}
    for kind, copies in (("as_published", True), ("corrected", False)):
        chosen = balanced(labels, inf, np.random.default_rng(0), copies=copies)
        scores = accuracies(
            subject.spaces,
            pairs.take(chosen),
            labels[chosen],
            by_item=not copies,
            trees=trees,
            folds=folds,
        )
        for name, (percent, _) in scores.items():
            found.setdefault(name, {})[kind] = percent
    return found


def _rows(ours: Mapping[str, _Figures], printed: Mapping[str, Mapping[str, float]]) -> pl.DataFrame:
    rows = []
    for analysis, figures in ours.items():
        known = printed.get(analysis, {})
        for name in dict.fromkeys([*known, *figures]):
            own = figures.get(name, {})
            values = (known.get(name), own.get("as_published"), own.get("corrected"))
            rows.append((analysis, name, *values))
    columns = ["analysis", "figure", "printed", "as_published", "corrected"]
    return pl.DataFrame(rows, columns, orient="row", infer_schema_length=None)


def _facts(model: Recommender[Any], split: Split) -> dict[str, Any]:
    accuracy = evaluate(model, split, "paper").metrics["HitRate@10"].mean
    seconds = round(float(model.report_["seconds"]), 2)
    facts = {"epoch": model.best_epoch_, "HitRate@10": round(accuracy, 4), "fit_seconds": seconds}
    return facts | {"settings": values_of(model.settings)}


def _data(dataset: str) -> tuple[Interactions, Split]:
    """Return all events, and a split with candidates: the authors' own if there is one."""
    if dataset in ("ciao", "delicious"):
        split = load_split(dataset)
        return Interactions.joined(split.train, split.validation, split.test), split
    log = open_data(dataset)
    by = "time"
    if dataset == "bookcrossing":
        log, by = paper_filter(log), "paper"
    return log, draw_candidates(leave_one_out(log, by=by))  # type: ignore[arg-type]


def _fitted(name: str, dataset: str, split: Split, folder: Path | None) -> Recommender[Any]:
    """Fit a model, or load it from the folder where an earlier call saved it."""
    params = preset_of(MODELS[name], "paper", dataset)
    published = _published().get(dataset, {}).get("settings", {}) if name == "TransCF" else {}
    params |= published
    if "samples_per_user" in params:
        most = _TRIPLES // (params["samples_per_user"] * split.train.n_users)
        params["epochs"] = max(1, min(params["epochs"], most))
    made = create(MODELS[name], **params, random_state=0)
    place = None if folder is None else folder / f"{dataset}-{name}"
    if place is not None and place.exists():
        stored = load(place)
        if values_of(stored.settings) == values_of(made.settings):
            return stored
    # The epoch of published settings is one of them.
    validation = None if published else Validation.of(split, "paper")
    made.fit(split.train, validation, FitOptions(progress=False))
    if place is not None:
        made.save(place, overwrite=True)
    return made


@cache
def _published() -> dict[str, dict[str, dict[str, float]]]:
    text = files("transcf.paper").joinpath("published.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)
