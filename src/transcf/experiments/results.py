"""Results of a run, of a candidate over all seeds, of a table and of a study; their JSON forms.

`--json` prints the JSON form and `--out FILE.json` writes it. Tables and reports are made from the
same classes, whether the results were computed here or read from a file.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from math import nan
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING, Any, Self, TypedDict, get_type_hints

import polars as pl

from transcf import __version__
from transcf.data.atomic import atomic_write
from transcf.data.files import path_of
from transcf.data.json_text import to_json
from transcf.data.parquet_check import damage_of
from transcf.errors import DataError, DivergenceError, TransCFError
from transcf.evaluation import Evaluation, average_seeds, paired_tests, summarize_seeds
from transcf.evaluation.results import LEVEL
from transcf.models.base import Recommender
from transcf.models.event_weights import WeightSettings
from transcf.models.params import values_of

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
#: Fields of `CandidateResult` with other names in the JSON form.
_KEYS = {"name": "model", "kind": "class", "size": "bytes", "spent": "spent_seconds"}


# -- one run -----------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class RunResult:
    """Result of one run; it has all that tables need, so that the model can be deleted.

    Attributes:
        model: Class of the model.
        parameters: Parameters of the fitted model.
        seconds: Wall clock of fitting; the sum if a model is fitted twice.
        parts: `training_seconds` and `validation_seconds` of it, for models with epochs.
        spent: Wall clock of the whole run, including evaluation.
        validation: Metric on the validation part; None if it was not computed.
        best_epoch: The epoch that was kept; None for models without epochs.
        curve: `epoch`, `loss` and `metric` (None if an epoch was not validated) of each epoch.
        n_bytes: Size of the fitted model.
        chooses: Whether the model chose something on validation data by itself.
        times: Whether it uses times of events; None if it cannot.
        evaluation: Metrics of every user; None for a trial.
        full_ranking: The same in full ranking, if the protocol samples candidates.
        error: Why there are no results.
        stored: Whether the result is from the cache.
    """

    model: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    seconds: float = 0.0
    parts: Mapping[str, float] = field(default_factory=dict)
    spent: float = 0.0
    validation: float | None = None
    best_epoch: int | None = None
    curve: Sequence[Mapping[str, Any]] = ()
    n_bytes: int = 0
    chooses: bool = False
    times: bool | None = None
    evaluation: Evaluation | None = None
    full_ranking: Evaluation | None = None
    error: TransCFError | None = None
    stored: bool = False

    @classmethod
    def of(cls, model: Recommender[Any], **found: Any) -> Self:
        """Add the properties of a fitted model to what was measured."""
        settings = model.settings_
        can_use_times = isinstance(settings, WeightSettings) and model.learned_.known.timed
        about = {
            "parameters": values_of(settings),
            "best_epoch": model.best_epoch_,
            "n_bytes": sum(array.nbytes for array in model.learned_.arrays().values()),
            "chooses": model._chooses(model.learned_.known.timed),
            "times": settings.uses_times if can_use_times else None,
        }
        return cls(type(model).__name__, **{**about, **found})


class _Step(TypedDict):
    epoch: int
    loss: float | None
    metric: float | None


class _Figures(TypedDict):
    """An evaluation without the metrics of users."""

    model: str
    protocol: str
    ties: str
    subset: str
    skipped: dict[str, int]
    catalogue: dict[str, float | None]
    note: str
    split: str


#: Files with the metrics of users, by the part of a result that has them.
FILES = {"evaluation": "users.parquet", "full_ranking": "full.parquet"}
#: Types of the JSON form of a result.
RESULT_TYPES = {
    **{name: kind for name, kind in get_type_hints(RunResult).items() if name != "stored"},
    **dict.fromkeys(FILES, _Figures | None),
    "curve": list[_Step],
    "error": str | None,
}


def to_dict(result: RunResult) -> dict[str, Any]:
    """Return the JSON form, without the metrics of users."""
    content = {one.name: getattr(result, one.name) for one in fields(result)}
    del content["stored"]
    content["error"] = None if result.error is None else str(result.error)
    for name in FILES:
        if (found := content[name]) is not None:
            content[name] = {key: getattr(found, key) for key in _Figures.__annotations__}
    return content


def from_parts(content: Mapping[str, Any], files: Mapping[str, bytes]) -> RunResult:
    """Read a result from its JSON form and its files.

    Raises:
        ValueError: A file is damaged.
        KeyError: A file is missing.
    """
    read = {**content, "stored": True}
    if content["error"] is not None:
        read["error"] = DivergenceError(content["error"])
    for name, file in FILES.items():
        if (about := content[name]) is not None:
            figures = {
                n: nan if value is None else value for n, value in about["catalogue"].items()
            }
            table = _parse_table(files[file], file)
            read[name] = Evaluation(**{**about, "catalogue": figures, "per_user": table})
    return RunResult(**read)


def _parse_table(content: bytes, name: str) -> pl.DataFrame:
    if (damage := damage_of(content)) is not None:
        raise ValueError(f"{name} is damaged: {damage}")
    table = pl.read_parquet(content)
    figures = table.drop("user_id")
    if not all(kind.is_float() for kind in figures.dtypes) or not figures.width * figures.height:
        raise ValueError(f"{name} has no figures of users")
    if figures.null_count().sum_horizontal().item():
        raise ValueError(f"{name} has missing figures")
    return table


# -- tables ------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class CandidateResult:
    """Results of a candidate: one line of a table.

    Attributes:
        name: Name of the candidate in tables.
        kind: Class of the model.
        parameters: Parameters of the model, with the first seed.
        metrics: `mean`, `sd` over seeds and `se` over users of every metric.
        runs: Number of evaluated seeds.
        users: Number of evaluated users.
        validation: Metric on the validation part, mean over the seeds; None if not computed.
        chosen: The parameters that were chosen on validation data.
        tried: Number of trials that could be trained.
        seconds: Wall clock of one whole fit, mean over the seeds.
        notes: Warnings that belong to the figures.
        untrained: Errors of the other trials.
        minutes: Minutes of all trials, or of all runs if there were no trials.
        spent: Seconds of all runs: trials, and fits and evaluations with every seed.
        parts: `training_seconds` and `validation_seconds` of a fit.
        catalogue: Metrics of whole lists, mean over the seeds.
        full_ranking: `mean` and `se` in full ranking, if the protocol samples candidates.
        curve: Epochs of the first seed: `epoch`, `loss` and `metric`.
        best_epochs: The epoch that was kept, by seed.
        size: Bytes of the fitted model.
        cells: Number of runs: trials and seeds.
        stored: Number of runs that were in the cache.
        trials: Results of all parameters that were tried; empty if there was no choice.
        results: One for each seed, a single one if the seed has no effect; not in the JSON form.
    """

    name: str
    kind: str
    parameters: Mapping[str, Any]
    metrics: dict[str, dict[str, float]]
    runs: int
    users: int
    validation: float | None
    chosen: Mapping[str, Any]
    tried: int
    seconds: float
    notes: Sequence[str]
    protocol: str = ""
    ties: str = ""
    subset: str = "test"
    split: str = ""
    skipped: Mapping[str, int] = field(default_factory=dict)
    untrained: Sequence[str] = ()
    minutes: float = 0.0
    spent: float | None = None
    parts: Mapping[str, float] = field(default_factory=dict)
    catalogue: Mapping[str, float] = field(default_factory=dict)
    full_ranking: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    curve: Sequence[Mapping[str, Any]] = ()
    best_epochs: Sequence[int | None] = ()
    size: int | None = None
    cells: int = 0
    stored: int = 0
    trials: Sequence[RunResult] = ()
    results: Sequence[RunResult] = ()

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
        repeats = sum(seed != seeds[0] for seed in seeds)
        tried = len(trials) - len(untrained) - repeats or 1
        notes = {
            SAMPLED_NOTE: bool(full),
            CHOSEN_HERE_NOTE: first.subset == "validation" and (tried > 1 or done.chooses),
            first.note: bool(first.note),
        }
        failed = [f"{name}: a setting did not train: {reason}" for reason in untrained]
        return cls(
            name=name,
            kind=done.model,
            parameters=dict(done.parameters),
            metrics=summarize_seeds(evaluations),
            runs=len(evaluations),
            users=first.users,
            validation=mean(validated) if validated else None,
            chosen=dict(chosen or {}),
            tried=tried,
            seconds=round(mean(run.seconds for run in results), 3),
            notes=[*(note for note, belongs in notes.items() if belongs), *failed],
            protocol=first.protocol,
            ties=first.ties,
            subset=first.subset,
            split=first.split,
            skipped=first.skipped,
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

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Self:
        """Read the JSON form; older files lack some values."""
        names = {one.name: _KEYS.get(one.name, one.name) for one in fields(cls)}
        values = {name: content[key] for name, key in names.items() if key in content}
        kind = content["class"]
        values["trials"] = [
            RunResult(kind, trial["parameters"], validation=trial["validation"])
            for trial in content.get("trials", ())
        ]
        return cls(**values)

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        values = {_KEYS.get(one.name, one.name): getattr(self, one.name) for one in fields(self)}
        del values["results"], values["parts"]
        if not self.full_ranking:
            del values["full_ranking"]
        return {**values, **self.parts, "trials": _trials(self.trials)}

    @property
    def first(self) -> RunResult:
        """The result of the first seed."""
        return self.results[0]

    @property
    def evaluations(self) -> list[Evaluation]:
        """The evaluations, one for each seed."""
        return [found.evaluation for found in self.results if found.evaluation is not None]

    @property
    def is_trivial(self) -> bool:
        """Whether the model is not personalized."""
        return self.kind in TRIVIAL

    def mean(self, metric: str) -> float | None:
        """Return the mean of a metric; None if it was not computed."""
        return self.metrics.get(metric, {}).get("mean")

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
        config: How they were evaluated; None if the comparison was read from a file.
        metric: Metric of the paired tests.
        runs: One for each model, in the given order.
        failures: Errors of the other models by name; the last one may be an interruption.
        split: Description of the held-out data.
        about: `filter`, `published` values by model and `difference` from the published data, if
            the comparison belongs to a study.
        stored_tests: Paired tests that were read from a file.
    """

    dataset: str
    config: EvalConfig | None
    metric: str
    runs: Sequence[CandidateResult]
    failures: Mapping[str, Any] = field(default_factory=dict)
    split: str = "not said"
    about: Mapping[str, Any] = field(default_factory=dict)
    stored_tests: Sequence[Mapping[str, Any]] | None = None

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Self:
        """Read the JSON form."""
        names = ("protocol", "filter", "published", "difference")
        return cls(
            content["dataset"],
            None,
            content["metric"],
            [CandidateResult.from_dict(model) for model in content["models"]],
            content["failures"],
            content["split"],
            {name: content[name] for name in names if name in content},
            content["tests"],
        )

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
        named = self.about.get("protocol") if self.config is None else self.config.protocol
        return named or (self.runs[0].protocol if self.runs else "")

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
        if self.stored_tests is not None:
            return pl.DataFrame(self.stored_tests, infer_schema_length=None)
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
        found = {}
        for test in self.tests.to_dicts():
            pair, best = (test["model_a"], test["model_b"]), self.best(self.metric)
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

        Columns: `model`, the mean of every metric by its name, its standard error over users
        (`NAME se`) and standard deviation over seeds (`NAME sd`, null for a single seed), the
        corrected `p` of the paired test against the best model (null for the best itself),
        `fit_seconds` and `bytes`.
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
    """The tables of a study or a comparison: `content` is the JSON form."""

    content: Mapping[str, Any]
    tables: Sequence[Comparison]

    @classmethod
    def of(
        cls,
        name: str,
        title: str,
        metrics: Sequence[str],
        tables: Sequence[Comparison],
        command: str = "",
        **more: Any,
    ) -> Self:
        """Collect tables under the name of a study or "comparison".

        `metrics` are the columns of tables, `command` runs everything again, and `more` are further
        values of the JSON form.
        """
        content = {"format": FORMAT, "study": name, "title": title, "command": command}
        content |= {"version": __version__, "metrics": list(metrics), **more}
        return cls({**content, "datasets": [table.to_dict() for table in tables]}, tables)

    @classmethod
    def read(cls, path: Path | str) -> Self:
        """Read a file that `write` wrote.

        Raises:
            DataError: The file has another content or another format version.
        """
        try:
            return cls.from_dict(json.loads(path_of(path).read_text(encoding="utf-8")))
        except (KeyError, TypeError, ValueError) as problem:
            raise DataError(
                f"{path} holds no results of a study ({type(problem).__name__}: {problem}): write "
                "the file again with `transcf study NAME --out FILE.json`."
            ) from problem

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Self:
        """Read the JSON form."""
        if content["format"] != FORMAT:
            raise ValueError(f"format {content['format']} instead of {FORMAT}")
        for name in ("title", "command", "version", "metrics"):
            content[name]  # raises if it is missing
        return cls(content, [Comparison.from_dict(table) for table in content["datasets"]])

    @property
    def metrics(self) -> list[str]:
        """Columns of the tables."""
        return list(self.content["metrics"])

    def write(self, path: Path | str) -> None:
        """Write the JSON form."""
        with atomic_write(path_of(path)) as unfinished:
            unfinished.write_text(to_json(self.content) + "\n", encoding="utf-8")
