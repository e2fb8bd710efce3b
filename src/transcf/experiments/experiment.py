"""Experiments: for each candidate, choose parameters on validation data and run every seed."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from math import inf
from typing import Any, TypeAlias

from transcf.data.split import Split
from transcf.evaluation import Validation
from transcf.experiments.candidate import Candidate
from transcf.experiments.eval_config import EvalConfig
from transcf.experiments.run import fit_and_evaluate, fit_and_validate
from transcf.experiments.run_result import CandidateResult, RunResult
from transcf.experiments.store import RunLockedError, Store
from transcf.models.base import Recommender
from transcf.models.registry import canonical_name
from transcf.models.training import Epoch, FitOptions
from transcf.tuning import Search, Trial

#: Called with one line of text that names the current step.
OnProgress: TypeAlias = Callable[[str], None]
#: Time between two looks at runs that other processes compute.
POLL_SECONDS = 0.1


@dataclass(frozen=True)
class Experiment:
    """Data, evaluation and seeds that all candidates of a table share.

    Attributes:
        split: The data.
        config: How to evaluate.
        seeds: At least one; a model without randomness is run with the first one only.
        on_progress: Called at every step; without it, epochs show on a terminal.
        store: Cache of finished runs; None computes everything.
        dataset: Name of the data in the cache.
    """

    split: Split
    config: EvalConfig
    seeds: Sequence[int] = (0,)
    on_progress: OnProgress | None = None
    store: Store | None = None
    dataset: str = ""

    def run(self, candidate: Candidate) -> CandidateResult:
        """Run a candidate; wait for runs that other processes compute.

        Example:
            >>> from transcf import open_split
            >>> experiment = Experiment(open_split("synthetic"), EvalConfig())
            >>> experiment.run(Candidate.of("ease")).first.model
            'EASE'
        """
        run = CandidateRun(self, candidate)
        while True:
            try:
                return run.attempt()
            except RunLockedError:
                time.sleep(POLL_SECONDS)


class CandidateRun:
    """The runs of one candidate: trials of parameters, then one run per seed.

    Args:
        experiment: Where and how.
        candidate: The model, with parameters to choose from.
    """

    def __init__(self, experiment: Experiment, candidate: Candidate) -> None:
        self._experiment, self._candidate = experiment, candidate
        self._choices = list(candidate.choices) if candidate.search is None else []
        self._trials: dict[int, RunResult] = {}
        self._results: dict[int, RunResult] = {}
        #: The best model that was fitted here, with its metric and the number of its trial.
        self._best: tuple[float, int, Recommender[Any]] | None = None

    def attempt(self) -> CandidateResult:
        """Compute all runs but those that other processes are computing.

        Raises:
            RunLockedError: There are such runs; call again later, finished runs are kept.
            TransCFError: The model cannot be trained.
        """
        self._run_trials()
        trials = [self._trials[number] for number in range(len(self._trials))]
        chosen = _best_of(trials) if trials else 0
        experiment = self._experiment
        seeds = experiment.seeds if self._candidate.takes_seed else experiment.seeds[:1]
        for seed in seeds:
            if seed not in self._results:
                with suppress(RunLockedError):
                    self._results[seed] = self._run_seed(seed, chosen)
        if any(seed not in self._results for seed in seeds):
            raise RunLockedError
        results = [self._results[seed] for seed in seeds]
        for found in results:
            if found.error is not None:
                raise found.error
        return CandidateResult(self._candidate.name, results, self._choices[chosen], trials)

    @cached_property
    def _search(self) -> Search | None:
        return None if self._candidate.search is None else self._candidate.search()

    def _run_trials(self) -> None:
        """Run one trial for each choice, or as a search proposes them; no trial for one choice."""
        search = self._search
        if search is None:
            total = len(self._choices) if len(self._choices) > 1 else 0
            for number in range(total):
                if number not in self._trials:
                    with suppress(RunLockedError):
                        self._trials[number] = self._run_trial(number, total)
            if len(self._trials) < total:
                raise RunLockedError
            return
        while True:
            number = len(self._trials)
            if number == len(self._choices):
                if (choice := search.ask()) is None:
                    return
                self._choices.append(choice)
            self._trials[number] = self._run_trial(number, search.budget.trials)
            search.tell(as_trial(self._choices[number], self._trials[number]))

    def _run_trial(self, number: int, total: int) -> RunResult:
        experiment = self._experiment
        model = self._candidate.make(experiment.seeds[0], self._choices[number])
        result = fit_and_validate(
            model,
            experiment.split.train,
            self._validation,
            experiment.store,
            start_fit=lambda _: self._options(f"setting {number + 1} of {total}"),
            about=self._about,
        )
        metric = result.validation
        if model.is_fitted and metric is not None and (not self._best or metric > self._best[0]):
            self._best = metric, number, model
        return result

    def _run_seed(self, seed: int, chosen: int) -> RunResult:
        experiment = self._experiment
        model, is_fitted = self._candidate.make(seed, self._choices[chosen]), False
        best, self._best = self._best, None
        if best is not None and best[1] == chosen and seed == experiment.seeds[0]:
            # A protocol that picks epochs on test needs the metrics of all epochs: fit again.
            is_fitted = not self._config.picks_epochs_on_test
            model = best[2] if is_fitted else model
        return fit_and_evaluate(
            model,
            experiment.split,
            self._config,
            experiment.store,
            is_fitted=is_fitted,
            start_fit=lambda step: self._options(
                f"seed {seed}" if step == "fit" else f"seed {seed}, {step}"
            ),
            about=self._about,
        )

    @cached_property
    def _config(self) -> EvalConfig:
        return self._experiment.config.on(self._experiment.split)

    @cached_property
    def _validation(self) -> Validation:
        return self._config.validation(self._experiment.split)

    @property
    def _about(self) -> dict[str, str]:
        model = canonical_name(self._candidate.model)
        return {"dataset": self._experiment.dataset, "model": model}

    def _options(self, step: str) -> FitOptions:
        """Report a step and its epochs; without a listener, epochs have a progress bar."""
        report = self._experiment.on_progress
        if report is None:
            return FitOptions()
        text = f"{self._candidate.name}, {step}"
        report(text)

        def on_epoch(epoch: Epoch[Any]) -> None:
            report(f"{text}, epoch {epoch.number}")

        return FitOptions(progress=False, on_epoch=on_epoch)


def as_trial(setting: Mapping[str, Any], found: RunResult) -> Trial:
    """Convert the result of a setting to a trial of a search."""
    if found.error is not None:
        return Trial(setting, "failed", None, found.spent, reason=str(found.error))
    curve = {
        epoch["epoch"]: epoch["metric"] for epoch in found.curve if epoch["metric"] is not None
    }
    return Trial(setting, "complete", found.validation, found.spent, found.best_epoch, curve)


def _best_of(trials: Sequence[RunResult]) -> int:
    """Return the number of the best trial, the first of equal ones.

    Raises:
        TransCFError: No trial could be trained; the error of the first.
    """
    metrics = [-inf if found.validation is None else found.validation for found in trials]
    best = max(range(len(trials)), key=metrics.__getitem__)
    if (error := trials[best].error) is not None:
        raise error
    return best
