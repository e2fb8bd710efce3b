"""The objective of a search: the validation metric of a model for one setting."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import optuna

from transcf.data.split import Split
from transcf.evaluation import Validation
from transcf.experiments.candidate import Candidate
from transcf.experiments.experiment import POLL_SECONDS, as_trial
from transcf.experiments.run import fit_and_validate
from transcf.experiments.store import RunLockedError, Store
from transcf.models.base import Recommender
from transcf.models.training import Epoch, FitOptions
from transcf.tuning.search import Trial
from transcf.tuning.tpe import memory_study, to_frozen

#: Completed trials and validated epochs that are needed before a trial is pruned.
_MIN_TRIALS, _MIN_EPOCHS = 5, 3


@dataclass(frozen=True)
class Objective:
    """Fits a model on the training part and evaluates it on the validation part.

    Attributes:
        model: Name in the registry.
        params: Parameters of all trials.
        split: The data; its test part is not used.
        store: Cache of finished runs, or None.
        dataset: Name of the data in the cache.
    """

    model: str
    params: Mapping[str, Any]
    split: Split = field(repr=False)
    metric: str = "N@10"
    protocol: str | None = None
    seed: int = 0
    store: Store | None = None
    dataset: str = ""

    @cached_property
    def validation(self) -> Validation:
        """Evaluation on the validation part."""
        return Validation.of(self.split, self.protocol, metric=self.metric)

    def make(self, setting: Mapping[str, Any]) -> Recommender[Any]:
        """Create the model of a setting."""
        return Candidate(self.model, self.model, self.params).make(self.seed, setting)

    def run(self, setting: Mapping[str, Any], completed: Collection[Trial] | None = None) -> Trial:
        """Fit and evaluate a setting, or take the result from the cache.

        Args:
            setting: Parameters in addition to `params`.
            completed: Completed trials; a model with epochs is pruned if its best metric is below
                their median at the same epoch. None disables pruning.

        Raises:
            ParameterError: The setting is not valid.
            MissingExtraError: The model needs an optional dependency.
            KeyboardInterrupt: The fit was interrupted.
        """
        model = self.make(setting)
        curve: dict[int, float] = {}
        on_epoch = _follow(curve, completed) if model._has_epochs() else None
        started = time.perf_counter()
        while True:
            try:
                result = fit_and_validate(
                    model,
                    self.split.train,
                    self.validation,
                    self.store,
                    start_fit=lambda _: FitOptions(progress=False, on_epoch=on_epoch),
                    about={"dataset": self.dataset, "model": self.model},
                )
                return as_trial(setting, result)
            except RunLockedError:
                time.sleep(POLL_SECONDS)
            except optuna.TrialPruned:
                seconds = round(time.perf_counter() - started, 3)
                return Trial(setting, "pruned", max(curve.values()), seconds, curve=curve)


def _follow(
    curve: dict[int, float], completed: Collection[Trial] | None
) -> Callable[[Epoch[Any]], None]:
    """Return a callback that records the metric of each epoch and prunes by Optuna's median."""
    pruner = optuna.pruners.MedianPruner(n_startup_trials=_MIN_TRIALS, n_min_trials=_MIN_TRIALS)
    finished = [to_frozen(trial, {}, {}) for trial in completed or ()]
    current = memory_study(finished, pruner=pruner).ask() if finished else None

    def on_epoch(epoch: Epoch[Any]) -> None:
        if epoch.metric is None or epoch.number <= max(curve, default=0):
            return  # not validated, or reported before
        curve[epoch.number] = epoch.metric
        if current is not None:
            current.report(epoch.metric, epoch.number)
            if len(curve) >= _MIN_EPOCHS and current.should_prune():
                raise optuna.TrialPruned

    return on_epoch
