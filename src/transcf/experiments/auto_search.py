"""Trials of `auto`: fit models within a time limit, and compare them on validation data."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

import numpy as np
import numpy.typing as npt

from transcf.data.interactions import Interactions
from transcf.data.split import Split
from transcf.errors import FitWarning, TransCFError
from transcf.experiments.run import EvalConfig, RunKey, fit_and_evaluate
from transcf.experiments.run_result import RunResult
from transcf.experiments.store import RunLockedError, Store
from transcf.interrupts import StopRequest
from transcf.models.base import Recommender
from transcf.models.families import IterationSettings, LogSizes
from transcf.models.params import values_of
from transcf.models.registry import create
from transcf.models.training import Epoch, FitOptions

#: Models whose cost grows by this power of the number of items.
DENSE = {"ease": 3, "slim": 2}
#: Events of a sample on which the time of a fit is estimated; smaller logs need no estimate.
_SAMPLE = 20_000
#: Items of the sample for these models.
_SAMPLE_ITEMS = 3_000
#: Time of a refit against a fit on the training part, which has fewer events.
_MORE_EVENTS = 1.25


class OutOfTimeError(Exception):
    """A fit was stopped because it would exceed the time limit."""


@dataclass(eq=False)
class AutoTrial:
    """A model with a setting, evaluated on the validation part.

    Attributes:
        name: Name of the model in the registry.
        setting: Parameters that differ from the defaults, without `epochs` of a smaller budget.
        share: Share of the default epochs; 1 for models without epochs.
        result: The run; with an error if the model could not be fitted.
        model: The model, fitted unless the result was stored; None once it is not needed.
        parts: The trials that a blend is made of.
    """

    name: str
    setting: Mapping[str, Any]
    share: float
    result: RunResult
    model: Recommender[Any] | None = None
    parts: Sequence[AutoTrial] = ()

    @property
    def label(self) -> str:
        """Name and parameters for tables."""
        return str(self.setting["parts"]) if self.parts else _labelled(self.name, self.params)

    @property
    def params(self) -> dict[str, Any]:
        """Parameters that the model is made with."""
        epochs = {} if self.share == 1 else {"epochs": self.result.parameters["epochs"]}
        return {**self.setting, **epochs}

    @property
    def is_default(self) -> bool:
        """Whether the model has its defaults, be it with fewer epochs."""
        return not self.setting and not self.parts

    @property
    def refit_seconds(self) -> float:
        """Estimated time of a fit on all events, with the epoch that was chosen."""
        if self.parts:
            return sum(part.refit_seconds for part in self.parts)
        result = self.result
        seconds = result.parts.get("training_seconds", result.seconds)
        if result.best_epoch is not None and result.curve:
            seconds *= result.best_epoch / len(result.curve)
        return _MORE_EVENTS * seconds

    @property
    def fit_seconds(self) -> float:
        """Time to fit the model again if it is not in memory."""
        if self.model is not None and self.model.is_fitted:
            return 0.0
        return sum(part.fit_seconds for part in self.parts) if self.parts else self.result.seconds


@dataclass(eq=False)
class Search:
    """State of a search.

    Attributes:
        log: All events.
        split: The same events in three parts.
        metric: What is compared.
        config: How the validation part is evaluated.
        store: The run cache, or None.
        seed: Seed of models and proposals.
        limit: Time limit in seconds.
        request: Whether Ctrl-C was pressed.
        started: Time of the start, as `perf_counter` counts.
        on_progress: Called with the elapsed seconds and one line of text.
        stored_seconds: Time that stored runs took when they were computed.
        trials: All trials so far.
        skipped: Models that were not tried, with the reason.
        reserved: Seconds to keep for blends of the best models.
        sampled: Estimated seconds per fit with default settings, by model.
    """

    log: Interactions
    split: Split
    metric: str
    config: EvalConfig
    store: Store | None
    seed: int
    limit: float
    request: StopRequest
    started: float
    on_progress: Callable[[float, str], None] | None = None
    stored_seconds: float = 0.0
    trials: list[AutoTrial] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)
    reserved: float = 0.0
    sampled: dict[str, float] = field(default_factory=dict)

    @property
    def elapsed(self) -> float:
        """Seconds since the start, with those of stored runs."""
        return perf_counter() - self.started + self.stored_seconds

    @property
    def evaluation_seconds(self) -> float:
        """Time of one evaluation, measured with popularity, whose fit takes next to none."""
        return self.trials[0].result.spent if self.trials else 0.0

    def value(self, trial: AutoTrial) -> float:
        """Return the validation metric of a trial; below all others if it failed."""
        found = trial.result.evaluation
        return -math.inf if found is None else found.metrics[self.metric].mean

    def ranked(self) -> list[AutoTrial]:
        """Return the best trial of each model, the best first."""
        best: dict[str, AutoTrial] = {}
        for trial in self.trials:
            if trial.result.error is None and not trial.parts:
                best.setdefault(trial.name, trial)
                if self.value(trial) > self.value(best[trial.name]):
                    best[trial.name] = trial
        return sorted(best.values(), key=self.value, reverse=True)

    def _per_user(self, trial: AutoTrial) -> npt.NDArray[np.float64]:
        assert trial.result.evaluation is not None
        return trial.result.evaluation.per_user[self.metric].to_numpy()

    def gains(self, trial: AutoTrial, over: AutoTrial) -> bool:
        """Return whether the paired gain over another trial exceeds one standard error."""
        difference = self._per_user(trial) - self._per_user(over)
        spread = difference.std(ddof=1) if len(difference) > 1 else math.inf
        return bool(difference.mean() > spread / math.sqrt(len(difference)))

    def winner(self) -> AutoTrial:
        """Return the trial to use.

        It is the best of the defaults, unless the paired gain of another setting over it exceeds
        one standard error: the best of many settings looks better than it is. In the same way a
        blend has to be better than the best single model.
        """
        done = [trial for trial in self.trials if trial.result.error is None]
        done.sort(key=self.value, reverse=True)
        best = next(trial for trial in done if trial.is_default)
        for others in (
            [trial for trial in done if not trial.is_default and not trial.parts],
            [trial for trial in done if trial.parts],
        ):
            best = next((trial for trial in others if self.gains(trial, best)), best)
        return best

    def runner_up(self, winner: AutoTrial) -> AutoTrial | None:
        """Return the best trial of another model than the winner's."""
        return next((trial for trial in self.ranked() if trial.name != winner.name), None)

    def finish_seconds(self) -> float:
        """Return the estimated time of the final tests and fits, with the best trials so far."""
        if not self.trials:
            return 0.0
        winner = self.winner()
        cost = winner.fit_seconds + 2 * winner.refit_seconds + 4 * self.evaluation_seconds
        if (second := self.runner_up(winner)) is not None:
            cost += second.fit_seconds + second.refit_seconds
        return cost

    def has_time(self, seconds: float, refit_seconds: float) -> bool:
        """Return whether a trial can be run and, if it is the best, refitted twice."""
        if_it_wins = 2 * refit_seconds + 4 * self.evaluation_seconds
        if self.trials:
            if_it_wins += self.winner().refit_seconds
        needed = seconds + max(if_it_wins, self.finish_seconds())
        return self.elapsed + needed + self.reserved <= self.limit

    def check_interrupt(self) -> None:
        """Raise `KeyboardInterrupt` if Ctrl-C was pressed."""
        if self.request.asked:
            raise KeyboardInterrupt

    def report(self, text: str) -> None:
        """Report progress, with the best trial so far."""
        if self.on_progress is not None:
            best = max(self.trials, key=self.value, default=None)
            known = "" if best is None else f"best {best.name} {self.value(best):.4f}; "
            self.on_progress(self.elapsed, f"{known}{text}")


