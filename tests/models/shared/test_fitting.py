"""What every model trained in epochs promises: what a run is, and what divergence leaves."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from transcf.data import draw_candidates, leave_one_out, synthesize
from transcf.data.split import Split
from transcf.errors import DivergenceError, ModelFileError, NotFittedError, ParameterError
from transcf.evaluation import Validation
from transcf.models import training
from transcf.models.base import Recommender, init_from_params
from transcf.models.families import IterationSettings
from transcf.models.fism import FISM
from transcf.models.fitted import FittedScorer, TrainingData
from transcf.models.params import setting, settings
from transcf.models.registry import create
from transcf.models.training import Epoch, EpochStats, FitOptions, TrainingRun

Arrays = dict[str, np.ndarray]


class Drift:
    """Moves one weight per item a little in every epoch; one epoch may fail."""

    def __init__(self, n_items: int, fails_in: int) -> None:
        self.weights, self.fails_in = np.zeros(n_items, np.float32), fails_in

    def run_epoch(self, number: int) -> EpochStats:
        self.weights += np.arange(len(self.weights), dtype=np.float32) * (-1.0) ** number / number
        return EpochStats(np.nan if number == self.fails_in else 1.0 / number, samples=1)

    def tensors(self) -> Arrays:
        return {"weights": self.weights}

    def load_tensors(self, tensors: Arrays) -> None:
        self.weights = tensors["weights"].copy()


class Weights(FittedScorer):
    """One score per item, the same for everybody."""

    def __init__(self, known: TrainingData, weights: np.ndarray) -> None:
        super().__init__(known, "drifting")
        self.weights = weights.copy()

    def arrays(self) -> Arrays:
        return {"weights": self.weights}

    def _score_block(self, users: np.ndarray) -> np.ndarray:
        return np.tile(self.weights, (len(users), 1))


@settings(epochs=4)
class DriftingSettings(IterationSettings):
    fails_in: int = setting(0, "The epoch that diverges; 0 for none.")


class Drifting(Recommender[DriftingSettings]):
    """The same order of items for everybody, another one after each epoch."""

    name = "drifting"
    __init__ = init_from_params(DriftingSettings)

    def _learn(self, run: TrainingRun) -> FittedScorer:
        trainable = Drift(run.train.n_items, self.settings.fails_in)
        return run.run(trainable, self._restore)

    def _restore(self, arrays: Arrays, known: TrainingData, settings: object) -> FittedScorer:
        return Weights(known, arrays["weights"])


def timeless(history: pl.DataFrame) -> pl.DataFrame:
    """A history without what a clock said."""
    return history.drop("seconds", "validation_seconds")


@pytest.fixture(scope="module")
def split() -> Split:
    log = synthesize(users=60, items=40, interactions=900, seed=1)
    return draw_candidates(leave_one_out(log), n=9)


def test_a_run_resumes_by_the_rules_that_it_began_with(split: Split, tmp_path: Path) -> None:
    options = FitOptions(checkpoint=tmp_path, resume=True)
    Drifting(epochs=2).fit(split.train, split.validation, options)
    resumed = Drifting(epochs=4).fit(split.train, Validation.of(split), options)
    whole = Drifting(epochs=4).fit(split.train, split.validation)
    assert timeless(resumed.history_).equals(timeless(whole.history_))


def test_a_run_with_another_validation_times_or_library_is_refused(
    split: Split, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = FitOptions(checkpoint=tmp_path, resume=True)
    train, held_out = split.train, split.validation
    assert train.timestamps is not None
    Drifting().fit(train, held_out, options)
    optimistic = Validation(held_out, known=train.by_user, ties="optimistic")
    for log, judge in (
        (train, None),
        (train, Validation.of(split, "paper")),
        (train, optimistic),
        (train, held_out.select(held_out.user_rows > 5)),
        (replace(train, timestamps=train.timestamps[::-1].copy()), held_out),
        (replace(train, timestamps=None), held_out),
    ):
        with pytest.raises(ModelFileError, match="other settings or data"):
            Drifting().fit(log, judge, options)
    monkeypatch.setattr(training, "__version__", "0.0.0")
    with pytest.raises(ModelFileError, match="other settings or data"):
        Drifting().fit(train, held_out, options)


@pytest.mark.parametrize("validated", [False, True])
def test_divergence_keeps_the_best_finished_epoch_and_its_history(
    split: Split, validated: bool
) -> None:
    held_out = split.validation if validated else None
    model = Drifting(fails_in=3)
    with pytest.raises(DivergenceError, match="epoch 3"):
        model.fit(split.train, held_out)
    whole = Drifting(epochs=2).fit(split.train, held_out)
    assert timeless(model.history_).equals(timeless(whole.history_))
    assert model.best_epoch_ == whole.best_epoch_
    assert model.report_["ending"] == "diverged"
    np.testing.assert_array_equal(model.weights_, whole.weights_)
    assert model.recommend(k=3).equals(whole.recommend(k=3))


@pytest.mark.parametrize("validated", [False, True])
def test_divergence_before_any_finished_epoch_leaves_the_model_unfitted(
    split: Split, validated: bool
) -> None:
    model = Drifting(fails_in=1)
    with pytest.raises(DivergenceError, match="epoch 1"):
        model.fit(split.train, split.validation if validated else None)
    assert not [name for name in vars(model) if name.endswith("_")]
    with pytest.raises(NotFittedError):
        model.recommend(k=3)


@pytest.mark.parametrize(("epochs", "every"), [(1, 1), (4, 1), (24, 2), (40, 4), (300, 30)])
def test_a_fit_that_does_not_say_how_often_validates_about_ten_times(
    split: Split, epochs: int, every: int
) -> None:
    model = Drifting(epochs=epochs).fit(split.train, split.validation)
    validated = model.history_.filter(pl.col("metric").is_not_null())["epoch"].to_list()
    expected = [number for number in range(1, epochs + 1) if number % every == 0]
    assert validated == sorted({*expected, epochs})
    assert len(validated) <= 15
    for chosen in (1, epochs):
        told = Drifting(epochs=epochs, validate_every=chosen).fit(split.train, split.validation)
        assert told.history_["metric"].is_not_null().sum() == epochs // chosen


def test_epochs_are_chosen_on_a_sample_and_on_all_if_asked_for(split: Split) -> None:
    everybody = Drifting(validation_users=None).fit(split.train, split.validation)
    judge = Validation.of(split)
    told: list[float] = []
    options = FitOptions(on_epoch=lambda epoch: told.append(judge(epoch.snapshot)))
    Drifting().fit(split.train, options=options)
    assert everybody.history_["metric"].to_list() == told
    enough = Drifting().fit(split.train, split.validation)  # there are fewer than a thousand
    assert enough.history_["metric"].to_list() == told
    few = Drifting(validation_users=7).fit(split.train, split.validation)
    assert few.history_["metric"].to_list() != told
    again = Drifting(validation_users=7, random_state=5).fit(split.train, split.validation)
    assert timeless(again.history_).equals(timeless(few.history_)), "the same people every time"


def test_a_caller_who_says_how_many_users_to_look_at_is_heard(split: Split) -> None:
    few = Drifting(validation_users=7).fit(split.train, split.validation)
    judge = Validation(split.validation, known=split.train.by_user, users=7)
    told = Drifting().fit(split.train, judge)
    assert timeless(told.history_).equals(timeless(few.history_))


def test_the_report_tells_training_and_validation_apart(split: Split) -> None:
    model = Drifting().fit(split.train, split.validation)
    assert model.report_["training_seconds"] == round(model.history_["seconds"].sum(), 3)
    spent = model.history_["validation_seconds"].sum()
    assert model.report_["validation_seconds"] == round(spent, 3)
    assert model.history_["validation_seconds"].min() > 0
    assert model.report_["seconds"] >= model.report_["validation_seconds"]
    alone = Drifting().fit(split.train)
    assert alone.report_["validation_seconds"] < model.report_["seconds"]


def test_a_failed_second_fit_leaves_the_first_as_it_was(split: Split) -> None:
    model = Drifting().fit(split.train)
    before = dict(vars(model))

    def stop(epoch: Epoch) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        model.fit(split.train, options=FitOptions(on_epoch=stop))
    assert vars(model).keys() == before.keys()
    assert all(value is before[name] for name, value in vars(model).items())


def test_first_vectors_that_start_too_far_out_are_named(random_log) -> None:
    far = FISM(init_scale=100.0, epochs=2, dim=8)
    with pytest.raises(DivergenceError, match=r"lower init_scale \(100, by default 0\.03\) or l"):
        far.fit(random_log)
    with pytest.raises(DivergenceError, match=r": lower learning_rate\.$"):
        FISM(learning_rate=1e30, epochs=2, dim=8).fit(random_log)
    with pytest.raises(ParameterError, match=r"init_scale=1e\+30 is not allowed.*at most 100"):
        FISM(init_scale=1e30).fit(random_log)


@pytest.mark.parametrize("name", ["bpr", "ease"])
def test_validation_data_of_another_type_are_refused(name: str, split: Split) -> None:
    with pytest.raises(ParameterError, match=r"validated on 0\.2.*held-out"):
        create(name).fit(split.train, 0.2)
