"""Trials of `auto`: fit models within a time limit, and compare them on validation data."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Any

import numpy as np

from transcf.data.interactions import Interactions
from transcf.data.split import Split
from transcf.errors import EvaluationError, FitWarning, TransCFError
from transcf.experiments.experiment import Candidate
from transcf.experiments.results import RunResult
from transcf.experiments.run import EvalConfig, RunKey, fit_and_evaluate
from transcf.experiments.store import RunLockedError, Store
from transcf.interrupts import StopRequest
from transcf.models.base import Recommender
from transcf.models.blend import CACHE_BYTES, Blend, Part
from transcf.models.families import IterationSettings, LogSizes
from transcf.models.params import values_of
from transcf.models.registry import create, name_and_params
from transcf.models.training import Epoch, FitOptions

#: Models whose cost grows by this power of the number of items. That of EASE grows by the third in
#: the end, but less up to the items with which it is tried.
DENSE = {"ease": 2, "slim": 2}
#: Events of samples on which the time of a fit is estimated, and items for dense models.
_SAMPLES, _ITEM_SAMPLES = (75_000, 150_000), (1_500, 3_000)
#: Logs of up to this multiple of the larger sample need no estimate: fits can be stopped after any
#: epoch, and those without epochs take seconds.
_NO_SAMPLE = 1.5
#: The larger sample is used if an estimate is longer than this, and the sample takes at most this
#: share of the time limit.
_SURE_SECONDS, _SAMPLE_SHARE = 2.0, 0.05
#: Time of a refit against a fit on the training part, which has fewer events.
_MORE_EVENTS = 1.25
#: Rankings, as long as one of an evaluation, by which a fit chooses its epoch and its trend, and
#: their users.
_EPOCH_RANKINGS, _TREND_RANKINGS, _CHOOSING_USERS = 5, 15, 1_000
#: Epochs or seconds after which the time of a fit is known well enough to stop it, and the share
#: of that time that has to be left.
_SURE_EPOCHS, _SURE_AFTER, _SLACK = 3, 5.0, 0.9
#: Trials of the search for the weights of a blend, by the number of parts.
_WEIGHT_TRIALS = {2: 25, 3: 100}
#: Seconds for one score of one part in such a trial.
_SCORE_SECONDS = 1.5e-9
#: Standard errors that a gain has to exceed are 1 + this / sqrt(users).
_CAUTION = 8.0


class OutOfTimeError(Exception):
    """A trial was stopped because it would exceed the time limit; it would take `seconds`."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds = seconds


