"""The loop, on a toy whose every epoch can be worked out by hand."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from transcf.data import synthesize
from transcf.errors import DivergenceError, ModelFileError
from transcf.io.tensors import Arrays
from transcf.models.checkpoint import CheckpointFile
from transcf.models.families import IterationSettings
from transcf.models.fitted import TrainingData
from transcf.models.training import Epoch, EpochStats, FitOptions, TrainingRun


class Counter:
    """Adds the epoch's number to a vector; the loss is scripted."""

    def __init__(self, losses: dict[int, float] | None = None) -> None:
        self.value = np.zeros(3)
        self.losses = losses or {}
        self.epochs_run: list[int] = []

    def run_epoch(self, number: int) -> EpochStats:
        self.value += number
        self.epochs_run.append(number)
        return EpochStats(loss=self.losses.get(number, 1.0), samples=10)

    def tensors(self) -> Arrays:
        return {"value": self.value}

    def load_tensors(self, tensors: Arrays) -> None:
        self.value = tensors["value"].copy()


class Snapshot:
    """What the toy had learned when somebody asked."""

    def __init__(self, tensors: Arrays) -> None:
        self.value = tensors["value"].copy()

    @property
    def epoch(self) -> int:
        """The epoch n after which all is 1 + ... + n."""
        return round((np.sqrt(8 * self.value[0] + 1) - 1) / 2)


Judge = Callable[[Snapshot], float]


class Judged:
    """A validation as the run knows it."""

    fingerprint = "judged"

    def __init__(self, judge: Judge) -> None:
        self._judge = judge

    def __call__(self, snapshot: Snapshot) -> float:
        return self._judge(snapshot)


LOG = synthesize(users=5, items=4, interactions=10, seed=0)


def run(
    toy: Counter,
    validate: Judge | None = None,
    options: FitOptions | None = None,
    snapshot: Callable[[Arrays], Any] = Snapshot,
    **plan: Any,
) -> TrainingRun:
    hint = plan.pop("divergence_hint", "learning_rate")
    training = TrainingRun(
        "toy",
        LOG,
        TrainingData.of(LOG),
        IterationSettings(**{"validate_every": 1} | plan),
        options=options or FitOptions(),
        judge=None if validate is None else Judged(validate),
        divergence_hint=hint,
    )
    training.run(toy, lambda tensors, known, settings: snapshot(tensors))
    return training


def metric_script(script: dict[int, float]) -> Judge:
    return lambda snapshot: script[snapshot.epoch]


def timeless(outcome: TrainingRun) -> pl.DataFrame:
    """The history without what a clock said."""
    return outcome.history.drop("seconds", "validation_seconds")


def test_without_validation_the_last_epoch_is_kept() -> None:
    toy = Counter()
    outcome = run(toy, epochs=4)
    assert toy.value.tolist() == [10.0] * 3
    assert outcome.best_epoch == 4
    assert outcome.ending == "finished"
    assert outcome.history["metric"].is_null().all()


def test_the_first_best_epoch_is_kept() -> None:
    toy = Counter()
    script = {1: 0.1, 2: 0.5, 3: 0.5, 4: 0.2}
    outcome = run(toy, validate=metric_script(script), epochs=4)
    assert outcome.best_epoch == 2
    assert toy.value.tolist() == [3.0] * 3
    assert outcome.history["metric"].to_list() == [0.1, 0.5, 0.5, 0.2]


def test_patience_counts_validations_not_epochs() -> None:
    toy = Counter()
    judge = lambda snapshot: float(snapshot.epoch == 2)  # noqa: E731
    outcome = run(toy, judge, epochs=20, validate_every=2, patience=2)
    assert toy.epochs_run == [1, 2, 3, 4, 5, 6]
    assert outcome.ending == "early"
    assert outcome.best_epoch == 2


@pytest.mark.parametrize("loss", [float("nan"), float("inf"), 1e9])
def test_divergence_names_the_remedy_and_keeps_the_best_state(loss: float) -> None:
    toy = Counter({3: loss})
    with pytest.raises(DivergenceError, match=r"epoch 3 .* lower learning_rate or margin"):
        run(toy, epochs=5, divergence_hint="learning_rate or margin")
    assert toy.value.tolist() == [3.0] * 3


def test_divergence_with_validation_keeps_the_best_validated_epoch() -> None:
    toy = Counter({4: float("nan")})
    script = {1: 0.1, 2: 0.5, 3: 0.2}
    with pytest.raises(DivergenceError, match="keeps the state of epoch 2"):
        run(toy, validate=metric_script(script), epochs=5)
    assert toy.value.tolist() == [3.0] * 3


def test_divergence_in_the_first_epoch_keeps_nothing() -> None:
    with pytest.raises(DivergenceError, match=r"epoch 1 .* has learned nothing"):
        run(Counter({1: float("nan")}), epochs=5)


def test_a_poisoned_tensor_is_divergence_even_with_a_finite_loss() -> None:
    class Poisoned(Counter):
        def run_epoch(self, number: int) -> EpochStats:
            stats = super().run_epoch(number)
            if number == 2:
                self.value[1] = np.nan
            return stats

    toy = Poisoned()
    with pytest.raises(DivergenceError, match="epoch 2"):
        run(toy, epochs=5)
    assert np.isfinite(toy.value).all()