def default_epochs(search: Search, name: str) -> int:
    """Return the default number of epochs of a model; 0 for models without epochs."""
    settings: Any = create(name).settings
    if not isinstance(settings, IterationSettings):
        return 0
    if hasattr(settings, "for_log"):
        settings = settings.for_log(LogSizes.of(search.split.train))
    return int(settings.epochs)


def try_setting(
    search: Search, name: str, setting: Mapping[str, Any], share: float
) -> AutoTrial | None:
    """Fit and evaluate a model with a setting; None if there is no time for it."""
    search.check_interrupt()
    for trial in search.trials:
        if (trial.name, trial.share) == (name, share) and trial.setting == setting:
            return trial
    epochs = max(1, round(share * default_epochs(search, name))) if share < 1 else None
    params = {**setting, **({} if epochs is None else {"epochs": epochs})}
    model = make_model(search, name, params)
    label = _labelled(name, params)
    is_first = not search.trials  # popularity: without it there is no result at all
    if not is_first and not is_stored(search, model, search.split, search.config):
        if not search.has_time(0.0, 0.0):
            search.skipped[label] = "no time"
            return None
        try:
            seconds = _estimate(search, name, params)
        except TransCFError as error:  # as a missing extra
            search.skipped[label] = str(error)
            return None
        if not search.has_time(seconds, _MORE_EVENTS * seconds):
            search.skipped[label] = f"no time: about {seconds:.0f} s for one fit"
            return None
    search.report(f"trying {label}")
    try:
        result = evaluate_trial(search, model)
    except OutOfTimeError:
        search.skipped[label] = "stopped: it took longer than expected"
        return None
    except TransCFError as error:
        if is_first:
            raise
        result = RunResult(type(model).__name__, values_of(model.settings), error=error)
    return add_trial(search, AutoTrial(name, dict(setting), share, result, model))


