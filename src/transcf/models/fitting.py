"""`Fit`: one fit under way; what a model's own part of it needs, and what comes of it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeAlias, TypeVar

import numpy as np

from transcf import __version__
from transcf.data.interactions import Interactions
from transcf.data.partitioned.log import PartitionedLog
from transcf.errors import UnsupportedError
from transcf.io.tensors import Arrays
from transcf.models.communicator import DistributedSolver, Shardable
from transcf.models.event_weights import WeightSettings
from transcf.models.families import IterationSettings
from transcf.models.fit_options import FitOptions
from transcf.models.fitted import FittedScorer
from transcf.models.log_sizes import LogSizes
from transcf.models.partitioned import PartitionedProblem
from transcf.models.settings import values_of
from transcf.models.trainable import Trainable
from transcf.models.training import DivergedRunError, Outcome, Plan, train
from transcf.models.training_data import TrainingData
from transcf.models.trend import Trend
from transcf.models.triples import Problem

if TYPE_CHECKING:
    from transcf.evaluation.validation import Validation

S = TypeVar("S", bound=IterationSettings)


class DependsOnLog(Protocol):
    """Settings some of whose defaults depend on the data."""

    def for_log(self, sizes: LogSizes) -> Self:
        """Return the settings with these defaults filled in."""


R = TypeVar("R", bound=DependsOnLog)

#: Validation data: held-out interactions, or how to judge a model by them.
Held: TypeAlias = "Interactions | PartitionedLog | Validation | None"

#: Validations of a fit that does not say how often: more would take longer than some trainings.
_VALIDATIONS = 10


@dataclass
class Fit:
    """What a model is given to learn from, and where it says what happened.

    Attributes:
        name: What tables call the model.
        log: What to learn from; in parts where nobody holds all events.
        known: What the model keeps of it.
        validation: Held-out interactions, how to judge by them, or None.
        options: How to run it.
        last_epoch: Where to stop, whatever the settings say; None stops where they do.
        before: What was learned before, where choices that were made then are to be kept.
        previous: The settings of that fit.
        trend: What recent popularity adds to scores, or None.
        divergence_hint: Parameters to lower when training diverges, for the error.
        free: Parameters that may differ between a run and its resumption.
        report: Facts about the training, JSON values only.
        judge: How validation data judge an epoch, once they have.
        outcome: What came of the epochs, where there were any.
        chosen: The settings with the defaults for the data filled in; None if there are none.
    """

    name: str
    log: Interactions | PartitionedLog
    known: TrainingData
    validation: Held
    options: FitOptions
    last_epoch: int | None = None
    before: FittedScorer | None = None
    previous: Any = None
    trend: Trend | None = None
    divergence_hint: str = "learning_rate"
    free: Collection[str] = ()
    report: dict[str, Any] = field(default_factory=dict)
    judge: Validation | None = None
    outcome: Outcome | None = None
    chosen: Any = None

    @property
    def train(self) -> Interactions:
        """All events.

        Raises:
            UnsupportedError: Nobody holds all of them, and the model cannot do without.
        """
        if isinstance(self.log, PartitionedLog):
            raise UnsupportedError(
                f"{self.name} cannot be fitted on a log in parts, as it looks at all events at "
                "once: fit it without a cluster, or take TransCF, TransCFMixture, BPR, AoBPR or "
                "CML."
            )
        return self.log

    def resolved(self, settings: R) -> R:
        """Return settings with the defaults for the data; the fitted model keeps them.

        A refit keeps those of the fit before it, as it keeps the epoch.
        """
        chosen = settings.for_log(LogSizes.of(self.log))
        if type(self.previous) is type(settings):
            kept = {
                name: getattr(self.previous, name)
                for name, value in values_of(settings).items()
                if value is None and getattr(chosen, name) is not None
            }
            chosen = replace(chosen, **kept)  # type: ignore[type-var]
        self.chosen = chosen
        return chosen

    def problem(self, settings: WeightSettings) -> Problem:
        """Return what triples are drawn from."""
        if isinstance(self.log, PartitionedLog):
            return PartitionedProblem.of_log(self.log, settings)
        return Problem.of(self.log, settings.event_weights)

    def run(
        self,
        trainable: Trainable,
        settings: S,
        snapshot: Callable[[Arrays, TrainingData, S], FittedScorer],
    ) -> FittedScorer:
        """Train epoch by epoch, and return the best one: on validation data, else the last.

        Args:
            trainable: What to train.
            settings: How long, among others; a checkpoint belongs to one set of them.
            snapshot: Makes what scores from the trainable's tensors, unchanged by later epochs.

        Raises:
            DivergedRunError: Training diverged; the error carries what was learned before.
        """
        if self.validation is not None:
            from transcf.evaluation.validation import as_validation

            users = settings.validation_users
            self.judge = as_validation(self.log, self.validation, users).sampled(users)
        every = settings.validate_every or max(1, round(settings.epochs / _VALIDATIONS))
        plan = Plan(
            title=self.name,
            epochs=self.last_epoch or settings.epochs,
            validate_every=every,
            patience=settings.patience,
            fingerprint=self._fingerprint(settings, every),
            divergence_hint=self.divergence_hint,
        )

        def learned(tensors: Arrays) -> FittedScorer:
            return self.with_trend(snapshot(tensors, self.known, settings))

        try:
            self.outcome = train(
                trainable, plan, learned, validate=self.judge, options=self.options
            )
            self.known = self.known.loaded()
        except DivergedRunError as error:
            self.outcome = error.kept
            if error.kept is not None:
                self.known = self.known.loaded()
                error.learned = learned(trainable.tensors())
            raise
        finally:
            if self.outcome is not None:
                self.report |= self.outcome.facts()
        return learned(trainable.tensors())

    def run_distributed(
        self,
        solver: DistributedSolver,
        problem: Shardable,
        settings: S,
        snapshot: Callable[[Arrays, TrainingData, S], FittedScorer],
    ) -> FittedScorer:
        """Train a solver here, or spread over the cluster of the options; otherwise as `run`.

        Args:
            solver: Its class, `learning.communicator.DistributedSolver`.
            problem: What to learn from, `learning.communicator.Shardable`.
            settings: How.
            snapshot: As for `run`.
        """
        if self.options.cluster is None:
            return self.run(solver(problem, settings), settings, snapshot)
        spread = self.options.cluster.spread(solver, problem, settings)
        try:
            return self.run(spread, settings, snapshot)
        finally:
            spread.close()
            self.report["cluster"] = spread.facts()

    def with_trend(self, learned: FittedScorer) -> FittedScorer:
        """Add the trend to scores, where there is one."""
        return learned if self.trend is None else self.trend.add_to(learned)

    def _fingerprint(self, settings: IterationSettings, every: int) -> str:
        """Name all that a run depends on; a checkpoint of another run is refused."""
        values = {k: v for k, v in values_of(settings).items() if k not in self.free}
        judge = self.judge
        rules = [__version__, values, None if judge is None else [every, judge.fingerprint]]
        # NumPy numbers are allowed, and mean the same as Python's.
        text = json.dumps(rules, sort_keys=True, default=np.generic.item)
        digest = hashlib.sha256(text.encode())
        self._add_events(digest)
        return f"{type(settings).__name__}-{digest.hexdigest()}"

    def _add_events(self, digest: Any) -> None:
        """Add what is learned from to a fingerprint."""
        if isinstance(self.log, PartitionedLog):
            digest.update(self.log.digest.encode())
            return
        digest.update(self.log.by_user.indptr.tobytes())
        digest.update(self.log.by_user.indices.tobytes())
        digest.update(self.known.histories.items.tobytes())
        for column in (self.log.timestamps, self.log.ratings):  # what events may count by
            if column is not None:
                digest.update(column.tobytes())
