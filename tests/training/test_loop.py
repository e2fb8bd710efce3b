"""The loop, on a toy whose every epoch can be worked out by hand."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import numpy as np
import pytest

from transcf.errors import DivergenceError, ModelFileError
from transcf.training import EpochStats, FitOptions, Plan, train
from transcf.training.checkpoint import CheckpointFile
from transcf.training.trainable import Tensors


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

    def tensors(self) -> Tensors:
        return {"value": self.value}

    def load_tensors(self, tensors: Tensors) -> None:
        self.value = tensors["value"].copy()


def metric_script(toy: Counter, script: dict[int, float]):
    return lambda: script[toy.epochs_run[-1]]


def test_without_validation_the_last_epoch_is_kept() -> None:
    toy = Counter()
    outcome = train(toy, Plan("toy", epochs=4))
    assert toy.value.tolist() == [10.0] * 3
    assert outcome.best_epoch == 4
    assert outcome.ending == "finished"
    assert outcome.history["metric"].is_null().all()


def test_the_first_best_epoch_is_kept() -> None:
    toy = Counter()
    script = {1: 0.1, 2: 0.5, 3: 0.5, 4: 0.2}
    outcome = train(toy, Plan("toy", epochs=4), validate=metric_script(toy, script))
    assert outcome.best_epoch == 2
    assert toy.value.tolist() == [3.0] * 3
    assert outcome.history["metric"].to_list() == [0.1, 0.5, 0.5, 0.2]


def test_patience_counts_validations_not_epochs() -> None:
    toy = Counter()
    plan = Plan("toy", epochs=20, validate_every=2, patience=2)
    outcome = train(toy, plan, validate=lambda: 1.0 if toy.epochs_run[-1] == 2 else 0.0)
    assert toy.epochs_run == [1, 2, 3, 4, 5, 6]
    assert outcome.ending == "early"
    assert outcome.best_epoch == 2


@pytest.mark.parametrize("loss", [float("nan"), float("inf"), 1e9])
def test_divergence_names_the_cure_and_keeps_the_best_state(loss: float) -> None:
    toy = Counter({3: loss})
    with pytest.raises(
        DivergenceError, match=r"epoch 3 .* lower learning_rate or margin"
    ) as caught:
        train(toy, Plan("toy", epochs=5, cure="learning_rate or margin"))
    assert toy.value.tolist() == [3.0] * 3
    assert caught.value.kept.history["epoch"].to_list() == [1, 2]
    assert caught.value.kept.best_epoch == 2
    assert caught.value.kept.ending == "diverged"


def test_divergence_with_validation_keeps_the_best_validated_epoch() -> None:
    toy = Counter({4: float("nan")})
    script = {1: 0.1, 2: 0.5, 3: 0.2}
    with pytest.raises(DivergenceError, match="keeps the state of epoch 2") as caught:
        train(toy, Plan("toy", epochs=5), validate=metric_script(toy, script))
    assert toy.value.tolist() == [3.0] * 3
    assert caught.value.kept.best_epoch == 2


def test_divergence_in_the_first_epoch_keeps_nothing() -> None:
    with pytest.raises(DivergenceError, match=r"epoch 1 .* is not fitted") as caught:
        train(Counter({1: float("nan")}), Plan("toy", epochs=5))
    assert caught.value.kept is None


def test_a_poisoned_tensor_is_divergence_even_with_a_finite_loss() -> None:
    class Poisoned(Counter):
        def run_epoch(self, number: int) -> EpochStats:
            stats = super().run_epoch(number)
            if number == 2:
                self.value[1] = np.nan
            return stats

    toy = Poisoned()
    with pytest.raises(DivergenceError, match="epoch 2"):
        train(toy, Plan("toy", epochs=5))
    assert np.isfinite(toy.value).all()


def test_control_c_finishes_the_epoch_and_returns_the_best() -> None:
    toy, before = Counter(), signal.getsignal(signal.SIGINT)

    def press(epoch: int) -> None:
        if epoch == 2:
            os.kill(os.getpid(), signal.SIGINT)

    outcome = train(
        toy,
        Plan("toy", epochs=9),
        validate=lambda: 1.0 / toy.epochs_run[-1],
        options=FitOptions(on_epoch=press),
    )
    assert outcome.ending == "interrupted"
    assert toy.epochs_run == [1, 2]
    assert toy.value.tolist() == [1.0] * 3
    assert signal.getsignal(signal.SIGINT) is before


def test_a_resumed_run_ends_like_one_never_interrupted(tmp_path: Path) -> None:
    script = {1: 0.1, 2: 0.9, 3: 0.3, 4: 0.2, 5: 0.5}
    whole = Counter()
    expected = train(whole, Plan("toy", epochs=5), validate=metric_script(whole, script))

    first = Counter()
    options = FitOptions(checkpoint=tmp_path, checkpoint_seconds=0.0)
    train(first, Plan("toy", epochs=3), validate=metric_script(first, script), options=options)
    second = Counter()
    resumed = FitOptions(checkpoint=tmp_path, resume=True)
    outcome = train(
        second, Plan("toy", epochs=5), validate=metric_script(second, script), options=resumed
    )
    assert second.epochs_run == [4, 5]
    assert second.value.tolist() == whole.value.tolist()
    assert outcome.best_epoch == expected.best_epoch == 2
    assert outcome.history.drop("seconds").equals(expected.history.drop("seconds"))


def test_resume_refuses_other_settings_and_damage(tmp_path: Path) -> None:
    options = FitOptions(checkpoint=tmp_path, resume=True)
    train(Counter(), Plan("toy", epochs=1, fingerprint="a"), options=options)
    with pytest.raises(ModelFileError, match="other settings or data"):
        train(Counter(), Plan("toy", epochs=2, fingerprint="b"), options=options)
    path = CheckpointFile(tmp_path, "a", 0).path
    path.write_bytes(path.read_bytes()[:40])
    with pytest.raises(ModelFileError, match="damaged"):
        train(Counter(), Plan("toy", epochs=2, fingerprint="a"), options=options)


def test_a_failed_write_leaves_the_old_checkpoint(tmp_path: Path, monkeypatch) -> None:
    options = FitOptions(checkpoint=tmp_path, checkpoint_seconds=0.0)
    train(Counter(), Plan("toy", epochs=2), options=options)
    before = (tmp_path / "checkpoint.safetensors").read_bytes()

    def full_disk(*args: object, **kwargs: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("transcf.training.checkpoint.save_file", full_disk)
    with pytest.raises(OSError, match="disk full"):
        train(Counter(), Plan("toy", epochs=3), options=options)
    assert (tmp_path / "checkpoint.safetensors").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint.safetensors"]
