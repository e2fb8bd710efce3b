"""Candidates of a table: for each, choose parameters on validation data and run every seed.

Several processes share the work: each computes runs that are not in the cache and not locked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf
from statistics import mean
from typing import Any, Self, TypeAlias

from transcf.data.split import Split
from transcf.errors import ParameterError, shown
from transcf.experiments.results import CandidateResult, RunResult
from transcf.experiments.run import EvalConfig, fit_and_evaluate, fit_and_validate
from transcf.experiments.search import Budget, Search, Trial, settings_to_try
from transcf.experiments.store import RunLockedError, Store
from transcf.models.base import Recommender
from transcf.models.params import flat_params
from transcf.models.registry import canonical_name, create, current, model_class, name_and_params
from transcf.models.training import Epoch, FitOptions

#: A model by its name, by its name and parameters, or as an object whose settings are taken.
ModelSpec: TypeAlias = "str | tuple[str, Mapping[str, Any]] | Recommender[Any]"
#: Called with one line of text that names the current step.
OnProgress: TypeAlias = Callable[[str], None]

#: Further seeds of the finalists of a search, counted from the first seed; none of a table's.
FINAL_SEEDS = (1001, 1002)


@dataclass(frozen=True)
class Candidate:
    """A model with parameters to choose from."""

    name: str  # in tables
    model: str  # in the registry
    params: Mapping[str, Any] = field(default_factory=dict)
    choices: Sequence[Mapping[str, Any]] = ({},)  # of further parameters, on validation data
    search: Callable[[], Search] | None = None  # proposes them one at a time instead

    @classmethod
    def of(cls, spec: ModelSpec, name: str | None = None) -> Self:
        """Make a candidate; of a model object, parameters that differ from the defaults are set."""
        params: Mapping[str, Any] = {}
        match spec:
            case str():
                model = canonical_name(spec)
            case (str() as model, Mapping() as params):
                model, params = current(model, dict(params))
            case Recommender():
                model, params = name_and_params(spec)
            case _:
                raise ParameterError(
                    f"{shown(spec)} is no model: give a name, a pair of a name and its parameters, "
                    "or a model."
                )
        return cls(name or model, model, params)

    @property
    def takes_seed(self) -> bool:
        """Whether the seed of a run changes its result."""
        return "random_state" in model_class(self.model)._rules().keys() - self.params.keys()

    def make(self, seed: int, choice: Mapping[str, Any] | None = None) -> Recommender[Any]:
        """Make the model; a `random_state` among the parameters replaces the seed."""
        seeded = {"random_state": seed} if self.takes_seed else {}
        return create(self.model, **{**seeded, **flat_params(self.params), **(choice or {})})

    def within(
        self, budget: Any, timed: bool = False, start: Mapping[str, Any] | None = None
    ) -> Self:
        """Return the candidate with the settings that a budget tries; set parameters stay.

        Settings of `start` replace the defaults, and may be searched.
        """
        budget, begun = Budget.of(budget), start or {}
        options: dict[str, Any] = {"fixed": dict(self.params), "start": begun, "timed": timed}
        found = replace(self, params={**begun, **self.params}, choices=({},), search=None)
        if budget.sampler == "tpe" or budget.finalists:
            return replace(found, search=partial(Search, self.model, budget, **options))
        return replace(found, choices=settings_to_try(self.model, budget, **options))

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

    def run(self, candidate: Candidate, *, wait: bool = True) -> CandidateResult:
        """Choose the parameters of a candidate on validation data, then run every seed.

        Runs that other processes are computing come last; unless `wait`, a `RunLockedError` is
        raised once all others are in the cache.

        Example:
            >>> from transcf import open_split
            >>> experiment = Experiment(open_split("synthetic"), EvalConfig())
            >>> experiment.run(Candidate.of("ease")).first.model
            'EASE'
        """
        if wait:
            with suppress(RunLockedError):
                return self.run(candidate, wait=False)
        config = self.config.on(self.split)
        chosen, trials, fitted = self._choose(candidate, config, wait)
        if config.picks_epochs_on_test:  # which needs the metrics of all epochs: fit again
            fitted = None

        def run_seed(seed: int) -> RunResult:
            model = fitted if seed == self.seeds[0] else None
            return fit_and_evaluate(
                model or candidate.make(seed, chosen),
                self.split,
                config,
                self.store,
                is_fitted=model is not None,
                start_fit=lambda step: self._options(
                    candidate, f"seed {seed}" if step == "fit" else f"seed {seed}, {step}"
                ),
                about=self._about(candidate),
                wait=wait,
            )

        results = _unlocked(run_seed, self.seeds if candidate.takes_seed else self.seeds[:1])
        for found in results:
            if found.error is not None:
                raise found.error
        return CandidateResult.of(candidate.name, results, chosen, trials)

    def _choose(
        self, candidate: Candidate, config: EvalConfig, wait: bool
    ) -> tuple[Mapping[str, Any], list[RunResult], Recommender[Any] | None]:
        """Return the best choice, the trials of all, and the best model if it was fitted here."""
        search = None if candidate.search is None else candidate.search()
        choices = list(candidate.choices) if search is None else []
        if search is None and len(choices) == 1:
            return choices[0], [], None
        total = len(choices) if search is None else search.budget.trials
        validation, first = config.validation(self.split), self.seeds[0]
        best: tuple[float, Recommender[Any] | None] = (-inf, None)

        def run_trial(number: int, seed: int = first) -> RunResult:
            nonlocal best
            model = candidate.make(seed, choices[number])
            again = "" if seed == first else f", seed {seed}"
            step = f"setting {number + 1} of {total}{again}"
            result = fit_and_validate(
                model,
                self.split.train,
                validation,
                self.store,
                start_fit=lambda _: self._options(candidate, step),
                about=self._about(candidate),
                wait=wait,
                max_seconds=config.max_seconds,
            )
            if seed == first and _metric_of(result) > best[0]:
                best = _metric_of(result), model if model.is_fitted else None
            return result

        if search is None:
            trials = _unlocked(run_trial, range(total))
            return choices[_best_of(trials)], trials, best[1]
        trials = []
        while (choice := search.ask()) is not None:
            choices.append(choice)
            trials.append(run_trial(len(trials)))
            search.tell(Trial.of(choice, trials[-1]))
        winner = final = _best_of(trials)
        if search.budget.finalists and candidate.takes_seed:
            order = sorted(range(len(trials)), key=lambda number: -_metric_of(trials[number]))
            means = {}
            for number in order[: search.budget.finalists]:
                again = [run_trial(number, first + more) for more in FINAL_SEEDS]
                means[number] = mean(map(_metric_of, (trials[number], *again)))
                trials += again
            final = max(means, key=means.__getitem__)
        return choices[final], trials, best[1] if final == winner else None

    def _about(self, candidate: Candidate) -> dict[str, str]:
        return {"dataset": self.dataset, "model": canonical_name(candidate.model)}

    def _options(self, candidate: Candidate, step: str) -> FitOptions:
        """Report a step and its epochs; without a listener, epochs have a progress bar."""
        report, text = self.on_progress, f"{candidate.name}, {step}"
        if report is None:
            return FitOptions()
        report(text)

        def on_epoch(epoch: Epoch[Any]) -> None:
            report(f"{text}, epoch {epoch.number}")

        return FitOptions(progress=False, on_epoch=on_epoch)


def _unlocked(run: Callable[[int], RunResult], numbers: Sequence[int]) -> list[RunResult]:
    """Call `run` with each number; after all others, raise a `RunLockedError` if one is locked."""
    results = []
    for number in numbers:
        with suppress(RunLockedError):
            results.append(run(number))
    if len(results) < len(numbers):
        raise RunLockedError
    return results


def _best_of(trials: Sequence[RunResult]) -> int:
    """Return the number of the best trial; raise the error of the first if all have failed."""
    best = max(range(len(trials)), key=lambda number: _metric_of(trials[number]))
    if (error := trials[best].error) is not None:
        raise error
    return best


def _metric_of(trial: RunResult) -> float:
    return -inf if trial.validation is None else trial.validation