@dataclass(eq=False)
class AutoTrial:
    """A model with a setting, evaluated on the validation part."""

    name: str  # in the registry
    setting: Mapping[str, Any]  # what differs from the defaults, without `epochs` of a small budget
    share: float  # of the default epochs; 1 for models without epochs
    result: RunResult  # with an error if the model could not be fitted
    model: Recommender[Any] | None = None  # fitted unless the result was stored, while needed
    parts: Sequence[AutoTrial] = ()  # of a blend

    @property
    def label(self) -> str:
        """Name and parameters."""
        return str(self.setting["parts"]) if self.parts else labelled(self.name, self.params)

    @property
    def params(self) -> dict[str, Any]:
        """Parameters that the model is made with."""
        epochs = {} if self.share == 1 else {"epochs": self.result.parameters["epochs"]}
        return {**self.setting, **epochs}

    @property
    def evaluation_seconds(self) -> float:
        """Time of the evaluation."""
        fitted = self.parts or [self]
        return sum(max(0.0, one.result.spent - one.result.seconds) for one in fitted)

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
class AutoSearch:
    """State of a search."""

    log: Interactions  # all events
    split: Split  # the same events, with a sample of many validation users
    tested: Split  # the same events, with a sample of many test users
    metric: str
    config: EvalConfig  # how the validation part is evaluated
    store: Store | None
    seed: int
    limit: float  # seconds
    request: StopRequest
    started: float  # as `perf_counter` counts
    on_progress: Callable[[float, str], None] | None = None
    stored_seconds: float = 0.0  # that stored runs took when they were computed
    trials: list[AutoTrial] = field(default_factory=list)  # the first is popularity
    skipped: dict[str, str] = field(default_factory=dict)  # reasons by model
    untested: str = ""  # why the winner was not tested
    tests_second: bool = False  # whether to keep time to test the second best model
    reserved: float = 0.0  # seconds to keep for blends of the best models
    blend_factor: float = 1.0  # measured time of blends against its estimate
    _whole_fits: dict[str, float] = field(default_factory=dict)  # estimated seconds with defaults

    @property
    def elapsed(self) -> float:
        """Seconds since the start, with those of stored runs."""
        return perf_counter() - self.started + self.stored_seconds

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

    # -- the choice ----------------------------------------------------------------------------

    def value(self, trial: AutoTrial) -> float:
        """Return the validation metric of a trial; below all others if it failed."""
        found = trial.result.evaluation
        return -math.inf if found is None else found.metrics[self.metric].mean

    def ranked(self) -> list[AutoTrial]:
        """Return the best trial of each model, the best first; of equal trials the first."""
        best: dict[str, AutoTrial] = {}
        for trial in sorted(self.trials, key=self.value, reverse=True):
            if trial.result.error is None and not trial.parts:
                best.setdefault(trial.name, trial)
        return list(best.values())

    def gains(self, trial: AutoTrial, over: AutoTrial) -> bool:
        """Return whether the paired gain over another trial is larger than chance makes it.

        It has to exceed one standard error, and more with few users.
        """
        one, other = trial.result.evaluation, over.result.evaluation
        assert one is not None
        assert other is not None
        difference = (one.per_user[self.metric] - other.per_user[self.metric]).to_numpy()
        root = math.sqrt(len(difference))
        spread = difference.std(ddof=1) if len(difference) > 1 else math.inf
        return bool(difference.mean() > (1 + _CAUTION / root) * spread / root)

    def winner(self) -> AutoTrial:
        """Return the best of the defaults, unless another setting or a blend gains over it.

        The best of many settings looks better than it is. Of a default that was tried with more and
        with fewer epochs the former counts.
        """
        done = [trial for trial in self.trials if trial.result.error is None]
        done.sort(key=self.value, reverse=True)
        share = {trial.name: trial.share for trial in sorted(done, key=lambda one: one.share)}
        best = next(one for one in done if not one.setting and one.share == share[one.name])
        for others in (
            [trial for trial in done if not trial.parts],
            [trial for trial in done if trial.parts],
        ):
            best = next((trial for trial in others if self.gains(trial, best)), best)
        return best

    # -- time ----------------------------------------------------------------------------------

    @property
    def evaluation_seconds(self) -> float:
        """Time of one evaluation of a model that scores fast."""
        return min((trial.evaluation_seconds for trial in self.trials), default=0.0)

    @property
    def test_users(self) -> float:
        """Number of test events against that of validation events."""
        return len(self.tested.test) / max(1, len(self.split.validation))

    def finish_seconds(self) -> float:
        """Return the estimated time of the final tests and fits, with the best trials so far."""
        if not self.trials:
            return 0.0
        winner = self.winner()
        others = [trial for trial in self.ranked() if trial.name != winner.name]
        others = others[: int(self.tests_second)]
        tested = dict.fromkeys((winner, *others, self.trials[0]))
        return winner.refit_seconds + sum(
            one.fit_seconds + one.refit_seconds + self.test_users * one.evaluation_seconds
            for one in tested
        )

    def has_time(self, seconds: float, refit_seconds: float) -> bool:
        """Return whether a trial can be run and, if it is the best, refitted twice."""
        if_it_wins = 2 * refit_seconds + 2 * (1 + self.test_users) * self.evaluation_seconds
        if self.trials:
            if_it_wins += self.winner().refit_seconds
        needed = seconds + max(if_it_wins, self.finish_seconds())
        return self.elapsed + needed + self.reserved <= self.limit

    def _estimate(self, name: str, params: Mapping[str, Any]) -> tuple[float, float]:
        """Estimate the seconds of a trial, and those of its training, which a refit repeats.

        It goes by earlier trials of the model, or by a fit on a sample.
        """
        epochs, usual = self.default_epochs(name), values_of(create(name).settings)
        work = params.get("epochs", epochs) or 1
        known = []
        for trial in self.trials:
            if trial.name == name and trial.result.error is None:
                before = trial.result.parameters
                larger = params.get("dim", usual.get("dim", 1)) / before.get("dim", 1)
                known.append(trial.result.spent * work / before.get("epochs", 1) * max(1.0, larger))
        if known:
            return min(known), min(known)
        if name not in self._whole_fits:
            self._whole_fits[name] = self._sample_seconds(name)
        training = self._whole_fits[name] * work / (epochs or 1)
        # Epoch and trend are chosen on some of the users.
        rankings = _EPOCH_RANKINGS * bool(epochs)
        rankings += _TREND_RANKINGS * (self.split.train.timestamps is not None)
        users = int(np.count_nonzero(self.split.validation.user_counts))
        evaluations = 1 + rankings * min(1.0, _CHOOSING_USERS / users)
        return training + self.evaluation_seconds * evaluations, training

    def _reason_to_skip(self, name: str, params: Mapping[str, Any]) -> str | None:
        """Return why a setting cannot be tried; None if there is time for it."""
        if not self.has_time(0.0, 0.0):
            return "no time"
        try:
            seconds, training = self._estimate(name, params)
        except TransCFError as error:  # as a missing extra
            return str(error)
        if self.has_time(seconds, _MORE_EVENTS * training):
            return None
        return f"no time: about {seconds:.0f} s for one fit" if seconds >= 1 else "no time"

    def _sample_seconds(self, name: str) -> float:
        """Estimate the time of a fit with default settings from fits on samples of the events.

        The lower one counts: a first fit may load kernels, and a small one has more overhead.
        """
        train, epochs = self.split.train, self.default_epochs(name)
        power, by_items = DENSE.get(name, 1), name in DENSE
        owners, n_owners = train.user_rows, train.n_users
        whole, sizes = len(train), _SAMPLES
        if by_items:
            owners, n_owners = train.item_rows, train.n_items
            whole, sizes = train.n_items, _ITEM_SAMPLES
        draws = np.random.default_rng(self.seed).random(n_owners)[owners]
        if whole <= _NO_SAMPLE * sizes[-1]:
            return 0.0
        found = math.inf
        for size in sizes:
            sample = train.select(draws * whole < size, drop_ids=by_items)
            if not len(sample):
                continue
            model = self.make_model(name, {"epochs": 1} if epochs else {})
            model.fit(sample, None, FitOptions(progress=False))
            seconds = model.report_["seconds"]
            larger = whole / (sample.n_items if by_items else len(sample))
            found = min(found, seconds * larger**power * (epochs or 1))
            if found < _SURE_SECONDS or 2**power * seconds > _SAMPLE_SHARE * self.limit:
                break
        return found if found < math.inf else 0.0

    def _blend_seconds(self, parts: Sequence[AutoTrial]) -> float:
        """Estimate the time to choose the weights of a blend and to evaluate it."""
        users = int(np.count_nonzero(self.split.validation.user_counts))
        scores = min(users * self.split.train.n_items * len(parts), CACHE_BYTES // 4)
        seconds = _WEIGHT_TRIALS[len(parts)] * (scores * _SCORE_SECONDS + self.evaluation_seconds)
        # Scores are computed by one thread for the search, and by all for the evaluation.
        return seconds + sum(part.fit_seconds + 3 * part.evaluation_seconds for part in parts)

    # -- trials --------------------------------------------------------------------------------

    def default_epochs(self, name: str) -> int:
        """Return the default number of epochs of a model; 0 for models without epochs."""
        return self._epochs_of(create(name))

    def _epochs_of(self, model: Recommender[Any]) -> int:
        if not isinstance(model.settings, IterationSettings):
            return 0
        return model.settings.for_log(LogSizes.of(self.split.train)).epochs

    def make_model(self, name: str, params: Mapping[str, Any]) -> Recommender[Any]:
        """Make a model with the seed of the search."""
        return Candidate(name, name, params).make(self.seed)

    def try_setting(self, name: str, setting: Mapping[str, Any], share: float) -> AutoTrial | None:
        """Fit and evaluate a model with a setting; None if there is no time for it."""
        self.check_interrupt()
        for trial in self.trials:
            if (trial.name, trial.share) == (name, share) and trial.setting == setting:
                return trial
        params, epochs = dict(setting), self.default_epochs(name)
        if share < 1:
            params["epochs"] = max(1, round(share * epochs))
        model, label = self.make_model(name, params), labelled(name, params)
        is_first = not self.trials  # popularity: without it there is no result at all
        if not is_first and not self.is_stored(model):
            reason = self._reason_to_skip(name, params)
            if reason is not None:
                self.skipped[label] = reason
                return None
        self.report(f"trying {label}")
        try:
            result = self.evaluate(model)
        except OutOfTimeError as late:
            self._whole_fits[name] = late.seconds * epochs / params.get("epochs", epochs or 1)
            self.skipped[label] = f"no time: about {late.seconds:.0f} s for one fit"
            return None
        except TransCFError as error:
            if is_first and isinstance(error, EvaluationError):
                raise EvaluationError(
                    f"The log is too small to compare models on held-out events: {error} "
                    "`transcf fit` fits one model without a comparison."
                ) from error
            if is_first:
                raise
            result = RunResult.failed(model, error)
        if is_first and not result.stored:  # without the time of loading kernels
            started = perf_counter()
            self.config.evaluate(model, self.split)
            faster = result.seconds + perf_counter() - started
            result = replace(result, spent=min(result.spent, faster))
        return self._add(AutoTrial(name, dict(setting), share, result, model))

    def try_blend(self, parts: Sequence[AutoTrial]) -> AutoTrial | None:
        """Choose the weights of a blend on the validation part; None if there is no time for it."""
        self.check_interrupt()
        made = [create(part.name, **part.result.parameters) for part in parts]
        text = " + ".join(str(Part(*name_and_params(model))) for model in made)
        blend: Recommender[Any] = Blend(parts=text)
        for trial in self.trials:
            if trial.setting == {"parts": text}:
                return trial
        self.report(f"blending {' and '.join(part.name for part in parts)}")
        started, cost = perf_counter(), self._blend_seconds(parts)
        is_stored, expected = self.is_stored(blend), self.blend_factor * cost
        refit_seconds = sum(part.refit_seconds for part in parts)
        if not is_stored and not self.has_time(expected, refit_seconds):
            self.skipped[text] = f"no time: about {expected:.0f} s"
            return None
        try:
            if not is_stored:
                check = self._until(self.limit - self.finish_seconds())
                blend = self._blended(parts, check)
            result = self.evaluate(blend)
        except OutOfTimeError as late:
            self.skipped[text] = f"no time: more than {late.seconds:.0f} s"
            return None
        except TransCFError as error:
            self.skipped[text] = str(error)
            return None
        finally:
            if not is_stored and cost > 0:
                self.blend_factor = max(self.blend_factor, (perf_counter() - started) / cost)
        return self._add(AutoTrial("blend", {"parts": text}, 1.0, result, blend, parts))

    def _add(self, trial: AutoTrial) -> AutoTrial:
        """Add a trial, and keep only the best model of each name in memory."""
        if trial.result.stored:
            self.stored_seconds += trial.result.spent
        self.trials.append(trial)
        kept = [id(one) for one in (*self.ranked(), trial if trial.parts else None)]
        for one in self.trials:
            if not one.parts and id(one) not in kept:
                one.model = None
        return trial

    def fitted(self, trial: AutoTrial) -> Recommender[Any]:
        """Return the model of a trial, fitted on the training part again if it is not in memory."""
        if trial.model is not None and trial.model.is_fitted:
            return trial.model
        if trial.parts:
            model = self._blended(trial.parts)
        else:
            model = self.make_model(trial.name, trial.params)
            validation = self.config.validation(self.split)
            model.fit(self.split.train, validation, FitOptions(progress=False))
            if model.report_.get("ending") == "interrupted":
                raise KeyboardInterrupt
        trial.model = model
        return model

    def _blended(
        self, parts: Sequence[AutoTrial], check: Callable[[], None] | None = None
    ) -> Recommender[Any]:
        models = [self.fitted(part) for part in parts]
        return Blend.of(models, replace(self.config, check=check).validation(self.split))

    def part(self, *, test: bool) -> tuple[Split, EvalConfig]:
        """Return what the validation part, or the test part, is evaluated with."""
        if test:
            return self.tested, replace(self.config, subset="test")
        return self.split, self.config

    def is_stored(self, model: Recommender[Any], *, test: bool = False) -> bool:
        """Return whether the run cache has the result of a model."""
        key = RunKey.evaluated(model, *self.part(test=test))
        return self.store is not None and self.store.find(key) is not None

    def _until(self, latest: float) -> Callable[[], None]:
        """Return what stops a trial after a time, or after Ctrl-C, when it validates."""
        started = self.elapsed

        def check() -> None:
            self.check_interrupt()
            if self.elapsed > latest:
                raise OutOfTimeError(self.elapsed - started)

        return check

    def evaluate(self, model: Recommender[Any], *, test: bool = False) -> RunResult:
        """Fit and evaluate a model, or take the result from the run cache.

        A run that another process is computing is computed here, too: it might take longer than
        there is time. Raises an `OutOfTimeError` as soon as it is clear that a trial would, too.
        """
        is_free = test or not self.trials
        started, epochs, ends = self.elapsed, self._epochs_of(model), list[float]()
        split, config = self.part(test=test)
        if not is_free:
            config = replace(config, check=self._until(self.limit - self.finish_seconds()))

        def on_epoch(epoch: Epoch[Any]) -> None:
            ends.append(self.elapsed)
            spent, number = ends[-1] - started, epoch.number
            if is_free or (number < _SURE_EPOCHS and spent < _SURE_AFTER):
                return
            # The first epoch may have loaded kernels.
            each = (ends[-1] - ends[0]) / (number - 1) if number > 1 else spent
            left = (epochs - number) * each
            if not self.has_time(_SLACK * left, _SLACK * _MORE_EVENTS * epochs * each):
                raise OutOfTimeError(spent + left)

        def run(store: Store | None) -> RunResult:
            return fit_and_evaluate(
                model,
                split,
                config,
                store,
                start_fit=lambda step: FitOptions(progress=False, on_epoch=on_epoch),
                dataset="auto",
            )

        with warnings.catch_warnings():
            # A search tries poor settings, too; the metric says how poor they are.
            warnings.simplefilter("ignore", FitWarning)
            try:
                return run(self.store)
            except RunLockedError:
                return run(None)


def labelled(name: str, params: Mapping[str, Any]) -> str:
    """Return a name with its parameters."""
    listed = ", ".join(f"{key}={value}" for key, value in params.items())
    return f"{name}({listed})" if params else name
