"""The loop itself: run epochs, validate, stop in time, keep the best."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import numpy as np
import polars as pl

from transcf.errors import DivergenceError
from transcf.interrupts import stop_on_interrupt
from transcf.io.tensors import Arrays
from transcf.kernels.compiling import clock, on_compile
from transcf.models.checkpoint import Checkpoint, CheckpointFile, RemoteState
from transcf.models.fit_options import FitOptions
from transcf.models.progress import ProgressBar
from transcf.models.trainable import DistributedTrainable, Epoch, EpochStats, S, Trainable

Ending: TypeAlias = Literal["finished", "early", "interrupted", "diverged"]
Record: TypeAlias = dict[str, float | int | None]

#: A loss this many times that of the first epoch counts as exploded.
EXPLOSION = 1e4

_SCHEMA = {
    "epoch": pl.Int64,
    "loss": pl.Float64,
    "metric": pl.Float64,
    "samples": pl.Int64,
    "seconds": pl.Float64,
    "validation_seconds": pl.Float64,
}


@dataclass(frozen=True)
class Plan:
    """How long to train.

    Attributes:
        title: What is trained, for the progress bar.
        epochs: Most epochs to run.
        validate_every: Epochs between validations.
        patience: Validations without a new best before stopping; None never stops early.
        fingerprint: Model, settings and data in one string; guards checkpoints.
        divergence_hint: Which parameters to lower when training diverges, for the error.
    """

    title: str
    epochs: int
    validate_every: int = 1
    patience: int | None = None
    fingerprint: str = ""
    divergence_hint: str = "learning_rate"


@dataclass(frozen=True)
class Outcome:
    """What came of a run.

    Attributes:
        history: Table `epoch, loss, metric, samples, seconds, validation_seconds`.
        best_epoch: The epoch that was kept: the best validated one, or the last.
        ending: Why it ended.
    """

    history: pl.DataFrame
    best_epoch: int
    ending: Ending

    @property
    def best_metric(self) -> float | None:
        """Validation metric of the epoch that was kept; None without validation."""
        metrics = self.history["metric"].drop_nulls()
        return None if metrics.is_empty() else float(metrics.max())  # type: ignore[arg-type]

    def facts(self) -> dict[str, Any]:
        """What a report says of it; seconds of training and of validation apart."""
        return {
            "best_epoch": self.best_epoch,
            "ending": self.ending,
            "training_seconds": round(float(self.history["seconds"].sum()), 3),
            "validation_seconds": round(float(self.history["validation_seconds"].sum()), 3),
        }


class DivergedRunError(DivergenceError):
    """A run diverged; `kept` is what came of it before, None if no epoch was finished."""

    #: What can score of it, for whoever wants to go on.
    learned: Any = None

    def __init__(self, message: str, kept: Outcome | None) -> None:
        """Keep both."""
        super().__init__(message)
        self.kept = kept


@dataclass
class _Run:
    """The moving parts of one run; everything else follows from the history."""

    records: list[Record] = field(default_factory=list)
    best: Arrays | RemoteState = field(default_factory=dict)

    @property
    def epoch(self) -> int:
        return len(self.records)

    @property
    def best_epoch(self) -> int:
        """The first epoch with the best metric; the last epoch without validation."""
        scored = [
            (r["metric"], -int(r["epoch"] or 0)) for r in self.records if r["metric"] is not None
        ]
        return -max(scored)[1] if scored else self.epoch

    def is_out_of_patience(self, plan: Plan) -> bool:
        validated = [int(r["epoch"] or 0) for r in self.records if r["metric"] is not None]
        since = sum(epoch > self.best_epoch for epoch in validated)
        return plan.patience is not None and since >= plan.patience

    def outcome(self, ending: Ending) -> Outcome:
        history = pl.DataFrame(self.records, schema=_SCHEMA, orient="row")
        return Outcome(history, self.best_epoch, ending)


def train(
    trainable: Trainable,
    plan: Plan,
    snapshot: Callable[[Arrays], S],
    *,
    validate: Callable[[S], float] | None = None,
    options: FitOptions | None = None,
) -> Outcome:
    """Train, and leave the best validated tensors (or the last ones) in `trainable`.

    Args:
        trainable: What to train.
        plan: How long.
        snapshot: Makes what scores from tensors; later epochs must not change it.
        validate: Judges a snapshot, higher is better; None keeps the last epoch.
        options: Checkpoints, progress, listeners.

    Raises:
        DivergedRunError: The loss became NaN, infinite or exploded; `trainable` then holds the
            best tensors seen before, and the error has their outcome and says which parameters
            to lower.
    """
    options = options or FitOptions()
    store = None
    if options.checkpoint is not None:
        store = CheckpointFile(options.checkpoint, plan.fingerprint, options.checkpoint_seconds)
    run = _Run()
    # Without `resume` it is read as well, since that of another run is not replaced.
    stored = None if store is None or options.fresh else store.read()
    if stored is not None and options.resume:
        run = _Run(stored.history, stored.best)
        _go_back(trainable, stored.current)
    ending: Ending = "finished"
    progress = ProgressBar(plan.title, plan.epochs, "epochs", options.progress)

    def note_compiling(is_compiling: bool) -> None:
        progress.note("compiling kernels, once for this installation" if is_compiling else "")

    if isinstance(trainable, DistributedTrainable) and progress.is_shown:
        trainable.watch(progress.remark)
    with stop_on_interrupt() as request, progress as bar, on_compile(note_compiling):
        while run.epoch < plan.epochs and not run.is_out_of_patience(plan):
            epoch = _one_epoch(trainable, plan, snapshot, run, validate, bar)
            if options.on_epoch is not None:
                options.on_epoch(epoch)
            epoch.close()
            was_asked = request.asked  # read once: what ends the run is also written down
            is_last = run.epoch == plan.epochs or run.is_out_of_patience(plan) or was_asked
            if store is not None and (is_last or store.is_due()):
                store.write(Checkpoint(run.epoch, run.records, _present(trainable), run.best))
            if was_asked:
                ending = "interrupted"
                break
    if ending == "finished" and run.epoch < plan.epochs:
        ending = "early"
    if run.best:
        _go_back(trainable, run.best)
    return run.outcome(ending)


def _one_epoch(
    trainable: Trainable,
    plan: Plan,
    snapshot: Callable[[Arrays], S],
    run: _Run,
    validate: Callable[[S], float] | None,
    bar: ProgressBar,
) -> Epoch[S]:
    """Run and record one epoch; keep its tensors if it is the best so far."""
    # Without validation the state before the epoch is what to fall back on.
    fallback = run.best if validate is not None and run.best else _kept(trainable)
    number = run.epoch + 1
    started = clock()
    stats = trainable.run_epoch(number)
    seconds = clock() - started
    if _has_diverged(stats, trainable, run):
        _go_back(trainable, fallback)
        kept = run.outcome("diverged") if run.records else None
        left = (
            "has learned nothing" if kept is None else f"keeps the state of epoch {kept.best_epoch}"
        )
        raise DivergedRunError(
            f"{plan.title} diverged in epoch {number} (loss {stats.loss:.3g}) and {left}: lower "
            f"{plan.divergence_hint}.",
            kept,
        )
    is_due = validate is not None and (number % plan.validate_every == 0 or number == plan.epochs)
    epoch, started = Epoch(number, lambda: snapshot(trainable.tensors())), clock()
    metric = validate(epoch.snapshot) if validate is not None and is_due else None
    epoch.metric, validation_seconds = metric, clock() - started
    run.records.append(
        {
            "epoch": number,
            "loss": stats.loss,
            "metric": metric,
            "samples": stats.samples,
            "seconds": seconds,
            "validation_seconds": validation_seconds,
        }
    )
    if metric is not None and run.best_epoch == number:
        run.best = _kept(trainable)
    per_second = stats.samples / max(seconds, 1e-9)
    bar.update(number, stats.loss, metric, per_second, stats.remark)
    return epoch


def _has_diverged(stats: EpochStats, trainable: Trainable, run: _Run) -> bool:
    if not math.isfinite(stats.loss) or not _is_finite(trainable):
        return True
    first = run.records[0]["loss"] if run.records else None
    return first is not None and stats.loss > EXPLOSION * max(abs(first), 1e-6)


def _is_finite(trainable: Trainable) -> bool:
    if isinstance(trainable, DistributedTrainable):  # its loss says so
        return True
    return all(np.isfinite(tensor).all() for tensor in trainable.tensors().values())


def _present(trainable: Trainable) -> Arrays | RemoteState:
    """What is learned so far, until the next epoch changes it."""
    return trainable.state() if isinstance(trainable, DistributedTrainable) else trainable.tensors()


def _kept(trainable: Trainable) -> Arrays | RemoteState:
    """The same, which no epoch changes."""
    present = _present(trainable)
    if isinstance(present, dict):
        return {name: tensor.copy() for name, tensor in present.items()}
    return present


def _go_back(trainable: Trainable, to: Arrays | RemoteState) -> None:
    if isinstance(to, dict):
        trainable.load_tensors(to)
    elif isinstance(trainable, DistributedTrainable):
        trainable.load_state(to)