def make_model(search: Search, name: str, params: Mapping[str, Any]) -> Recommender[Any]:
    """Make a model with the seed of the search."""
    has_seed = "random_state" in values_of(create(name).settings)
    return create(name, **({"random_state": search.seed} if has_seed else {}), **params)


def _labelled(name: str, params: Mapping[str, Any]) -> str:
    listed = ", ".join(f"{key}={value}" for key, value in params.items())
    return f"{name}({listed})" if params else name


def add_trial(search: Search, trial: AutoTrial) -> AutoTrial:
    """Add a trial, and keep only the best model of each name in memory."""
    if trial.result.stored:
        search.stored_seconds += trial.result.spent
    search.trials.append(trial)
    kept = [id(one) for one in (*search.ranked(), trial if trial.parts else None)]
    for one in search.trials:
        if not one.parts and id(one) not in kept:
            one.model = None
    return trial


def is_stored(search: Search, model: Recommender[Any], split: Split, config: EvalConfig) -> bool:
    """Return whether the run cache has the result of a model."""
    if search.store is None:
        return False
    return search.store.find(RunKey.evaluated(model, split, config)) is not None


def evaluate_trial(
    search: Search, model: Recommender[Any], *, is_fitted: bool = False
) -> RunResult:
    """Fit a model on the training part and evaluate it on the validation part."""
    latest = search.limit - search.finish_seconds()

    def on_epoch(epoch: Epoch[Any]) -> None:
        if search.trials and search.elapsed > latest:
            raise OutOfTimeError

    options = FitOptions(progress=False, on_epoch=on_epoch)
    return run_stored(search, model, search.split, search.config, options, is_fitted=is_fitted)


def run_stored(
    search: Search,
    model: Recommender[Any],
    split: Split,
    config: EvalConfig,
    options: FitOptions,
    *,
    is_fitted: bool,
) -> RunResult:
    """Take a run from the cache or compute it; also if another process is computing it."""

    def run(store: Store | None) -> RunResult:
        return fit_and_evaluate(
            model,
            split,
            config,
            store,
            is_fitted=is_fitted,
            start_fit=lambda step: options,
            about={"dataset": "auto", "model": model.name},
        )

    with warnings.catch_warnings():
        # A search tries poor settings, too; the metric says how poor they are.
        warnings.simplefilter("ignore", FitWarning)
        try:
            return run(search.store)
        except RunLockedError:
            return run(None)


# -- time --------------------------------------------------------------------------------------


def _estimate(search: Search, name: str, params: Mapping[str, Any]) -> float:
    """Estimate the seconds of a trial from earlier trials of the model, or from a sample."""
    epochs, usual = default_epochs(search, name), values_of(create(name).settings)
    work = params.get("epochs", epochs) or 1
    known = []
    for trial in search.trials:
        if trial.name == name and trial.result.error is None:
            before = trial.result.parameters
            larger = params.get("dim", usual.get("dim", 1)) / before.get("dim", 1)
            known.append(trial.result.spent * work / before.get("epochs", 1) * max(1.0, larger))
    if known:
        return float(min(known))
    if name not in search.sampled:
        search.sampled[name] = _sample_seconds(search, name)
    return search.sampled[name] * work / (epochs or 1) + search.evaluation_seconds


def _sample_seconds(search: Search, name: str) -> float:
    """Estimate the time of a fit with default settings from a fit on a sample of the events."""
    train, epochs = search.split.train, default_epochs(search, name)
    rng, sample, factor = np.random.default_rng(search.seed), train, 1.0
    if name in DENSE and train.n_items > _SAMPLE_ITEMS:
        taken = rng.permutation(train.n_items) < _SAMPLE_ITEMS
        sample = train.select(taken[train.item_rows], drop_ids=True)
        factor = (train.n_items / max(1, sample.n_items)) ** DENSE[name]
    elif len(train) > _SAMPLE:
        taken = rng.random(train.n_users) < _SAMPLE / len(train)
        sample = train.select(taken[train.user_rows])
        factor = len(train) / max(1, len(sample))
    if not len(sample) or (sample is train and not epochs):
        return 0.0
    model = make_model(search, name, {"epochs": 1} if epochs else {})
    model.fit(sample, None, FitOptions(progress=False))
    return float(model.report_["seconds"] * factor * (epochs or 1))
