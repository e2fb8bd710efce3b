"""Candidates, experiments and `compare`: several models on one split, with paired tests.

An experiment chooses the parameters of a candidate on validation data and runs every seed. Several
processes share the work: each computes runs that are not in the cache and not locked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from math import inf
from pathlib import Path
from statistics import mean
from typing import Any, Self, TypeAlias

from transcf.data.interactions import Interactions
from transcf.data.split import Split
from transcf.data.splitters import split_log
from transcf.errors import ParameterError, TransCFError, check_integer, shown
from transcf.evaluation.evaluator import Subset
from transcf.evaluation.metrics import check_lengths
from transcf.evaluation.ranks import Ties
from transcf.evaluation.results import number_repeats
from transcf.experiments.results import TIMED_BASELINE, CandidateResult, Comparison, RunResult
from transcf.experiments.run import EvalConfig, StartFit, fit_and_evaluate, fit_and_validate
from transcf.experiments.search import Budget, Search, Trial
from transcf.experiments.store import RunLockedError, Store, wait_for_others
from transcf.experiments.workers import WorkerCluster, shared_work
from transcf.interrupts import stop_request
from transcf.models import registry
from transcf.models.base import Recommender
from transcf.models.params import flat_params
from transcf.models.training import FitOptions

#: A model by its name, by its name and parameters, or as an object whose settings are taken.
ModelSpec: TypeAlias = str | tuple[str, Mapping[str, Any]] | Recommender[Any]
#: Called with one line of text that names the current step.
OnProgress: TypeAlias = Callable[[str], None]
#: One model, several, or several by names in the table.
Models: TypeAlias = str | Recommender[Any] | Iterable[ModelSpec] | Mapping[str, ModelSpec]
#: Called after each candidate with its name and with the tables so far.
OnResult: TypeAlias = Callable[[str, list[Comparison]], object]

#: Baselines of every table.
TRIVIAL_BASELINES = ("popularity", "inverse-popularity", "random")
#: Further seeds of the finalists of a search, counted from the first seed; none of a table's.
FINAL_SEEDS = (1001, 1002)


@dataclass(frozen=True)
class Candidate:
    """A model with parameters to choose from."""

    name: str  # in tables
    model: str  # in the registry
    params: Mapping[str, Any] = field(default_factory=dict)
    choices: Sequence[Mapping[str, Any]] = ({},)  # of further parameters, on validation data
    search: Search | None = None  # proposes them one at a time instead

    @classmethod
    def of(cls, spec: ModelSpec, name: str | None = None) -> Self:
        """Make a candidate; of a model object, parameters that differ from the defaults are set."""
        params: Mapping[str, Any] = {}
        match spec:
            case str():
                model = registry.canonical_name(spec)
            case (str() as model, Mapping() as params):
                model, params = registry.current(model, dict(params))
            case Recommender():
                model, params = registry.name_and_params(spec)
            case _:
                raise ParameterError(
                    f"{shown(spec)} is no model: give a name, a pair of a name and its parameters, "
                    "or a model."
                )
        return cls(name or model, model, params)

    @property
    def takes_seed(self) -> bool:
        """Whether the seed of a run changes its result."""
        rules = registry.model_class(self.model)._rules()
        return "random_state" in rules.keys() - self.params.keys()

    def make(self, seed: int, choice: Mapping[str, Any] | None = None) -> Recommender[Any]:
        """Make the model; a `random_state` among the parameters replaces the seed."""
        seeded = {"random_state": seed} if self.takes_seed else {}
        params = {**seeded, **flat_params(self.params), **(choice or {})}
        return registry.create(self.model, **params)

    def within(
        self, budget: Any, timed: bool = False, start: Mapping[str, Any] | None = None
    ) -> Self:
        """Return the candidate with the settings that a budget tries; set parameters stay.

        Settings of `start` replace the defaults, and may be searched.
        """
        budget, begun = Budget.of(budget), start or {}
        search = Search(self.model, budget, fixed=self.params, start=begun, timed=timed)
        found = replace(self, params={**begun, **self.params}, choices=({},), search=None)
        if budget.sampler == "tpe" or budget.finalists:
            return replace(found, search=search)
        return replace(found, choices=list(islice(search.settings(), budget.trials)))

    def checked(self) -> Self:
        """Return it, or raise a `ParameterError` for an unknown model or an invalid parameter."""
        for choice in self.choices:
            self.make(0, choice)._check_params()
        return self


@dataclass(frozen=True)
class Experiment:
    """Data, evaluation and seeds that all candidates of a table share."""

    split: Split
    config: EvalConfig
    seeds: Sequence[int] = (0,)  # a model without randomness is run with the first one only
    on_progress: OnProgress | None = None  # without it, epochs show on a terminal
    store: Store | None = None  # cache of finished runs
    dataset: str = ""  # name of the data in the cache

    def __post_init__(self) -> None:
        object.__setattr__(self, "config", self.config.on(self.split))

    def run(self, candidate: Candidate) -> CandidateResult:
        """Choose the parameters of a candidate on validation data, then run every seed.

        Raises a `RunLockedError` if other processes are computing some of its runs, once all others
        are in the cache.

        Example:
            >>> from transcf import open_split
            >>> experiment = Experiment(open_split("synthetic"), EvalConfig())
            >>> experiment.run(Candidate.of("ease")).first.model
            'EASE'
        """
        chosen, trials, fitted = self._choose(candidate)

        def run_seed(seed: int) -> RunResult:
            model = fitted if seed == self.seeds[0] else None
            if model is None or self.config.picks_epochs_on_test:  # which needs all epochs again
                model = candidate.make(seed, chosen)
            start_fit = self._start_fit(candidate, f"seed {seed}")
            return fit_and_evaluate(
                model, self.split, self.config, self.store,
                start_fit=start_fit, dataset=self.dataset,
            )  # fmt: skip

        results = _run_unlocked(run_seed, self.seeds if candidate.takes_seed else self.seeds[:1])
        if error := next((found.error for found in results if found.error is not None), None):
            raise error
        return CandidateResult.of(candidate.name, results, chosen, trials)

    def _choose(
        self, candidate: Candidate
    ) -> tuple[Mapping[str, Any], list[RunResult], Recommender[Any] | None]:
        """Return the best choice, the trials of all, and the best model if it was fitted here."""
        search, choices = candidate.search, list(candidate.choices)
        if search is None and len(choices) == 1:
            return choices[0], [], None
        total = search.budget.trials if search else len(choices)
        validation, first = self.config.validation(self.split), self.seeds[0]
        best: tuple[float, Recommender[Any] | None] = (-inf, None)

        def run_trial(number: int, seed: int = first) -> RunResult:
            nonlocal best
            model = candidate.make(seed, choices[number])
            step = f"setting {number + 1} of {total}" + f", seed {seed}" * (seed != first)
            result = fit_and_validate(
                model, self.split.train, validation, self.store,
                start_fit=self._start_fit(candidate, step), dataset=self.dataset,
                max_seconds=self.config.max_seconds,
            )  # fmt: skip
            if seed == first and _metric_of(result) > best[0]:
                best = _metric_of(result), model if model.is_fitted else None
            return result

        if search is None:
            trials = _run_unlocked(run_trial, range(total))
        else:
            choices, trials, history = [], [], list[Trial]()
            while (choice := search.ask(history)) is not None:
                choices.append(choice)
                trials.append(run_trial(len(trials)))
                history.append(Trial.of(choice, trials[-1]))
        ranked = sorted(range(len(trials)), key=lambda n: _metric_of(trials[n]), reverse=True)
        winner = ranked[0]
        if (error := trials[winner].error) is not None:  # all have failed
            raise error
        if search and search.budget.finalists and candidate.takes_seed:
            means = {}
            for number in ranked[: search.budget.finalists]:
                again = [run_trial(number, first + more) for more in FINAL_SEEDS]
                means[number] = mean(map(_metric_of, (trials[number], *again)))
                trials += again
            winner = max(means, key=means.__getitem__)
        return choices[winner], trials, best[1] if winner == ranked[0] else None

    def _start_fit(self, candidate: Candidate, step: str) -> StartFit:
        """Return what reports a step and the epochs of its fits, if there is a listener."""
        report = self.on_progress

        def start_fit(part: str) -> FitOptions:
            if report is None:
                return FitOptions()  # with a progress bar
            text = f"{candidate.name}, {step}" + f", {part}" * (part != "fit")
            report(text)
            return FitOptions(
                progress=False, on_epoch=lambda epoch: report(f"{text}, epoch {epoch.number}")
            )

        return start_fit


def _run_unlocked(run: Callable[[int], RunResult], numbers: Sequence[int]) -> list[RunResult]:
    """Call `run` with each number; raise a `RunLockedError` at the end if a run is locked."""
    results, locked = [], None
    with stop_request() as request:
        for number in numbers:
            if request.asked:  # between two short runs, which do not see it
                raise KeyboardInterrupt
            try:
                results.append(run(number))
            except RunLockedError as error:
                locked = error
    if locked is not None:
        raise locked
    return results


def _metric_of(trial: RunResult) -> float:
    return -inf if trial.validation is None else trial.validation


def compare(
    models: Models,
    data: Any,
    *,
    metric: str | None = None,
    seeds: int = 1,
    budget: Any = "none",
    protocol: str | None = None,
    subset: Subset = "test",
    ties: Ties = "pessimistic",
    k: int | Sequence[int] = (10, 20),
    beyond: bool = False,
    seed: int = 0,
    trivial_baselines: bool = True,
    dataset: str | None = None,
    on_progress: OnProgress | None = None,
    store: str | Path | None = None,
    cluster: WorkerCluster | None = None,
) -> Comparison:
    """Fit and evaluate several models on one split, and test their differences.

    The same as `transcf compare` on the command line, which tries a small budget by default. Epochs
    and settings are chosen on the validation part; then the models are fitted on train and
    validation, and tested once. A model that cannot be fitted is reported and does not stop the
    others; Ctrl-C ends the comparison with the models that are done.

    Args:
        models: Names, pairs of a name and parameters, or model objects, whose settings are used; a
            mapping gives them names in the table; "all" means all distinct models.
        data: A split, a log, a table, or anything that `open_data` accepts.
        metric: Metric of the paired tests; by default NDCG@10, or N at the first length.
        seeds: Number of runs of every model with randomness.
        budget: Settings of each model to try: "none" (as given), "small", "medium", "large", a
            number, or a table such as {"trials": 20, "sampler": "tpe"}; given parameters stay.
        protocol: As for `evaluate`; by default "temporal" if the log has times, else
            "leave-last-out".
        subset: "test" or "validation".
        ties: How equal scores count: "pessimistic", "realistic" or "optimistic".
        k: Lengths of the lists.
        beyond: Whether to compute metrics beyond accuracy (AUC, novelty, diversity, Gini).
        seed: First seed of the models; seed of the split and of drawn candidates.
        trivial_baselines: Whether to add popularity, inverse popularity and random.
        dataset: Name of the data in the table.
        on_progress: Called with one line of text at every step; without it, epochs show on a
            terminal.
        store: Folder of the run cache: results of earlier runs are taken from it, and new ones are
            stored; None runs everything.
        cluster: Its workers compute some of the runs, such as `transcf.distributed.Cluster()`. They
            need access to the folder of the store.

    Invalid arguments raise a `ParameterError` before any fit. If no model can be fitted, the first
    error is raised.

    Example:
        >>> from transcf import EASE, compare, synthesize
        >>> log = synthesize(users=200, items=60, interactions=3000, seed=1)
        >>> found = compare([EASE(regularization=50.0), "itemknn"], log)
        >>> [done.name for done in found.runs]
        ['popularity', 'inverse-popularity', 'random', 'recent-popularity', 'ease', 'itemknn']
        >>> found.best("NDCG@10")
        'ease'
    """
    config = EvalConfig(protocol, ties, subset, check_lengths(k), beyond)
    metric = config.usual_metric if metric is None else metric
    config.check_metric(metric)
    check_integer("seeds", seeds, 1)
    candidates = candidates_of(models, trivial_baselines=trivial_baselines)
    for candidate in candidates:
        candidate.within(budget).checked()
    split = split_log(data, protocol, seed=seed)
    candidates = suited_to(split, candidates, budget, trivial_baselines=trivial_baselines)
    name = dataset or (str(data) if isinstance(data, str | Path) else "data")
    numbers = range(seed, seed + seeds)
    kept = None if store is None else Store(store)
    experiment = Experiment(split, config, numbers, on_progress, store=kept, dataset=name)
    return compare_models(name, candidates, experiment, metric, cluster=cluster)


def candidates_of(models: Models, *, trivial_baselines: bool = True) -> list[Candidate]:
    """Return the candidates of the models of `compare`."""
    if isinstance(models, Interactions | Split) or hasattr(models, "__arrow_c_stream__"):
        raise ParameterError(
            f"Models come first and data second, and {type(models).__name__} is no model: "
            'write compare(["ease", "transcf"], data).'
        )
    if not isinstance(models, str | Recommender | Iterable):
        raise ParameterError(
            f"{shown(models)} is not a model: give names or models, such as "
            'compare(["ease", "transcf"], data).'
        )
    if isinstance(models, Mapping):
        named = [Candidate.of(spec, name) for name, spec in models.items()]
    else:
        listed = [models] if isinstance(models, str | Recommender) else list(models)
        made = [
            Candidate.of(spec) for spec in (registry.distinct() if listed == ["all"] else listed)
        ]
        labels = number_repeats(candidate.name for candidate in made)
        named = [replace(c, name=label) for c, label in zip(made, labels, strict=True)]
    if trivial_baselines:
        named = [Candidate.of(name) for name in TRIVIAL_BASELINES if not _has(named, name)] + named
    return named


def suited_to(
    split: Split, candidates: Sequence[Candidate], budget: Any, *, trivial_baselines: bool = True
) -> list[Candidate]:
    """Return the candidates with the settings that a budget tries on the data of a split.

    For data with times, add settings that use them, and the baseline of recent popularity. Its
    half-life is always chosen among all values of its search space.
    """
    listed, timed = list(candidates), split.train.timestamps is not None
    if timed and trivial_baselines and not _has(listed, TIMED_BASELINE):
        trivial = sum(candidate.model in TRIVIAL_BASELINES for candidate in listed)
        listed.insert(trivial, Candidate.of(TIMED_BASELINE))
    return [
        candidate.within("large" if timed and candidate.model == TIMED_BASELINE else budget, timed)
        for candidate in listed
    ]


def _has(candidates: Sequence[Candidate], model: str) -> bool:
    return any(model in (candidate.model, candidate.name) for candidate in candidates)


def compare_models(
    dataset: str,
    candidates: Sequence[Candidate],
    experiment: Experiment,
    metric: str,
    on_result: OnResult = lambda name, tables: None,
    cluster: WorkerCluster | None = None,
) -> Comparison:
    """Run all candidates; errors and an interruption are recorded.

    `metric` is that of the paired tests; the workers of `cluster` compute some of the runs. Raises
    the first error if no candidate could be run.
    """
    quiet = replace(experiment, on_progress=None)
    work = partial(compare_models, dataset, candidates, quiet, metric)
    plan = TablePlan(dataset, candidates, lambda: experiment, metric)
    with shared_work(work, experiment.store, cluster=cluster):
        (found,) = run_tables([plan], on_result)
    if found.failures and not found.runs:
        raise next(iter(found.failures.values()))
    return found


@dataclass(eq=False)
class TablePlan:
    """A table to compute."""

    dataset: str
    candidates: Sequence[Candidate]
    open: Callable[[], Experiment]  # opens the data, once
    metric: str  # of the paired tests
    about: Mapping[str, Any] = field(default_factory=dict)  # `Comparison.about`
    outcomes: dict[int, CandidateResult | BaseException] = field(default_factory=dict)

    def comparison(self) -> Comparison:
        """Return the results so far, in the order of the candidates."""
        ordered = [(self.candidates[n].name, self.outcomes[n]) for n in sorted(self.outcomes)]
        return Comparison(
            self.dataset,
            self.open().config,
            self.metric,
            [found for _, found in ordered if isinstance(found, CandidateResult)],
            {name: found for name, found in ordered if isinstance(found, BaseException)},
            self.open().split.how,
            self.about,
        )


def run_tables(
    plans: Sequence[TablePlan], on_result: OnResult = lambda name, tables: None
) -> list[Comparison]:
    """Run the candidates of several tables, and return the tables that were started.

    An error of a candidate is recorded, and the others are run. After an interruption nothing more
    is run. Candidates with runs that another process is computing come last.
    """
    found: dict[TablePlan, Comparison] = {}  # those that are complete keep their tests
    queue = [(plan, number, False) for plan in plans for number in range(len(plan.candidates))]
    outcome: CandidateResult | BaseException
    with stop_request() as request:
        for plan, number, waits in queue:
            run = partial(plan.open().run, plan.candidates[number])
            try:
                if request.asked:
                    raise KeyboardInterrupt
                outcome = wait_for_others(run) if waits else run()
            except RunLockedError:
                queue.append((plan, number, True))
                continue
            except TransCFError as error:
                outcome = error
            except KeyboardInterrupt:
                outcome = KeyboardInterrupt("interrupted here, and nothing after it was run.")
            plan.outcomes[number] = outcome
            found[plan] = plan.comparison()
            if isinstance(outcome, KeyboardInterrupt):
                break
            on_result(plan.candidates[number].name, [found[one] for one in plans if one in found])
    return [found[plan] for plan in plans if plan in found]
