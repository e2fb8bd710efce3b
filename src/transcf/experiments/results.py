"""Results of a run, of a candidate over all seeds, of a table and of a study; their JSON forms.

`--json` prints the JSON form and `--out FILE.json` writes it. Tables and reports are made from the
same classes, whether the results were computed here or read from a file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from math import nan
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING, Any, Self

import polars as pl

from transcf import __version__
from transcf.data.atomic import atomic_write_text
from transcf.data.files import path_of
from transcf.data.json_text import to_json
from transcf.data.report import counted
from transcf.errors import DivergenceError, TransCFError
from transcf.evaluation import Evaluation, average_seeds, paired_tests, summarize_seeds
from transcf.evaluation.results import LEVEL
from transcf.models.base import Recommender
from transcf.models.params import values_of
from transcf.tables import Table, legend, text_of

if TYPE_CHECKING:
    from transcf.experiments.run import EvalConfig

#: Version of the format of files of results.
FORMAT = 1
#: Classes of models that are not personalized.
TRIVIAL = ("Popularity", "RecentPopularity", "InversePopularity", "Random")
#: The baseline that is added to tables of data with times.
TIMED_BASELINE = "recent-popularity"
SAMPLED_NOTE = (
    "Sampled candidates favour models that rank rare items first: compare with inverse-popularity "
    "and with the full ranking."
)
CHOSEN_HERE_NOTE = (
    "Optimistic: these are figures of the validation part, which also chose epochs and settings."
)
#: Fields of `CandidateResult` that all its evaluations share.
_SHARED = ("users", "protocol", "ties", "subset", "split", "skipped")
#: Fields of `CandidateResult` with other names in the JSON form.
_KEYS = {"name": "model", "kind": "class", "size": "bytes", "spent": "spent_seconds"}


@dataclass(frozen=True, eq=False)
class RunResult:
    """Result of one run; it has all that tables need, so that the model can be deleted."""

    model: str  # class
    parameters: Mapping[str, Any] = field(default_factory=dict)
    seconds: float = 0.0  # of fitting, by wall clock; the sum if a model is fitted twice
    parts: Mapping[str, float] = field(default_factory=dict)  # seconds of training and validation
    spent: float = 0.0  # seconds of the whole run, evaluation included
    validation: float | None = None  # metric on the validation part; None if it was not computed
    best_epoch: int | None = None  # the epoch that was kept; None for models without epochs
    curve: Sequence[Mapping[str, Any]] = ()  # epoch, loss and metric (None if not validated)
    n_bytes: int = 0  # of the fitted model
    chooses: bool = False  # whether the model chose something on validation data by itself
    evaluation: Evaluation | None = None  # None for a trial
    full_ranking: Evaluation | None = None  # if the protocol samples candidates
    error: TransCFError | None = None  # why there are no results
    stored: bool = False  # whether the result is from the cache

    @classmethod
    def of(cls, model: Recommender[Any], **found: Any) -> Self:
        """Add the properties of a fitted model to what was measured."""
        return cls(
            type(model).__name__,
            values_of(model.settings_),
            best_epoch=model.best_epoch_,
            n_bytes=sum(array.nbytes for array in model.learned_.arrays().values()),
            chooses=model._chooses(model.learned_.known.timed),
            **found,
        )

    @classmethod
    def failed(cls, model: Recommender[Any], error: TransCFError) -> Self:
        """Return the result of a model that could not be fitted."""
        return cls(type(model).__name__, values_of(model.settings), error=error)


#: Files with the metrics of users, by the part of a result that has them.
FILES = {"evaluation": "users.parquet", "full_ranking": "full.parquet"}
#: Parts of an evaluation other than the metrics of users.
_PARTS = ("model", "protocol", "ties", "subset", "skipped", "catalogue", "note", "split")


def to_dict(result: RunResult) -> dict[str, Any]:
    """Return the JSON form, without the metrics of users."""
    content = {one.name: getattr(result, one.name) for one in fields(result)}
    del content["stored"]
    content["error"] = None if result.error is None else str(result.error)
    for name in FILES:
        if (found := content[name]) is not None:
            content[name] = {key: getattr(found, key) for key in _PARTS}
    return content


def from_parts(content: Mapping[str, Any], files: Mapping[str, bytes]) -> RunResult:
    """Read a result from its JSON form and its files; older ones have more values."""
    read = {one.name: content[one.name] for one in fields(RunResult) if one.name != "stored"}
    read["stored"] = True
    if content["error"] is not None:
        read["error"] = DivergenceError(content["error"])
    for name, file in FILES.items():
        if (about := content[name]) is not None:
            figures = {
                n: nan if value is None else value for n, value in about["catalogue"].items()
            }
            table = pl.read_parquet(files[file])
            read[name] = Evaluation(**{**about, "catalogue": figures, "per_user": table})
    return RunResult(**read)


@dataclass(frozen=True, eq=False)
class CandidateResult:
    """Results of a candidate: one line of a table. Means are over the seeds."""

    name: str
    kind: str  # class of the model
    parameters: Mapping[str, Any]  # with the first seed
    metrics: dict[str, dict[str, float]]  # mean, sd over seeds and se over users, by metric
    runs: int  # number of evaluated seeds
    users: int  # number of evaluated users
    validation: float | None  # metric on the validation part; None if it was not computed
    chosen: Mapping[str, Any]  # parameters that were chosen on validation data
    tried: int  # number of trials that could be trained
    seconds: float  # of one whole fit
    notes: Sequence[str]  # warnings that belong to the figures
    protocol: str = ""
    ties: str = ""
    subset: str = "test"
    split: str = ""
    skipped: Mapping[str, int] = field(default_factory=dict)
    untrained: Sequence[str] = ()  # errors of the other trials
    minutes: float = 0.0  # of all trials, or of all runs if there were no trials
    spent: float | None = None  # seconds of all trials and runs
    parts: Mapping[str, float] = field(default_factory=dict)  # seconds of training and validation
    catalogue: Mapping[str, float] = field(default_factory=dict)  # metrics of whole lists
    full_ranking: Mapping[str, Mapping[str, float]] = field(default_factory=dict)  # if sampled
    curve: Sequence[Mapping[str, Any]] = ()  # epoch, loss and metric, with the first seed
    best_epochs: Sequence[int | None] = ()  # by seed
    size: int | None = None  # bytes of the fitted model
    cells: int = 0  # number of trials and seeds
    stored: int = 0  # number of them that were in the cache
    trials: Sequence[RunResult] = ()  # of all parameters that were tried, if there was a choice
    results: Sequence[RunResult] = ()  # by seed; not in the JSON form

    @classmethod
    def of(
        cls,
        name: str,
        results: Sequence[RunResult],
        chosen: Mapping[str, Any] | None = None,
        trials: Sequence[RunResult] = (),
    ) -> Self:
        """Summarize the runs of a candidate, one for each seed."""
        evaluations = [run.evaluation for run in results if run.evaluation is not None]
        first, done, every = evaluations[0], results[0], (*trials, *results)
        full = [run.full_ranking for run in results if run.full_ranking is not None]
        validated = [run.validation for run in results if run.validation is not None]
        untrained = [str(run.error) for run in trials if run.error is not None]
        seeds = [run.parameters.get("random_state") for run in trials]
        # Finalists are tried with several seeds.
        tried = sum(seed == seeds[0] for seed in seeds) - len(untrained) or 1
        chosen_here = first.subset == "validation" and (tried > 1 or done.chooses)
        notes = [SAMPLED_NOTE] * bool(full) + [CHOSEN_HERE_NOTE] * chosen_here
        notes += [first.note] * bool(first.note)
        notes += [f"{name}: a setting did not train: {reason}" for reason in untrained]
        return cls(
            name=name,
            kind=done.model,
            parameters=dict(done.parameters),
            metrics=summarize_seeds(evaluations),
            runs=len(evaluations),
            **{name: getattr(first, name) for name in _SHARED},
            validation=mean(validated) if validated else None,
            chosen=dict(chosen or {}),
            tried=tried,
            seconds=round(mean(run.seconds for run in results), 3),
            notes=notes,
            untrained=untrained,
            minutes=round(sum(run.spent for run in trials or results) / 60, 3),
            spent=round(sum(run.spent for run in every), 3),
            parts={part: round(mean(run.parts[part] for run in results), 3) for part in done.parts},
            catalogue={
                key: mean(found.catalogue[key] for found in evaluations) for key in first.catalogue
            },
            full_ranking=average_seeds(full, name).to_dict()["metrics"] if full else {},
            curve=list(done.curve),
            best_epochs=[run.best_epoch for run in results],
            size=done.n_bytes,
            cells=len(every),
            stored=sum(run.stored for run in every),
            trials=trials,
            results=results,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        values = {_KEYS.get(one.name, one.name): getattr(self, one.name) for one in fields(self)}
        del values["results"], values["parts"]
        if not self.full_ranking:
            del values["full_ranking"]
        return {**values, **self.parts, "trials": _trials(self.trials)}

    def table(self, dataset: str) -> Table:
        """Return one row per metric, with figures of the full ranking if candidates are sampled."""
        several = self.runs > 1
        rows = [
            [name, text_of(found["mean"]), text_of(found["se"])]
            + [text_of(found["sd"] if several else None)]
            + ([text_of(self.full_ranking[name]["mean"])] if self.full_ranking else [])
            for name, found in self.metrics.items()
        ]
        title = f"{self.name} on {dataset}: {self.protocol} protocol, {self.subset}, "
        title += f"{counted(self.users, 'user')}, {self.ties} ties"
        title += f", {self.runs} runs" if several else ""
        skipped = ", ".join(f"{reason} {count:,}" for reason, count in self.skipped.items())
        explained = legend(
            [*self.metrics, *self.catalogue],
            "se = standard error over users, what another sample of users would change",
            "sd = spread of the seeds' means",
        )
        cached = f"; {self.stored} of {self.cells} from the store of runs" if self.stored else ""
        notes = [
            ", ".join(f"{name} {value:.4g}" for name, value in self.catalogue.items()),
            f"held out: {self.split}",
            f"skipped: {skipped or 'none'}",
            explained,
            *self.notes,
            f"fitted in {self.seconds:.1f} s{cached}",
        ]
        columns = ["metric", "mean", "se (users)", "sd (seeds)"]
        columns += ["full ranking"] if self.full_ranking else []
        return Table(title, columns, rows, [note for note in notes if note])

    @property
    def first(self) -> RunResult:
        """The result of the first seed."""
        return self.results[0]

    @property
    def evaluations(self) -> list[Evaluation]:
        """The evaluations, one for each seed."""
        return [found.evaluation for found in self.results if found.evaluation is not None]

    def averaged(self) -> Evaluation:
        """One evaluation with the metrics of each user averaged over the seeds."""
        return average_seeds(self.evaluations, self.name)


def _trials(trials: Sequence[RunResult]) -> list[dict[str, Any]]:
    """Return the results of trials, with the parameters in which they differ."""
    names = dict.fromkeys(name for found in trials for name in found.parameters)
    free = [n for n in names if len({str(found.parameters.get(n)) for found in trials}) > 1]
    return [
        {
            "parameters": {name: found.parameters.get(name) for name in free},
            "validation": found.validation,
            "seconds": found.spent,
            "error": None if found.error is None else str(found.error),
        }
        for found in trials
    ]


@dataclass(frozen=True, eq=False)
class Comparison:
    """Results of several models on the same split: one table.

    Attributes:
        dataset: Name of the data.
        config: How models were evaluated.
        metric: Metric of the paired tests.
        runs: One for each model, in the given order.
        failures: Errors of the other models by name; the last one may be an interruption.
        split: Description of the held-out data.
        about: Of a study: `filter`, `published` values by model, and `difference` from the
            published data.
    """

    dataset: str
    config: EvalConfig
    metric: str
    runs: Sequence[CandidateResult]
    failures: Mapping[str, Any] = field(default_factory=dict)
    split: str = "not said"
    about: Mapping[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "dataset": self.dataset,
            "split": self.split,
            "metric": self.metric,
            "best": self.best(self.metric) if self.runs else None,
            "indistinguishable": self.indistinguishable,
            "models": [done.to_dict() for done in self.runs],
            "failures": {name: str(error) for name, error in self.failures.items()},
            "tests": self.tests.to_dicts(),
            "protocol": self.protocol,
            **self.about,
        }

    @property
    def protocol(self) -> str:
        """Name of the protocol."""
        return self.config.protocol or (self.runs[0].protocol if self.runs else "")

    @property
    def title(self) -> str:
        """Dataset and protocol."""
        return f"{self.dataset} ({self.protocol})" if self.protocol else self.dataset

    @property
    def is_interrupted(self) -> bool:
        """Whether it was interrupted before all models were run."""
        return any(isinstance(error, KeyboardInterrupt) for error in self.failures.values())

    @property
    def warnings(self) -> list[str]:
        """Why models are missing, and notes on the figures."""
        found = [f"{name} is missing: {error}" for name, error in self.failures.items()]
        found += [note for done in self.runs for note in done.notes]
        return list(dict.fromkeys(filter(None, [*found, self.about.get("difference")])))

    @cached_property
    def summaries(self) -> dict[str, dict[str, dict[str, float]]]:
        """`mean`, `sd` and `se` of every metric of every model."""
        return {done.name: done.metrics for done in self.runs}

    def named(self, name: str) -> CandidateResult | None:
        """Return the result of a model, or None."""
        return next((done for done in self.runs if done.name == name), None)

    def published(self, name: str) -> Mapping[str, float]:
        """Return the published values of a model, by metric."""
        found: Mapping[str, float] = self.about.get("published", {}).get(name, {})
        return found

    @cached_property
    def tests(self) -> pl.DataFrame:
        """Paired tests of all pairs, on the metrics of users averaged over seeds."""
        if len(self.runs) < 2:
            return pl.DataFrame()
        return paired_tests([done.averaged() for done in self.runs], self.metric)

    def best(self, metric: str) -> str:
        """Return the model with the largest mean."""
        return max(
            (found[metric]["mean"], n) for n, found in self.summaries.items() if metric in found
        )[1]

    @cached_property
    def tests_of_best(self) -> dict[str, dict[str, float]]:
        """The paired test of the best model against each other model, by its name.

        `difference`, `low` and `high` (of the 95 % interval) are the best model minus the other
        one; `p` is corrected for the number of all pairs, because the same figures choose the best
        model and test it.
        """
        found, best = {}, self.best(self.metric) if self.runs else ""
        for test in self.tests.to_dicts():
            pair = (test["model_a"], test["model_b"])
            if best in pair:
                sign = 1 if pair[0] == best else -1
                low, high = sorted((sign * test["ci_low"], sign * test["ci_high"]))
                values = {"difference": sign * test["difference"], "low": low, "high": high}
                found[pair[sign == 1]] = values | {"p": test["p_holm"]}
        return found

    @property
    def p_values(self) -> dict[str, float]:
        """Each other model against the best: Wilcoxon, corrected for the number of all pairs."""
        return {name: test["p"] for name, test in self.tests_of_best.items()}

    @property
    def indistinguishable(self) -> list[str]:
        """Models that are not significantly different from the best one."""
        return [name for name, p in self.p_values.items() if p >= LEVEL]

    def to_frame(self) -> pl.DataFrame:
        """Return one row per model.

        Columns: `model`, for each metric `NAME` (mean), `NAME se` (standard error over users) and
        `NAME sd` (over seeds, null for a single one), the corrected `p` of the paired test against
        the best model, `fit_seconds` and `bytes`.
        """
        rows = []
        for done in self.runs:
            row: dict[str, Any] = {"model": done.name}
            for name, entry in done.metrics.items():
                row |= {name: entry["mean"], f"{name} se": entry["se"]}
                row[f"{name} sd"] = entry["sd"] if done.runs > 1 else None
            row |= {"p": self.p_values.get(done.name), "fit_seconds": done.seconds}
            rows.append(row | {"bytes": done.size})
        return pl.DataFrame(rows, infer_schema_length=None)

    def _repr_html_(self) -> str:
        """Show the table in notebooks."""
        from transcf.experiments.report import table_of

        return table_of(self)._repr_html_()

    def __str__(self) -> str:
        """One line per model, with notes."""
        from transcf.experiments.report import table_of

        return table_of(self).to_text()

    __repr__ = __str__


@dataclass(frozen=True)
class Results:
    """The tables of a study or a comparison."""

    name: str  # of the study, or "comparison"
    title: str
    metrics: Sequence[str]  # columns of the tables
    tables: Sequence[Comparison]
    command: str = ""  # runs everything again
    more: Mapping[str, Any] = field(default_factory=dict)  # further values of the JSON form

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "format": FORMAT,
            "study": self.name,
            "title": self.title,
            "command": self.command,
            "version": __version__,
            "metrics": list(self.metrics),
            **self.more,
            "datasets": [table.to_dict() for table in self.tables],
        }

    def write(self, path: Path | str) -> Path:
        """Write the JSON form; return the path."""
        return atomic_write_text(path_of(path), to_json(self.to_dict()) + "\n")
