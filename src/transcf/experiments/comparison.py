"""`compare`: several models on one split, and paired tests of their differences."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

from transcf.data.interactions import Interactions
from transcf.data.split import Split
from transcf.data.splitters import split_log
from transcf.errors import ParameterError, TransCFError, check_integer, shown
from transcf.evaluation.evaluator import Subset
from transcf.evaluation.metrics import check_lengths
from transcf.evaluation.ranks import Ties
from transcf.evaluation.results import number_repeats
from transcf.experiments.experiment import Candidate, Experiment, ModelSpec, OnProgress
from transcf.experiments.results import TIMED_BASELINE, CandidateResult, Comparison
from transcf.experiments.run import EvalConfig
from transcf.experiments.store import RunLockedError, Store
from transcf.experiments.workers import WorkerCluster, shared_work
from transcf.interrupts import StopRequest, stop_request
from transcf.models.base import Recommender
from transcf.models.registry import distinct

#: One model, several, or several by names in the table.
Models: TypeAlias = str | Recommender[Any] | Iterable[ModelSpec] | Mapping[str, ModelSpec]
#: Yields what it is given and counts it, as progress bars do.
Track: TypeAlias = Callable[[Iterable[Candidate]], Iterable[Candidate]]
#: Baselines of every table.
TRIVIAL_BASELINES = ("popularity", "inverse-popularity", "random")


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
    candidates = candidates_of(models, budget, trivial_baselines=trivial_baselines)
    for candidate in candidates:
        candidate.checked()
    split = split_log(data, protocol, seed=seed)
    candidates = suited_to(split, candidates, budget, trivial_baselines=trivial_baselines)
    name = dataset or (str(data) if isinstance(data, str | Path) else "data")
    numbers = range(seed, seed + seeds)
    kept = None if store is None else Store(store)
    experiment = Experiment(split, config, numbers, on_progress, store=kept, dataset=name)
    with candidate_workers(candidates, experiment, cluster):
        return compare_models(name, candidates, experiment, metric)


def candidates_of(
    models: Models,
    budget: Any = "none",
    *,
    trivial_baselines: bool = True,
) -> list[Candidate]:
    """Return the candidates of the models of `compare`, with the settings that a budget tries."""
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
        listed: Iterable[ModelSpec] = [models] if isinstance(models, str | Recommender) else models
        listed = list(listed)
        made = [Candidate.of(spec) for spec in (distinct() if listed == ["all"] else listed)]
        labels = number_repeats(candidate.name for candidate in made)
        named = [replace(c, name=label) for c, label in zip(made, labels, strict=True)]
    if trivial_baselines:
        there = {candidate.model for candidate in named} | {candidate.name for candidate in named}
        named = [Candidate.of(name) for name in TRIVIAL_BASELINES if name not in there] + named
    return [candidate.within(budget) for candidate in named]


def suited_to(
    split: Split, candidates: Sequence[Candidate], budget: Any, *, trivial_baselines: bool = True
) -> list[Candidate]:
    """For data with times, add settings that use them, and the baseline of recent popularity.

    The half-life of the baseline is always chosen among all values of its search space.
    """
    if split.train.timestamps is None:
        return list(candidates)
    there = {name for candidate in candidates for name in (candidate.model, candidate.name)}
    listed = list(candidates)
    if trivial_baselines and TIMED_BASELINE not in there:
        trivial = sum(candidate.model in TRIVIAL_BASELINES for candidate in candidates)
        listed.insert(trivial, Candidate.of(TIMED_BASELINE))
    return [c.within("large" if c.model == TIMED_BASELINE else budget, timed=True) for c in listed]


def compare_models(
    dataset: str,
    candidates: Sequence[Candidate],
    experiment: Experiment,
    metric: str,
    track: Track = iter,
) -> Comparison:
    """Run all candidates; errors and an interruption are recorded.

    `metric` is that of the paired tests; `track` yields the candidates and counts them. Raises the
    first error if no candidate could be run.
    """
    (found,) = run_tables([TablePlan(dataset, candidates, lambda: experiment, metric)], track)
    if found.failures and not found.runs:
        raise next(iter(found.failures.values()))
    return found


def candidate_workers(
    candidates: Sequence[Candidate], experiment: Experiment, cluster: WorkerCluster | None
) -> AbstractContextManager[None]:
    """Let the workers of a cluster compute runs of candidates inside the block (`shared_work`)."""
    plain = replace(experiment, on_progress=None, store=None)
    return shared_work(_run_candidates, (candidates, plain), experiment.store, cluster=cluster)


def _run_candidates(task: tuple[Sequence[Candidate], Experiment], store: Store) -> None:
    candidates, experiment = task
    compare_models("", candidates, replace(experiment, store=store), "")


@dataclass(eq=False)
class TablePlan:
    """A table to compute."""

    dataset: str
    candidates: Sequence[Candidate]
    open: Callable[[], Experiment]  # opens the data; called when the first candidate is run
    metric: str  # of the paired tests
    about: Mapping[str, Any] = field(default_factory=dict)  # `Comparison.about`
    outcomes: dict[int, CandidateResult | BaseException] = field(default_factory=dict)

    @cached_property
    def experiment(self) -> Experiment:
        """The opened data, with the protocol that fits it."""
        opened = self.open()
        return replace(opened, config=opened.config.on(opened.split))

    def comparison(self) -> Comparison:
        """Return the results so far, in the order of the candidates."""
        ordered = [(self.candidates[n].name, self.outcomes[n]) for n in sorted(self.outcomes)]
        return Comparison(
            self.dataset,
            self.experiment.config,
            self.metric,
            [found for _, found in ordered if isinstance(found, CandidateResult)],
            {name: found for name, found in ordered if isinstance(found, BaseException)},
            self.experiment.split.how,
            self.about,
        )


def run_tables(
    tables: Sequence[TablePlan],
    track: Track = iter,
    on_result: Callable[[list[Comparison]], None] = lambda found: None,
) -> list[Comparison]:
    """Run the candidates of several tables, and return the tables that were started.

    An error of a candidate is recorded, and the others are run. After an interruption nothing more
    is run. Candidates with runs that another process is computing come last. `on_result` is called
    with the tables so far after each finished candidate.
    """
    found: dict[int, Comparison] = {}  # by table; those that are complete keep their tests

    def so_far() -> list[Comparison]:
        return [found[place] for place in sorted(found)]

    with stop_request() as request:
        for wait in (False, True):
            for place, table in enumerate(tables):
                for number, candidate in enumerate((iter if wait else track)(table.candidates)):
                    if number in table.outcomes:
                        continue
                    outcome = _run_candidate(table.experiment, candidate, request, wait=wait)
                    if outcome is not None:
                        table.outcomes[number] = outcome
                        found[place] = table.comparison()
                        on_result(so_far())
                    if isinstance(outcome, KeyboardInterrupt):
                        return so_far()
    return so_far()


def _run_candidate(
    experiment: Experiment, candidate: Candidate, request: StopRequest, *, wait: bool
) -> CandidateResult | BaseException | None:
    """Return the result or the error of a candidate; None if it is left to another process."""
    try:
        if request.asked:
            raise KeyboardInterrupt
        return experiment.run(candidate, wait=wait)
    except RunLockedError:
        return None
    except TransCFError as error:
        return error
    except KeyboardInterrupt:
        return KeyboardInterrupt("interrupted here, and nothing after it was run.")
