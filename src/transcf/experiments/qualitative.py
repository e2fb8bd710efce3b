"""The paper's analyses of translations on its data and more, beside the figures that it prints."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import polars as pl

from transcf.analysis.classes import PAIRS
from transcf.analysis.result import Analysis
from transcf.analysis.suite import OnProgress, Subject
from transcf.data.atomic import atomic_write
from transcf.data.candidates import draw_candidates
from transcf.data.datasets import load_split
from transcf.data.filters import paper_filter
from transcf.data.interactions import Interactions
from transcf.data.json_text import to_json
from transcf.data.readers import open_data
from transcf.data.split import Split
from transcf.data.splitters import leave_one_out
from transcf.errors import ParameterError, shown
from transcf.evaluation import Validation
from transcf.models.base import Recommender
from transcf.models.registry import create, preset_of
from transcf.models.training import Epoch, FitOptions

#: What is run on each dataset.
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
#: Most triples of a training with the paper's settings: on large data there are fewer epochs.
_TRIPLES = 140_000_000
#: The column that a published figure stands beside, and the one that names the row.
_COLUMNS = {
    "closer": ("pairs", "closer_percent"),
    "rating": ("vectors", "accuracy_percent"),
    "category": ("vectors", "accuracy_percent"),
}


@dataclass(frozen=True, eq=False)
class Reproduction:
    """What was found on a dataset.

    Attributes:
        dataset: Its name.
        analyses: What was found, the mixture's own after the published form's.
        models: What was fitted, in words, by name.
        seconds: How long fitting took, by name.
    """

    dataset: str
    analyses: list[Analysis]
    models: Mapping[str, str]
    seconds: Mapping[str, float]

    def beside(self) -> pl.DataFrame:
        """Return what the paper prints and what came out: `analysis, figure, paper, ours`."""
        rows = []
        for name, printed in _published().get(self.dataset, {}).items():
            # The first of a name is that of the published form.
            found = next((each for each in self.analyses if each.name == name), None)
            ours = {} if found is None else _figures(found)
            rows += [
                {"analysis": name, "figure": figure, "paper": value, "ours": ours.get(figure)}
                for figure, value in printed.items()
            ]
        kinds = {
            "analysis": pl.String,
            "figure": pl.String,
            "paper": pl.Float64,
            "ours": pl.Float64,
        }
        return pl.DataFrame(rows, kinds)

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
        """Write `analysis-DATASET.json`, and figures as SVG beside it; return what was written."""
        texts = {f"analysis-{self.dataset}.json": to_json(self.to_dict()) + "\n"}
        for found in self.analyses:
            for drawing in found.figures:
                words = f"{self.dataset} {found.name} {drawing.title}".lower()
                name = re.sub(r"[^a-z0-9]+", "-", words).strip("-")
                texts[f"{name}.svg"] = drawing.to_file()
        for name, text in texts.items():
            with atomic_write(folder / name) as path:
                path.write_text(text, encoding="utf-8")
        return [folder / name for name in texts]


def check_datasets(names: Iterable[str]) -> tuple[str, ...]:
    """Return the names of datasets, or raise a `ParameterError` for the first that is none."""
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
    number: int = PAIRS,
    random_state: int = 0,
    on_progress: OnProgress = lambda text: None,
) -> Reproduction:
    """Fit the models of the paper's analyses and the mixture, and run the analyses.

    Epochs are chosen on the validation part by the paper's protocol. Pairs are all events of the
    dataset that the models can place, held-out ones included.

    Args:
        dataset: One of `PLANS`.
        number: Most pairs that random forests look at.
        random_state: Of splits, models and draws.
        on_progress: Called with one line of text at every step.
    """
    (dataset,) = check_datasets([dataset])
    log, split = _data(dataset, random_state)
    models = {
        name: _fit(name, dataset, split, random_state, lambda t: on_progress(f"{dataset}: {t}"))
        for name in MODELS
    }
    subject = Subject(models, log, number=number, random_state=random_state)
    own = replace(subject, models={"mixture": models["mixture"]})
    drawn = replace(subject, models={name: models[name] for name in ("TransCF", "CML")})
    found = []
    for what in PLANS[dataset]:
        on_progress(f"{dataset}: {what}")
        found.append((drawn if what == "map" else subject).analyze(what))
    found += [own.analyze(what) for what in PLANS[dataset] if what in ("closer", "likeness")]
    words = {name: f"{model.name}, epoch {model.best_epoch_}" for name, model in models.items()}
    seconds = {name: float(model.report_["seconds"]) for name, model in models.items()}
    return Reproduction(dataset, found, words, seconds)


def _data(dataset: str, seed: int) -> tuple[Interactions, Split]:
    """Return all events and a split with candidates: the authors' own where there is one."""
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
    text = files("transcf.experiments").joinpath("published.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)