def test_control_c_finishes_the_epoch_and_returns_the_best() -> None:
    toy, before = Counter(), signal.getsignal(signal.SIGINT)

    def press(epoch: Epoch) -> None:
        if epoch.number == 2:
            os.kill(os.getpid(), signal.SIGINT)

    outcome = run(
        toy,
        epochs=9,
        validate=lambda snapshot: 1.0 / snapshot.epoch,
        options=FitOptions(on_epoch=press),
    )
    assert outcome.ending == "interrupted"
    assert toy.epochs_run == [1, 2]
    assert toy.value.tolist() == [1.0] * 3
    assert signal.getsignal(signal.SIGINT) is before


def test_a_resumed_run_ends_like_one_never_interrupted(tmp_path: Path) -> None:
    script = {1: 0.1, 2: 0.9, 3: 0.3, 4: 0.2, 5: 0.5}
    whole = Counter()
    expected = run(whole, validate=metric_script(script), epochs=5)

    first = Counter()
    options = FitOptions(checkpoint=tmp_path, checkpoint_seconds=0.0)
    run(first, validate=metric_script(script), options=options, epochs=3)
    second = Counter()
    resumed = FitOptions(checkpoint=tmp_path, resume=True)
    outcome = run(second, validate=metric_script(script), options=resumed, epochs=5)
    assert second.epochs_run == [4, 5]
    assert second.value.tolist() == whole.value.tolist()
    assert outcome.best_epoch == expected.best_epoch == 2
    assert timeless(outcome).equals(timeless(expected))


def test_resume_refuses_other_settings_and_damage(tmp_path: Path) -> None:
    options = FitOptions(checkpoint=tmp_path, resume=True)
    run(Counter(), options=options, epochs=1)
    with pytest.raises(ModelFileError, match="other settings or data"):
        run(Counter(), options=options, epochs=2, random_state=1)
    path = CheckpointFile(tmp_path, "a", 0).path
    path.write_bytes(path.read_bytes()[:40])
    with pytest.raises(ModelFileError, match="damaged"):
        run(Counter(), options=options, epochs=2)


def test_a_checkpoint_without_tensors_is_refused(tmp_path: Path) -> None:
    """Workers of a cluster wrote them to files of their own once."""
    file = CheckpointFile(tmp_path, "run", 0)
    file.write([{"epoch": 1}], {}, {})
    with pytest.raises(ModelFileError, match="is damaged and cannot be resumed from"):
        file.read()


def test_a_failed_write_leaves_the_old_checkpoint(tmp_path: Path, monkeypatch) -> None:
    options = FitOptions(checkpoint=tmp_path, checkpoint_seconds=0.0)
    run(Counter(), options=options, epochs=2)
    before = (tmp_path / "checkpoint.safetensors").read_bytes()

    def full_disk(*args: object, **kwargs: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("transcf.io.tensors.save_file", full_disk)
    with pytest.raises(OSError, match="disk full"):
        run(Counter(), options=options, epochs=3)
    assert (tmp_path / "checkpoint.safetensors").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint.safetensors"]


def test_listeners_and_validation_get_what_was_learned_then() -> None:
    heard: list[tuple[int, Snapshot]] = []
    judged: list[Snapshot] = []

    def judge(snapshot: Snapshot) -> float:
        judged.append(snapshot)
        return -snapshot.epoch

    options = FitOptions(on_epoch=lambda epoch: heard.append((epoch.number, epoch.snapshot)))
    run(Counter(), judge, options, epochs=4, validate_every=2)
    assert [(number, snapshot.epoch) for number, snapshot in heard] == [(n, n) for n in range(1, 5)]
    assert [snapshot.epoch for snapshot in judged] == [2, 4]
    assert judged == [heard[1][1], heard[3][1]], "one snapshot of an epoch serves both"


def test_the_only_snapshot_that_is_not_asked_for_is_the_last() -> None:
    made: list[int] = []

    def count(tensors: Arrays) -> Snapshot:
        made.append(1)
        return Snapshot(tensors)

    run(Counter(), options=FitOptions(on_epoch=lambda epoch: None), snapshot=count, epochs=3)
    assert len(made) == 1


def test_seconds_of_training_and_of_validation_are_told_apart() -> None:
    class Slow(Counter):
        def run_epoch(self, number: int) -> EpochStats:
            time.sleep(0.02)
            return super().run_epoch(number)

    def judge(snapshot: Snapshot) -> float:
        time.sleep(0.05)
        return 1.0

    outcome = run(Slow(), judge, epochs=4, validate_every=2)
    seconds, validation = (outcome.history[name] for name in ("seconds", "validation_seconds"))
    assert seconds.min() >= 0.02
    assert [spent >= 0.05 for spent in validation] == [False, True, False, True]
    facts = outcome.report
    assert facts["training_seconds"] == round(seconds.sum(), 3)
    assert facts["validation_seconds"] == round(validation.sum(), 3)
