"""Tables and analyses of TransCF's paper, computed again and compared with the printed figures.

The tables are studies, `studies/reproduce-*.toml`. Printed figures of the analyses are in
`published.toml`.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from math import prod
from pathlib import Path
from statistics import mean
from typing import Any

import polars as pl

from transcf.data.datasets import load_split
from transcf.data.filters import paper_filter
from transcf.data.interactions import Interactions
from transcf.data.json_text import to_json
from transcf.data.readers import open_data
from transcf.data.split import Split, draw_candidates
from transcf.data.splitters import leave_one_out
from transcf.errors import ParameterError, is_word, shown
from transcf.evaluation import Validation
from transcf.experiments.results import Comparison
from transcf.experiments.study import Study, load_study
from transcf.models.base import Recommender
from transcf.models.registry import create, preset_of
from transcf.models.training import Epoch, FitOptions
from transcf.paper.analysis import MAX_PAIRS, Analysis, OnProgress, Subject, write_texts

#: The tables.
TABLES = ("performance", "regularizers", "ablations")
#: Trials per model and seeds, by the name of the budget.
BUDGETS = {"quick": (4, 2), "full": (20, 5)}

#: Analyses of each dataset.
PLANS: dict[str, tuple[str, ...]] = {
    "delicious": ("closer",),
    "ciao": ("variety", "closer", "rating", "category", "map", "likeness"),
    "bookcrossing": ("variety", "closer", "rating"),
    "movietweetings": ("variety", "closer", "rating", "category", "map", "likeness"),
}
#: Names in tables, models, and whether they have the settings of the paper.
MODELS = {
    "TransCF": ("transcf", True),
    "CML": ("cml", True),
    "TransCF-none": ("transcf-none", True),
    "mixture": ("transcf-mixture", False),
}
#: Maximum number of triples of a fit with the paper's settings: limits epochs on large data.
_TRIPLES = 140_000_000
#: Columns with the name and the value of figures that the paper prints.
_COLUMNS = {
    "closer": ("pairs", "closer_percent"),
    "rating": ("vectors", "accuracy_percent"),
    "category": ("vectors", "accuracy_percent"),
}


def load_table(
    name: str,
    budget: str = "full",
    *,
    datasets: Sequence[str] | None = None,
    models: Sequence[str] | None = None,
    protocols: Sequence[str] | None = None,
    seeds: int | None = None,
) -> Study:
    """Return the study of a table (one of `TABLES`), for a budget (one of `BUDGETS`).

    `datasets` and `models` (by their names in the table) select a part of it; `protocols` and
    `seeds` replace those of the study and of the budget.

    Example:
        >>> study = load_table("performance", "quick", datasets=["delicious"])
        >>> study.seeds, len(study.models)
        (2, 19)
    """
    for what, word, words in (("table", name, TABLES), ("budget", budget, BUDGETS)):
        if not is_word(word, words):
            raise ParameterError(f"There is no {what} {shown(word)}: use {', '.join(words)}.")
    study = load_study(f"reproduce-{name}").only(datasets, models)
    trials, default_seeds = BUDGETS[budget]

    def with_trials(budget: Any) -> Any:
        return {**budget, "trials": trials} if isinstance(budget, Mapping) else budget

    return replace(
        study,
        seeds=seeds or default_seeds,
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
    if shape is None:
        return comparison
    return replace(comparison, about={**comparison.about, "shape": shape})


def compare_shape(
    study: Study, comparison: Comparison, metric: str = "HitRate@10"
) -> dict[str, Any] | None:
    """Compare the cells of a sweep with the printed ones.

    Returns:
        `rank correlation` (Spearman) of the cells; the best cell and its gain over the cell with
        the smallest values, printed and ours; for each parameter the mean at its largest value
        minus the mean at its smallest, printed and ours; the mean standard error of our cells.
        None unless all cells were computed and printed.
    """
    from scipy.stats import spearmanr

    printed = study.published(comparison.dataset, comparison.protocol)
    known = {name: entry[metric] for name, entry in printed.items()}
    ours = {name: entry[metric]["mean"] for name, entry in comparison.summaries.items()}
    cells = {plan.title: plan.params for plan in study.models if plan.title in known}
    axes = _axes(list(cells.values()))
    if not axes or not cells.keys() <= ours.keys():
        return None
    least = {name: min(values) for name, values in axes.items()}
    off = next(title for title, params in cells.items() if least.items() <= params.items())
    correlation, _ = spearmanr([known[t] for t in cells], [ours[t] for t in cells])
    shape: dict[str, Any] = {"rank correlation": round(float(correlation), 4)}
    for name, figures in (("printed", known), ("ours", ours)):
        best = max(cells, key=figures.__getitem__)
        shape[f"best cell, {name}"] = best
        shape[f"gain of the best cell, {name}"] = round(figures[best] - figures[off], 4)
        for axis, values in axes.items():
            most, none = (
                mean(figures[t] for t, params in cells.items() if params[axis] == end)
                for end in (max(values), min(values))
            )
            shape[f"effect of {axis}, {name}"] = round(most - none, 4)
    errors = [comparison.summaries[title][metric]["se"] for title in cells]
    return shape | {"standard error of a cell": round(mean(errors), 4)}


def _axes(cells: Sequence[Mapping[str, Any]]) -> dict[str, set[Any]]:
    """Return the values of the swept parameters; empty unless the grid is complete."""
    if len({frozenset(params) for params in cells}) != 1:
        return {}
    values = {name: {params[name] for params in cells} for name in cells[0]}
    swept = {name: found for name, found in values.items() if len(found) > 1}
    return swept if prod(map(len, swept.values())) == len(cells) else {}


@dataclass(frozen=True, eq=False)
class Reproduction:
    """Analyses of a dataset.

    Attributes:
        dataset: Name of the data.
        analyses: Those of the published model, then those of the mixture.
        models: Description of each fitted model, by name.
        seconds: Seconds of fitting, by name.
    """

    dataset: str
    analyses: list[Analysis]
    models: Mapping[str, str]
    seconds: Mapping[str, float]

    def beside(self) -> pl.DataFrame:
        """Return printed figures and ours: `analysis, figure, paper, ours`."""
        rows = []
        for name, printed in _published().get(self.dataset, {}).items():
            # The first of a name is that of the published model.
            found = next((each for each in self.analyses if each.name == name), None)
            ours = {} if found is None else _figures(found)
            rows += [(name, figure, value, ours.get(figure)) for figure, value in printed.items()]
        schema: Any = [("analysis", pl.String), ("figure", pl.String)]
        schema += [("paper", pl.Float64), ("ours", pl.Float64)]
        return pl.DataFrame(rows, schema, orient="row")

    def to_dict(self) -> dict[str, Any]:
        """JSON form."""
        return {
            "dataset": self.dataset,
            "models": dict(self.models),
            "fit_seconds": {name: round(value, 2) for name, value in self.seconds.items()},
            "beside_the_paper": self.beside().to_dicts(),
            "analyses": [found.to_dict() for found in self.analyses],
        }

    def write(self, folder: Path) -> list[Path]:
        """Write `analysis-DATASET.json` and an SVG file per chart, and return their paths."""
        texts = {f"analysis-{self.dataset}.json": to_json(self.to_dict()) + "\n"}
        for found in self.analyses:
            for drawing in found.figures:
                words = f"{self.dataset} {found.name} {drawing.title}".lower()
                texts[f"{re.sub(r'[^a-z0-9]+', '-', words).strip('-')}.svg"] = drawing.to_file()
        return write_texts(folder, texts)


def check_datasets(names: Iterable[str]) -> tuple[str, ...]:
    """Return the names of datasets, or raise a `ParameterError` for an unknown one."""
    found = tuple(name.strip() for name in names)
    for name in found:
        if name not in PLANS:
            raise ParameterError(
                f"There are no analyses of {shown(name)} to reproduce: use {', '.join(PLANS)}."
            )
    return found


def reproduce(
    dataset: str,
    *,
    number: int = MAX_PAIRS,
    random_state: int = 0,
    on_progress: OnProgress = lambda text: None,
) -> Reproduction:
    """Fit the models of the paper's analyses and the mixture, and run the analyses.

    Epochs are chosen on the validation part by the paper's protocol. Pairs are all events of the
    dataset (one of `PLANS`), including held-out ones, whose users and items are in the training
    part. `number` is the maximum number of pairs that random forests are fitted on.
    """
    (dataset,) = check_datasets([dataset])
    log, split = _data(dataset, random_state)
    models = {
        name: _fit(name, dataset, split, random_state, lambda t: on_progress(f"{dataset}: {t}"))
        for name in MODELS
    }
    subject = Subject(models, log, number=number, random_state=random_state)
    mixture = replace(subject, models={"mixture": models["mixture"]})
    mapped = replace(subject, models={name: models[name] for name in ("TransCF", "CML")})
    found = []
    for what in PLANS[dataset]:
        on_progress(f"{dataset}: {what}")
        found.append((mapped if what == "map" else subject).analyze(what))
    found += [mixture.analyze(what) for what in PLANS[dataset] if what in ("closer", "likeness")]
    words = {name: f"{model.name}, epoch {model.best_epoch_}" for name, model in models.items()}
    seconds = {name: float(model.report_["seconds"]) for name, model in models.items()}
    return Reproduction(dataset, found, words, seconds)


def _data(dataset: str, seed: int) -> tuple[Interactions, Split]:
    """Return all events, and a split with candidates: the authors' own if there is one."""
    if dataset in ("ciao", "delicious"):
        split = load_split(dataset)
        return Interactions.joined(split.train, split.validation, split.test), split
    log = open_data(dataset)
    by = "time"
    if dataset == "bookcrossing":
        log, by = paper_filter(log), "paper"
    return log, draw_candidates(leave_one_out(log, by=by, seed=seed), seed=seed)  # type: ignore[arg-type]


def _fit(
    name: str, dataset: str, split: Split, seed: int, on_progress: Callable[[str], None]
) -> Recommender[Any]:
    model, has_preset = MODELS[name]
    params = preset_of(model, "paper", dataset) if has_preset else {}
    if has_preset:
        most = _TRIPLES // (params["samples_per_user"] * split.train.n_users)
        params["epochs"] = max(1, min(params["epochs"], most))

    def on_epoch(epoch: Epoch[Any]) -> None:
        on_progress(f"{name}, epoch {epoch.number}")

    options = FitOptions(progress=False, on_epoch=on_epoch)
    made = create(model, **params, random_state=seed)
    return made.fit(split.train, Validation.of(split, "paper"), options)


def _figures(found: Analysis) -> dict[str, float]:
    """Return the figures of an analysis that the paper may print, by name."""
    if found.name not in _COLUMNS:
        return {name: value for name, value in found.facts.items() if isinstance(value, float)}
    names, values = _COLUMNS[found.name]
    return dict(found.frame.select(names, values).iter_rows())


@cache
def _published() -> dict[str, dict[str, dict[str, float]]]:
    text = files("transcf.paper").joinpath("published.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)
