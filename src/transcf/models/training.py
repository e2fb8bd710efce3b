"""Training epoch by epoch: `Trainable` is what is trained, `TrainingRun` trains it.

A run validates, stops early, keeps the best epoch, writes checkpoints and can be interrupted. What
an epoch does depends on the tensors and on its number alone (random numbers are keyed by seed and
epoch), so a resumed run ends with the same bits as one that was never interrupted.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from time import process_time
from typing import TYPE_CHECKING, Any, Generic, Literal, Protocol, TypeAlias, TypeGuard, TypeVar

import numpy as np
import polars as pl

from transcf import __version__
from transcf.data.files import path_of
from transcf.data.interactions import Interactions
from transcf.errors import DivergenceError, ParameterError, UnsupportedError, shown
from transcf.io.tensors import Arrays
from transcf.kernels.compiling import clock, on_compile
from transcf.models.families import FactorSettings, IterationSettings
from transcf.models.fitted import FittedScorer, TrainingData
from transcf.models.params import values_of
from transcf.models.trend import AddTrend
from transcf.retrieval.scorer import Scorer

if TYPE_CHECKING:
    from transcf.data.partitioned import PartitionedLog
    from transcf.evaluation.validation import Validation
    from transcf.models.checkpoint import CheckpointFile
    from transcf.models.triples import Problem

S = TypeVar("S", bound=Scorer)

#: What the next epoch depends on: tensors, or a reference to those of other processes that has
#: `tensors()`.
State: TypeAlias = Any

#: Validation data: held-out interactions, or how to evaluate a model on them.
Held: TypeAlias = "Interactions | PartitionedLog | Validation | None"

#: A loss this many times that of the first epoch counts as diverged.
EXPLOSION = 1e4
#: Validations of a fit that does not say how often to validate.
_VALIDATIONS = 10
_SCHEMA = {
    "epoch": pl.Int64,
    "loss": pl.Float64,
    "metric": pl.Float64,
    "samples": pl.Int64,
    "seconds": pl.Float64,
    "validation_seconds": pl.Float64,
}


@dataclass(frozen=True)
class EpochStats:
    """Figures of one epoch.

    `loss` is the mean over the samples; NaN or infinity means that training diverged.
    """

    loss: float
    samples: int


class Trainable(Protocol):
    """An algorithm that is trained epoch by epoch."""

    def run_epoch(self, number: int) -> EpochStats:
        """Train one epoch, counted from 1."""

    def tensors(self) -> Arrays:
        """Return all that the next epoch depends on; the run copies what it keeps."""

    def load_tensors(self, tensors: Arrays) -> None:
        """Restore what `tensors` returned."""


def is_spread(trainable: Any) -> TypeGuard[Any]:
    """Whether other processes do the work; then `tensors` gathers theirs, which is slow."""
    return hasattr(trainable, "load_state")


def state_of(trainable: Trainable, copied: bool = False) -> State:
    """Return the present state; later epochs do not change a copy."""
    if is_spread(trainable):
        return trainable.state()
    found = trainable.tensors()
    return {name: tensor.copy() for name, tensor in found.items()} if copied else found


def tensors_of(state: State) -> Arrays:
    """Return the tensors of a state, wherever they are."""
    return state if isinstance(state, dict) else state.tensors()


def restore(trainable: Trainable, state: State) -> None:
    """Continue from a state."""
    if is_spread(trainable) and not isinstance(state, dict):
        trainable.load_state(state)
    else:
        trainable.load_tensors(state)


class Epoch(Generic[S]):
    """A finished epoch, for validation and for `FitOptions.on_epoch`.

    Attributes:
        number: Counted from 1.
        metric: The validation metric; None for an epoch that was not validated.
    """

    def __init__(self, number: int, make_snapshot: Callable[[], S]) -> None:
        self.number = number
        self.metric: float | None = None
        self._make_snapshot: Callable[[], S] | None = make_snapshot

    @cached_property
    def snapshot(self) -> S:
        """A scorer with the state after this epoch; made at first use and kept."""
        if self._make_snapshot is None:
            raise RuntimeError(
                f"Epoch {self.number} is over: ask for its snapshot while on_epoch is called."
            )
        return self._make_snapshot()

    def close(self) -> None:
        """Release the trainable; a snapshot that was made stays."""
        self._make_snapshot = None


@dataclass(frozen=True)
class FitOptions:
    """How to run a fit; no option but `max_seconds` changes what is learned.

    Attributes:
        checkpoint: Folder for checkpoints, or None for none.
        resume: Whether to resume from a checkpoint found there (from the start if there is none).
        fresh: Whether to replace the checkpoint of another run and start from the beginning;
            otherwise that is an error. A run replaces its own checkpoints in any case.
        checkpoint_seconds: Shortest time between two checkpoints.
        progress: Whether to show a progress bar; None shows it at a terminal and in notebooks.
        on_epoch: Called with every finished epoch.
        threads: Threads of kernels, BLAS and torch; None leaves them as they are.
        cluster: A `transcf.distributed.Cluster` to distribute training, for models that support
            it; None trains here.
        max_seconds: Processor time after which no further epoch is begun; None sets no limit.

    Example:
        >>> FitOptions(checkpoint=Path("runs/first"), resume=True).progress is None
        True
    """

    checkpoint: Path | None = None
    resume: bool = False
    fresh: bool = False
    checkpoint_seconds: float = 10.0
    progress: bool | None = None
    on_epoch: Callable[[Epoch[Any]], None] | None = None
    threads: int | None = None
    cluster: Any = None
    max_seconds: float | None = None

    def __post_init__(self) -> None:
        """Refuse options that contradict each other; expand `~`."""
        if self.checkpoint is not None:
            object.__setattr__(self, "checkpoint", path_of(self.checkpoint))
        if self.resume and self.fresh:
            raise ParameterError(
                "resume and fresh contradict each other: use one of them, to go on from a "
                "checkpoint or to start again."
            )


class DivergedRunError(DivergenceError):
    """Training diverged; `learned` scores with the last finite state, None if there is none."""

    learned: FittedScorer | None = None


@dataclass
class TrainingRun:
    """One fit: what a model learns from, and what happened so far."""

    name: str
    log: Interactions | PartitionedLog
    known: TrainingData  # what the fitted model keeps of the log
    settings: Any  # with the defaults for the data filled in
    validation: Held = None
    options: FitOptions = field(default_factory=FitOptions)
    last_epoch: int | None = None  # whatever the settings say; None stops where they do
    before: FittedScorer | None = None  # what a refit replaces
    #: Adds the trend that a number sets; an automatic one is chosen later.
    add_manual_trend: AddTrend = field(default=lambda learned: learned)
    divergence_hint: str = "learning_rate"  # parameters to lower when training diverges
    judge: Any = None  # returns the validation metric of a scorer; None keeps the last epoch
    report: dict[str, Any] = field(default_factory=dict)  # JSON values only
    records: list[dict[str, Any]] = field(default_factory=list)  # figures of each finished epoch
    best: State = field(default_factory=dict)  # state of the best validated epoch
    #: Why it ended; None for models without epochs.
    ending: Literal["finished", "early", "interrupted", "diverged"] | None = None

    # -- what models use -----------------------------------------------------------------------

    @property
    def train(self) -> Interactions:
        """All events; an `UnsupportedError` where the log is partitioned."""
        if not isinstance(self.log, Interactions):
            raise UnsupportedError(
                f"{self.name} cannot be fitted on a log in parts, as it looks at all events at "
                "once: fit it without a cluster, or take TransCF, TransCFMixture, BPR, AoBPR or "
                "CML."
            )
        return self.log

    def problem(self) -> Problem:
        """Return the interactions that triples are drawn from."""
        if not isinstance(self.log, Interactions):
            from transcf.models.partitioned import problem_of

            return problem_of(self.log, self.settings)
        from transcf.models.triples import Problem

        return Problem.of(self.log, self.settings.event_weights)

    def solver(self, kind: Callable[[Any, Any], Trainable], problem: Any) -> Any:
        """Make a solver in this process, or one that is spread over the cluster of the options."""
        if self.options.cluster is None:
            return kind(problem, self.settings)
        return self.options.cluster.spread(kind, problem, self.settings)

    def judge_of(self, users: int | None) -> Validation:
        """Return the validation on a sample of users; there are validation data."""
        from transcf.data.partitioned import PartitionedLog
        from transcf.evaluation.validation import Validation, as_validation

        if not isinstance(self.validation, Interactions | PartitionedLog | Validation):
            raise ParameterError(
                f"{self.name} cannot be validated on {shown(self.validation)}: give held-out "
                "interactions with the ids of the training data, or a Validation."
            )
        return as_validation(self.log, self.validation).sampled(users)

    # -- training ------------------------------------------------------------------------------

    def run(
        self,
        trainable: Trainable,
        snapshot: Callable[[Arrays, TrainingData, Any], FittedScorer],
    ) -> FittedScorer:
        """Train, and return the best epoch by validation, or the last one without validation.

        Args:
            trainable: What to train; it ends with the state that is returned.
            snapshot: Makes a scorer from tensors; later epochs must not change it.

        Raises:
            DivergedRunError: The loss became NaN, infinite or exploded, or a tensor is not finite;
                the error has what was learned before.
        """
        from transcf.interrupts import stop_on_interrupt
        from transcf.models.progress import ProgressBar

        self._prepare()
        bar = ProgressBar(self.name, self._epochs, "epochs", self.options.progress)

        def learned() -> FittedScorer:
            found = snapshot(trainable.tensors(), self.known, self.settings)
            return self.add_manual_trend(found)

        try:
            store = self._open_checkpoint(trainable)
            with stop_on_interrupt() as request, bar, on_compile(bar.note_compiling):
                if hasattr(trainable, "compile_kernels"):
                    trainable.compile_kernels()
                while self.ending is None and not self._is_done():
                    # Without validation the state before the epoch is what to fall back on.
                    validated = self.best if self.judge is not None else {}
                    fallback = validated or state_of(trainable, copied=True)
                    number, started = len(self.records) + 1, clock()
                    stats = trainable.run_epoch(number)
                    seconds = clock() - started
                    if self._has_diverged(stats, trainable):
                        restore(trainable, fallback)
                        self.ending = "diverged" if self.records else None
                        raise self._divergence(number, stats.loss)
                    epoch = Epoch(number, learned)
                    self._record(epoch, stats, seconds)
                    if epoch.metric is not None and self.best_epoch == number:
                        self.best = state_of(trainable, copied=True)
                    bar.update(self.records[-1])
                    if self.options.on_epoch is not None:
                        self.options.on_epoch(epoch)
                    epoch.close()
                    is_asked = request.asked  # read once: an interrupted run writes a checkpoint
                    if store is not None and (is_asked or self._is_done() or store.is_due()):
                        store.write(self.records, trainable.tensors(), tensors_of(self.best))
                    self.ending = "interrupted" if is_asked else None
            is_early = len(self.records) < self._epochs
            self.ending = self.ending or ("early" if is_early else "finished")
            if self.best:
                restore(trainable, self.best)
            return learned()
        except DivergedRunError as error:
            if self.records:
                error.learned = learned()
            raise
        finally:
            self._report(trainable)

    def _prepare(self) -> None:
        """Take over how long to train, and how to validate."""
        settings: IterationSettings = self.settings
        if self.validation is not None:
            self.judge = self.judge_of(settings.validation_users)
        often = max(1, round(settings.epochs / _VALIDATIONS))
        self._validate_every = settings.validate_every or often
        self._epochs = self.last_epoch or settings.epochs
        limit = self.options.max_seconds
        self._last_start = math.inf if limit is None else process_time() + limit

    def _open_checkpoint(self, trainable: Trainable) -> CheckpointFile | None:
        """Resume from a checkpoint if the options say so; return where to write others."""
        from transcf.models.checkpoint import CheckpointFile

        options = self.options
        if options.checkpoint is None:
            return None
        store = CheckpointFile(options.checkpoint, self._fingerprint(), options.checkpoint_seconds)
        # Read without `resume` as well: the checkpoint of another run is not replaced.
        stored = None if options.fresh else store.read()
        if stored is not None and options.resume:
            self.records, current, self.best = stored
            restore(trainable, current)
        return store

    def _is_done(self) -> bool:
        """Whether all epochs are done, none was better for too long, or the time is up."""
        if self.records and process_time() > self._last_start:
            return True
        since = [r for r in self.records[self.best_epoch :] if r["metric"] is not None]
        patience = math.inf if self.settings.patience is None else self.settings.patience
        return len(self.records) >= self._epochs or len(since) >= patience

    def _record(self, epoch: Epoch[Any], stats: EpochStats, seconds: float) -> None:
        """Validate an epoch if it is time to, and record its figures."""
        started, number = clock(), epoch.number
        is_due = number % self._validate_every == 0 or number == self._epochs
        if self.judge is not None and is_due:
            epoch.metric = self.judge(epoch.snapshot)
        found = (number, stats.loss, epoch.metric, stats.samples, seconds, clock() - started)
        self.records.append(dict(zip(_SCHEMA, found, strict=True)))

    def _has_diverged(self, stats: EpochStats, trainable: Trainable) -> bool:
        first = self.records[0]["loss"] if self.records else None
        exploded = first is not None and stats.loss > EXPLOSION * max(abs(first), 1e-6)
        if exploded or not math.isfinite(stats.loss):
            return True
        # Other processes check their tensors themselves.
        return not is_spread(trainable) and not all(
            np.isfinite(tensor).all() for tensor in trainable.tensors().values()
        )

    def _divergence(self, number: int, loss: float) -> DivergedRunError:
        kept, hint = "has learned nothing", self.divergence_hint
        if self.records:
            kept = f"keeps the state of epoch {self.best_epoch}"
        if isinstance(self.settings, FactorSettings):
            hint = self.settings.divergence_hint(hint)
        return DivergedRunError(
            f"{self.name} diverged in epoch {number} (loss {loss:.3g}) and {kept}: lower {hint}."
        )

    def _fingerprint(self) -> str:
        """Return a digest of model, settings and data, which protects checkpoints of other runs."""
        settings = self.settings
        values = {k: v for k, v in values_of(settings).items() if k not in settings._resumable}
        judge = None if self.judge is None else [self._validate_every, self.judge.fingerprint]
        # NumPy numbers are allowed, and mean the same as Python's.
        text = json.dumps([__version__, values, judge], sort_keys=True, default=np.generic.item)
        digest = hashlib.sha256(text.encode())
        if not isinstance(self.log, Interactions):
            digest.update(self.log.digest.encode())
        else:
            by_user, histories = self.log.by_user, self.known.histories
            weights = (self.log.timestamps, self.log.ratings)
            for column in (by_user.indptr, by_user.indices, histories.items, *weights):
                digest.update(b"" if column is None else column.tobytes())
        return f"{type(settings).__name__}-{digest.hexdigest()}"

    # -- what came of it -----------------------------------------------------------------------

    @property
    def best_epoch(self) -> int:
        """The first epoch with the best metric; the last epoch without validation."""
        scored = [(r["metric"], -r["epoch"]) for r in self.records if r["metric"] is not None]
        return -max(scored)[1] if scored else len(self.records)

    @property
    def best_metric(self) -> float | None:
        """Validation metric of the epoch that is kept; None without validation."""
        return max((r["metric"] for r in self.records if r["metric"] is not None), default=None)

    @property
    def history(self) -> pl.DataFrame:
        """Table `epoch, loss, metric, samples, seconds, validation_seconds`."""
        return pl.DataFrame(self.records, schema=_SCHEMA, orient="row")

    def _report(self, trainable: Trainable) -> None:
        """Report what the training took, and end the processes that it was spread over."""
        if self.ending is not None:
            history = self.history
            self.report |= {
                "best_epoch": self.best_epoch,
                "ending": self.ending,
                "training_seconds": round(float(history["seconds"].sum()), 3),
                "validation_seconds": round(float(history["validation_seconds"].sum()), 3),
            }
        if is_spread(trainable):
            trainable.close()
            self.report["cluster"] = trainable.facts()
