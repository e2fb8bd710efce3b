"""Studies: tables of models on datasets, read from TOML files (see `transcf study --help`)."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import MISSING, dataclass, field, fields, replace
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from itertools import product
from math import prod
from pathlib import Path
from types import UnionType
from typing import Any, Self, TypeVar, cast, get_args, get_origin, get_type_hints

from transcf.data.datasets import CATALOG, load_split
from transcf.data.readers import open_data
from transcf.data.split import Split
from transcf.data.splitters import open_split, split_log
from transcf.errors import ParameterError
from transcf.evaluation.evaluator import Subset
from transcf.evaluation.metrics import is_beyond, length_of
from transcf.experiments.experiment import (
    FINAL_SEEDS,
    Candidate,
    Experiment,
    OnProgress,
    OnResult,
    TablePlan,
    run_tables,
)
from transcf.experiments.results import Comparison
from transcf.experiments.run import EvalConfig
from transcf.experiments.search import Budget, Config
from transcf.experiments.store import Store
from transcf.models.params import Number
from transcf.models.registry import current, model_class, preset_of
from transcf.protocols import protocol_named

T = TypeVar("T")

#: Folders of the studies that come with the library.
_FOLDERS = [files("transcf").joinpath(package, "studies") for package in ("experiments", "paper")]


@dataclass(frozen=True)
class DatasetPlan:
    """One dataset of a study."""

    name: str  # anything that `open_data` accepts
    core: int | None = None  # keep users and items with so many events (k-core)
    protocols: list[str] = field(default_factory=list)  # tables; by default that of the study
    published: dict[str, dict[str, float]] = field(default_factory=dict)  # figures by model
    copy: str = ""  # how the data differs from the published data, which rules out figures
    max_seconds: float | None = None  # processor time of a fit, the same for all models
    fit_seconds: float | None = None  # measured mean of a fit and its evaluation

    def __post_init__(self) -> None:
        for name in self.protocols:
            protocol_named(name)
        if self.copy and self.published:
            raise ParameterError(
                f"The study has published figures for {self.name}, which is a copy that differs: "
                "leave out the one or the other."
            )


@dataclass(frozen=True)
class ModelPlan:
    """One model of a study, with settings to choose from on validation data.

    With a budget, settings of `preset` and `config` replace the defaults and may be searched;
    `params` are fixed.
    """

    name: str  # in the registry
    label: str = ""  # name in the table; by default `name`
    preset: str | None = None
    config: str | None = None  # TOML file of `transcf tune`
    params: dict[str, Any] = field(default_factory=dict)
    grid: dict[str, list[Any]] = field(default_factory=dict)  # "none" in place of a number: None
    budget: Any = None  # anything that `Budget.of` accepts; by default that of the study
    times: bool = False  # whether a budget may try weights of events and the trend
    protocols: list[str] = field(default_factory=list)  # only in these tables; by default in all
    datasets: list[str] = field(default_factory=list)  # the same

    def __post_init__(self) -> None:
        if "," in self.title:
            raise ParameterError(
                f"The study calls a model {self.title!r}: leave the comma out, since --models "
                "takes names with commas between them."
            )
        for name, values in self.grid.items():
            if not isinstance(values, list) or not values:
                raise ParameterError(
                    f"The study has grid.{name} = {values!r} for {self.title}: give a list of "
                    "values."
                )
        if self.grid and (self.budget or self.times):
            raise ParameterError(
                f"The study has a grid for {self.title} and a budget or times: give the one or "
                "the other."
            )
        Budget.of(self.budget)
        for name in self.protocols:
            protocol_named(name)

    @property
    def title(self) -> str:
        """Name in the table."""
        return self.label or self.name + (" + time" if self.times else "")

    def candidate(self, dataset: str, budget: Any) -> Candidate:
        """Return the candidate for a dataset; `budget` is that of the study."""
        model, params = current(self.name, dict(self.params))
        named = {} if self.preset is None else preset_of(model, self.preset, dataset)
        named |= {} if self.config is None else Config.read(self.config, model).params
        rules = model_class(model)._rules()
        budget = budget if self.budget is None else self.budget
        if budget is not None and not self.grid:
            # Some models use times by default.
            uses_times = self.times or "recency" not in rules
            untimed = {} if uses_times else {"recency": 0.0, "trend": 0.0}
            candidate = Candidate(self.title, model, untimed | params)
            return candidate.within(budget, self.times, named).checked()
        grid = {
            # TOML has no null.
            name: [None if v == "none" and isinstance(rules.get(name), Number) else v for v in some]
            for name, some in self.grid.items()
        }
        return Candidate(self.title, model, named | params, _combinations(grid)).checked()


@dataclass(frozen=True)
class Study:
    """Tables of models on datasets."""

    title: str
    protocol: str
    seeds: int
    metrics: tuple[str, ...]
    datasets: tuple[DatasetPlan, ...]
    models: tuple[ModelPlan, ...]
    paired_tests: str | None = None
    subset: Subset = "test"
    budget: Any = None

    def __post_init__(self) -> None:
        Budget.of(self.budget)
        self.config(self.protocol)
        if self.seeds < 1:
            raise ParameterError(f"The study has seeds = {self.seeds!r}: give a number from 1 on.")
        if not self.datasets or not self.models or not self.metrics:
            raise ParameterError("The study needs at least one dataset, one model and one metric.")
        for dataset, protocol in self.tables():
            for name in self._names:
                self.config(protocol).check_metric(name)
            titles = [plan.title for plan in self.under(protocol, dataset)]
            if repeated := [title for title in titles if titles.count(title) > 1]:
                raise ParameterError(
                    f"The study has several models {repeated[0]!r} in one table: give each a label."
                )
        for plan in self.models:
            if plan.times and not (plan.budget or self.budget):
                raise ParameterError(
                    f"The study has times = true for {plan.title}: say how many settings to try, "
                    'such as budget = "medium".'
                )

    def config(self, protocol: str, max_seconds: float | None = None) -> EvalConfig:
        """Return how the models of a table are evaluated."""
        lengths = [length_of(name) for name in self._names]
        k = tuple(sorted({n for n in lengths if n is not None})) or (10,)
        beyond = any(map(is_beyond, self._names))
        return EvalConfig(protocol, subset=self.subset, k=k, beyond=beyond, max_seconds=max_seconds)

    def under(self, protocol: str, dataset: DatasetPlan) -> list[ModelPlan]:
        """Return the models in the table of a protocol and a dataset."""
        return [
            plan
            for plan in self.models
            if protocol in (plan.protocols or [protocol])
            and dataset.name in (plan.datasets or [dataset.name])
        ]

    def tables(self) -> list[tuple[DatasetPlan, str]]:
        """Return the dataset and the protocol of each table that has models."""
        return [
            (dataset, protocol)
            for dataset in self.datasets
            for protocol in dataset.protocols or [self.protocol]
            if self.under(protocol, dataset)
        ]

    def published(self, dataset: str, protocol: str | None = None) -> dict[str, dict[str, float]]:
        """Return the published figures of a dataset, by the names of lines in its table.

        They are found by the name of a line, else by that of its model. A table of a protocol with
        sampled candidates has none of full ranking, nor the other way round.
        """
        kinds = {protocol_named(name).sampled for name in (self.protocol, protocol) if name}
        if len(kinds) > 1:
            return {}
        known = next(plan for plan in self.datasets if plan.name == dataset).published
        found = {plan.title: known.get(plan.title, known.get(plan.name)) for plan in self.models}
        return {title: figures for title, figures in found.items() if figures is not None}

    def about(self, dataset: DatasetPlan, protocol: str) -> dict[str, Any]:
        """Return `Comparison.about` of a table."""
        copy = f"{dataset.name} is not the published data: {dataset.copy}"
        return {
            "filter": "none" if dataset.core is None else f"{dataset.core}-core",
            "published": self.published(dataset.name, protocol),
            "difference": copy if dataset.copy else "",
            **({} if dataset.max_seconds is None else {"max_seconds": dataset.max_seconds}),
        }

    def expected(self) -> list[tuple[str, str, int, float | None]]:
        """Return dataset, protocol, the most fits, and their processor minutes if known."""

        def fits_of(plan: ModelPlan) -> int:
            if plan.grid:
                return prod(map(len, plan.grid.values())) + self.seeds
            budget = Budget.of(plan.budget or self.budget)
            tried = budget.trials + len(FINAL_SEEDS) * budget.finalists if budget.trials > 1 else 0
            return tried + (self.seeds if "random_state" in model_class(plan.name)._rules() else 1)

        found = []
        for data, protocol in self.tables():
            fits = sum(map(fits_of, self.under(protocol, data)))
            minutes = None if data.fit_seconds is None else fits * data.fit_seconds / 60
            found.append((data.name, protocol, fits, minutes))
        return found

    @property
    def _names(self) -> tuple[str, ...]:
        return (*self.metrics, *filter(None, [self.paired_tests]))

    def only(self, datasets: Sequence[str] | None, models: Sequence[str] | None) -> Self:
        """Return the study of some datasets and models (by title) only; None keeps all."""
        return replace(
            self,
            datasets=_named("dataset", self.datasets, [d.name for d in self.datasets], datasets),
            models=_named("model", self.models, [m.title for m in self.models], models),
        )

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> Self:
        """Read the parsed TOML; an unknown, missing or malformed key is an error that names it."""
        _check_keys("The study", content, cls)
        datasets = [_plan("dataset", entry, DatasetPlan) for entry in content["datasets"]]
        entries = [line for entry in content["models"] for line in _swept(entry)]
        models = [_plan("model", entry, ModelPlan) for entry in entries]
        for plan in models:
            _named("dataset", datasets, [d.name for d in datasets], plan.datasets)
        lists = {"metrics": tuple(content["metrics"])}
        return cls(**{**content, **lists, "datasets": tuple(datasets), "models": tuple(models)})


def _combinations(grid: dict[str, list[Any]]) -> list[dict[str, Any]]:
    return [dict(zip(grid, values, strict=True)) for values in product(*grid.values())]


def _swept(entry: Any) -> list[Any]:
    """Return an entry for every combination of the values of `sweep`, if there is one."""
    if not isinstance(entry, dict) or "sweep" not in entry:
        return [entry]
    sweep, rest = entry["sweep"], {key: entry[key] for key in entry if key != "sweep"}
    if not isinstance(sweep, dict) or not all(isinstance(some, list) for some in sweep.values()):
        raise ParameterError(
            f"The study has sweep = {sweep!r}: give lists of values, such as {{ dim = [32, 64] }}."
        )
    lines = []
    for own in _combinations(sweep):
        values = " ".join(f"{name}={value}" for name, value in own.items())
        label = f"{rest.get('label', '')} {values}".strip()
        lines.append({**rest, "params": {**rest.get("params", {}), **own}, "label": label})
    return lines


def _plan(kind: str, entry: Any, plan: type[T]) -> T:
    """Read one entry of a list of tables."""
    if not isinstance(entry, dict):
        raise ParameterError(
            f"The study has the {kind} {entry!r}: write [[{kind}s]] and name = {entry!r} below it."
        )
    _check_keys(f"A {kind} of the study", entry, plan)
    return plan(**entry)


#: How to write the types of values.
_KINDS: dict[Any, str] = {
    str: "give text",
    int: "give a number from 1 on",
    float: "give a number",
    bool: "write true or false",
    list: "give a list",
    tuple: "give a list",
    dict: "give a table, such as { dim = 64 }",
}


def _check_keys(what: str, content: dict[str, Any], plan: type) -> None:
    """Raise an error for the first key that is missing, unknown or of a wrong type."""
    known, hints = fields(cast("Any", plan)), get_type_hints(plan)
    form = "`transcf study` shows the form"
    for one in known:
        is_needed = one.default is MISSING and one.default_factory is MISSING
        if is_needed and one.name not in content:
            raise ParameterError(f"{what} has no {one.name}: add it; {form}.")
    for name, value in content.items():
        if name not in hints:
            names = ", ".join(f.name for f in known)
            raise ParameterError(f"{what} has {name!r}, which is none of {names}; {form}.")
        hint = hints[name]
        kind = get_args(hint)[0] if isinstance(hint, UnionType) else get_origin(hint) or hint
        allowed = {tuple: (list,), float: (int, float)}.get(kind, (kind,))
        if kind in _KINDS and type(value) not in allowed:
            raise ParameterError(f"{what} has {name} = {value!r}: {_KINDS[kind]}.")


def _named(
    kind: str, plans: Sequence[T], names: Sequence[str], asked: Sequence[str] | None
) -> tuple[T, ...]:
    """Return the plans whose names are asked for, in the order of the study."""
    for name in asked or ():
        if name not in names:
            raise ParameterError(
                f"The study has no {kind} {name!r}; it has: {', '.join(dict.fromkeys(names))}."
            )
    named = zip(plans, names, strict=True)
    return tuple(plan for plan, name in named if asked is None or name in asked)


def available_studies() -> tuple[str, ...]:
    """Return the names of the studies that come with the library."""
    return tuple(sorted(_studies()))


def study_example() -> str:
    """Return a TOML file that shows the form of a study."""
    return files("transcf.experiments").joinpath("study_example.toml").read_text(encoding="utf-8")


def _studies() -> dict[str, Traversable]:
    paths = [path for folder in _FOLDERS for path in folder.iterdir()]
    return {path.name.removesuffix(".toml"): path for path in paths if path.name.endswith(".toml")}


def load_study(name: str | Path) -> Study:
    """Read a study by its name or from a TOML file."""
    if Path(name).is_file():
        text = Path(name).read_bytes()
    elif (found := _studies().get(str(name))) is not None:
        text = found.read_bytes()
    else:
        raise ParameterError(
            f"There is no study {str(name)!r}: name a TOML file or one of "
            f"{', '.join(available_studies())}."
        )
    try:
        content = tomllib.loads(text.decode("utf-8"))
    except ValueError as problem:
        raise ParameterError(f"{name} is not a TOML file: {problem}.") from problem
    return Study.from_dict(content)


def run_study(
    study: Study,
    on_progress: OnProgress = lambda text: None,
    store: Store | None = None,
    on_result: OnResult = lambda name, tables: None,
) -> list[Comparison]:
    """Run a study: a table for each dataset and protocol, in order.

    `on_progress` is called with one line of text at every step; other arguments, errors of models
    and interruptions are as for `run_tables`. Several processes may run the same study with the
    same `store` at a time. A model, preset or parameter that is not allowed is a `ParameterError`
    before anything is run.
    """

    def table(dataset: DatasetPlan, protocol: str) -> TablePlan:
        plans, about = study.under(protocol, dataset), study.about(dataset, protocol)
        candidates = [plan.candidate(dataset.name, study.budget) for plan in plans]
        title = f"{dataset.name} ({protocol})"
        name = dataset.name if dataset.core is None else f"{dataset.name}, {dataset.core}-core"

        @cache
        def open_experiment() -> Experiment:
            return Experiment(
                _split(dataset, protocol), study.config(protocol, dataset.max_seconds),
                range(study.seeds), lambda step: on_progress(f"{title}: {step}"), store, name,
            )  # fmt: skip

        metric = study.paired_tests or study.metrics[0]
        return TablePlan(dataset.name, candidates, open_experiment, metric, about)

    return run_tables([table(*each) for each in study.tables()], on_result)


def _split(dataset: DatasetPlan, protocol: str) -> Split:
    if dataset.core is not None:
        log = open_data(dataset.name, filter=f"{dataset.core}-core")
        return split_log(log, protocol)
    known = None if dataset.copy else CATALOG.get(dataset.name)
    if protocol_named(protocol).sampled and known is not None and not known.split_by_rule:
        # Published figures are compared on the authors' own split only.
        return split_log(load_split(dataset.name), protocol)
    return open_split(dataset.name, protocol)
