"""The result of a search: `Tuning`, its trials and plots, and `Config`, settings in a TOML file."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from itertools import accumulate
from math import inf
from pathlib import Path
from typing import Any, Self

import polars as pl

from transcf.data.atomic import atomic_write
from transcf.data.files import path_of
from transcf.errors import MissingExtraError, ParameterError, TransCFError, shown
from transcf.experiments.search import (
    Space,
    State,
    Trial,
    distributions,
    memory_study,
    quiet_optuna,
    to_frozen,
)
from transcf.models.params import Number
from transcf.models.registry import canonical_name, create, current, model_class
from transcf.tables import Table


@dataclass(frozen=True)
class Tuning:
    """Trials of one model.

    Attributes:
        model: Name in the registry.
        params: Parameters of all trials.
        metric: Metric on validation data.
        trials: Trials in the order in which they finished.
        space: Search space.
        usual: Values of its parameters in the trial with the defaults.
        sampler: "tpe", "random" or "grid".
        study: Name of the study in the database; empty without a database.
        storage: The database.
        is_interrupted: Whether the search was interrupted.
    """

    model: str
    params: Mapping[str, Any]
    metric: str
    trials: Sequence[Trial]
    space: Space
    usual: Mapping[str, Any]
    sampler: str = "tpe"
    study: str = ""
    storage: str = ""
    is_interrupted: bool = False

    @property
    def best(self) -> Trial:
        """The first trial with the best metric; a `TransCFError` says that none is complete."""
        done = [trial for trial in self.trials if trial.state == "complete"]
        if not done:
            failed = [trial.reason for trial in self.trials if trial.state == "failed"]
            raise TransCFError(failed[0] if failed else "No trial was finished: allow for more.")
        return max(done, key=lambda trial: trial.figure or 0.0)

    @property
    def best_params(self) -> dict[str, Any]:
        """All parameters that are set in the best trial."""
        return {**self.params, **self.best.setting}

    @property
    def seconds(self) -> float:
        """Sum of the wall-clock times of all trials."""
        return sum(trial.seconds for trial in self.trials)

    def count(self, state: State) -> int:
        """Count the trials with a state."""
        return sum(trial.state == state for trial in self.trials)

    def config(self) -> Config:
        """Return the best settings, with how they were found, for a TOML file."""
        found = {
            "metric": self.metric,
            "figure": self.best.figure,
            "trials": len(self.trials),
            "sampler": self.sampler,
            "minutes": round(self.seconds / 60, 2),
        }
        return Config(self.model, self.best_params, found)

    def table(self) -> pl.DataFrame:
        """Return a row per trial: number, state, metric, epoch, seconds, settings, reason."""
        rows = [
            {
                "number": number,
                "state": trial.state,
                self.metric: trial.figure,
                "epoch": trial.epoch,
                "seconds": trial.seconds,
                **{**self.usual, **trial.setting},
                "reason": trial.reason,
            }
            for number, trial in enumerate(self.trials, start=1)
        ]
        return pl.DataFrame(rows, infer_schema_length=None)

    def _repr_html_(self) -> str:
        """Show the trials in notebooks, the best first."""
        trials = self.table().sort(self.metric, descending=True, nulls_last=True)
        title = f"{self.model}: {len(self.trials)} trials, by {self.metric} on validation data"
        return Table.of(trials, title)._repr_html_()

    def curve(self) -> list[float | None]:
        """Return the best metric after each trial; None until one is complete."""
        figures = [one.figure or 0.0 if one.state == "complete" else -inf for one in self.trials]
        return [None if best == -inf else best for best in accumulate(figures, max)]

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "model": self.model,
            "metric": self.metric,
            "figure": self.best.figure,
            "best": self.best_params,
            "epoch": self.best.epoch,
            "sampler": self.sampler,
            "trials": len(self.trials),
            **{state: self.count(state) for state in ("complete", "pruned", "failed")},
            "minutes": round(self.seconds / 60, 3),
            "study": self.study,
            "storage": self.storage,
            "interrupted": self.is_interrupted,
            "table": self.table().to_dicts(),
        }

    def write_plots(self, folder: Path) -> list[Path]:
        """Write Optuna's plots as SVG files: the history, and the importance of parameters.

        The importance (fANOVA) is left out unless two complete trials differ in their metric.
        """
        check_plots(folder)
        import matplotlib.pyplot as plt
        from optuna.importance import FanovaImportanceEvaluator
        from optuna.visualization import matplotlib as plots

        whole = distributions(self.space, self.usual)
        study = memory_study([to_frozen(trial, self.usual, whole) for trial in self.trials])
        written = []
        with quiet_optuna(), plt.rc_context({"svg.fonttype": "none"}):
            axes = {"history": plots.plot_optimization_history(study)}
            figures = {trial.figure for trial in self.trials if trial.state == "complete"}
            if self.space and len(figures) > 1:
                evaluator = FanovaImportanceEvaluator(seed=0)
                axes["importance"] = plots.plot_param_importances(study, evaluator=evaluator)
            for name, drawn in axes.items():
                written.append(folder / f"{name}.svg")
                with atomic_write(written[-1]) as path:
                    plt.figure(drawn.figure)
                    plt.savefig(path, format="svg", bbox_inches="tight")
                    plt.close()
        return written


def check_plots(folder: Path) -> None:
    """Check that plots can be written to a folder."""
    if folder.exists() and not folder.is_dir():
        raise ParameterError(f"{folder} is not a folder: name another one for plots.")
    if find_spec("matplotlib") is None:
        raise MissingExtraError("Plots of a search", "plots")


@dataclass(frozen=True)
class Config:
    """A model with its settings."""

    model: str  # name in the registry
    params: Mapping[str, Any] = field(default_factory=dict)  # parameters that are set
    #: How they were found; for information only.
    found: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def read(cls, path: str | Path, model: str | None = None) -> Self:
        """Read a TOML file; `model` is the expected model, if any."""
        file = path_of(path)
        if not file.is_file():
            raise ParameterError(f"There is no file {path}: `transcf tune --out {path}` writes it.")
        try:
            content = tomllib.loads(file.read_text(encoding="utf-8"))
        except ValueError as problem:
            raise ParameterError(f"{path} is not a TOML file: {problem}.") from problem
        about = content.get("model")
        if not isinstance(about, dict) or not isinstance(about.get("name"), str):
            raise ParameterError(f'{path} names no model: write [model] and name = "bpr" into it.')
        if unknown := sorted(about.keys() - {"name", "params"}):
            raise ParameterError(
                f"{path} has {unknown[0]!r} under [model], which holds name and params alone."
            )
        params = about.get("params", {})
        if not isinstance(params, dict):
            raise ParameterError(f"{path} has params = {shown(params)}: write [model.params].")
        name, params = current(about["name"], params)
        if model is not None and canonical_name(model) != name:
            raise ParameterError(
                f"{path} has settings of {name}, not of {canonical_name(model)}: name one model."
            )
        rules = model_class(name)._rules()
        params = {
            key: None if value == "none" and isinstance(rules.get(key), Number) else value
            for key, value in params.items()
        }
        create(name, **params)._check_params()
        return cls(name, params, content.get("found", {}))

    def to_toml(self) -> str:
        """Return the text of the file."""
        tables = {"model": {"name": self.model}, "model.params": self.params}
        tables |= {"found": self.found} if self.found else {}
        return "\n".join(
            "\n".join([f"[{name}]", *(f"{key} = {_toml(value)}" for key, value in values.items())])
            + "\n"
            for name, values in tables.items()
        )

    def write(self, path: str | Path) -> Path:
        """Write the file atomically."""
        with atomic_write(path_of(path)) as unfinished:
            unfinished.write_text(self.to_toml(), encoding="utf-8")
        return path_of(path)


def _toml(value: Any) -> str:
    """Format a value for TOML; except for None, as in JSON."""
    return '"none"' if value is None else json.dumps(value)
