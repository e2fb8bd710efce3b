"""What training may look at, and what survives an interruption; for every registered model."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.conformance.test_every_model import EVERY_MODEL, FLOOR, hit_rate, make

from transcf.data.interactions import Interactions
from transcf.data.split import Split
from transcf.data.splitters import leave_one_out, temporal_cut
from transcf.data.synthetic import synthesize
from transcf.errors import EvaluationError, NotFittedError
from transcf.evaluation import Validation, evaluate
from transcf.experiments.experiment import Candidate, Experiment
from transcf.experiments.run import EvalConfig
from transcf.models.base import Recommender
from transcf.models.ease import EASE
from transcf.models.fitted import FittedScorer
from transcf.models.params import values_of
from transcf.models.registry import available, create, model_class
from transcf.models.training import Epoch, FitOptions, Held, TrainingRun

ITERATIVE = [name for name in available() if model_class(name)._has_epochs()]
#: Models that keep more than an epoch: their own tests say what a refit is.
CHOOSING = {name for name in available() if create(name)._chooses(timed=False)} - {*ITERATIVE}


@pytest.fixture(scope="module")
def split() -> Split:
    return leave_one_out(synthesize(users=60, items=40, interactions=900, seed=1))


def digest(model: Recommender) -> str:
    return digest_of(model.learned_)


def digest_of(learned: FittedScorer) -> str:
    """All scores and all learned arrays in one string."""
    everybody = np.arange(len(learned.known.users), dtype=np.int32)
    summed = hashlib.sha256(learned.scores(everybody).tobytes())
    for name, array in sorted(learned.arrays().items()):
        summed.update(name.encode() + array.tobytes())
    return summed.hexdigest()


def trail(model: Recommender, train: Interactions, validation: Held) -> list[str]:
    """What is learned after each epoch, or at the end of training without choosing an epoch."""
    seen: list[str] = []
    options = FitOptions(on_epoch=lambda epoch: seen.append(digest_of(epoch.snapshot)))
    model.fit(train, validation, options)
    return seen or [digest(model)]


def others(split: Split) -> Interactions:
    """As many held-out pairs as the validation part has, with other items."""
    held = split.validation
    items = (held.item_rows + 7) % held.n_items
    return Interactions.from_rows(held.users, held.items, held.user_rows, items.astype(np.int32))


def few_epochs(name: str) -> dict[str, int]:
    return {"epochs": 4} if name in ITERATIVE else {}


def learns_from_training_alone(model: Recommender, split: Split) -> bool:
    twin = type(model)(**model.get_params())
    first = trail(model, split.train, split.validation)
    return first == trail(twin, split.train, others(split))


@EVERY_MODEL
def test_held_out_pairs_change_nothing_that_is_learned(name: str, split: Split) -> None:
    assert learns_from_training_alone(make(name, **few_epochs(name)), split)


class Cheat(EASE):
    """Learns from the validation part, too."""

    def _learn(self, run: TrainingRun) -> FittedScorer:
        train, validation = run.train, run.validation
        assert isinstance(validation, Interactions)
        users = np.concatenate([train.user_rows, validation.user_rows])
        items = np.concatenate([train.item_rows, validation.item_rows])
        both = Interactions.from_rows(train.users, train.items, users, items)
        return super()._learn(replace(run, log=both))


def test_a_cheat_would_be_noticed(split: Split) -> None:
    assert not learns_from_training_alone(Cheat(), split)


@EVERY_MODEL
def test_the_test_part_is_not_there_while_settings_are_chosen(name: str, split: Split) -> None:
    """With nothing in the test part, what is fitted and chosen is the same."""
    choices: list[dict[str, Any]] = [{}, {"random_state": 1}] if name in ITERATIVE else [{}]
    candidate = Candidate(name, name, {**make(name).get_params(), **few_epochs(name)}, choices)
    config = EvalConfig("leave-last-out", subset="validation")
    whole = Experiment(split, config).run(candidate)
    nothing = split.test.select(np.zeros(len(split.test), dtype=bool))
    blind = Experiment(replace(split, test=nothing), config).run(candidate)
    assert blind.chosen == whole.chosen
    assert blind.first.curve == whole.first.curve
    assert blind.evaluations[0].per_user.equals(whole.evaluations[0].per_user)


def no_trend(name: str) -> dict[str, float]:
    """A trend is added after the chosen epoch; tests/models/test_trend.py covers it."""
    return {"trend": 0.0} if "trend" in model_class(name)._rules() else {}


@pytest.mark.parametrize("name", [name for name in available() if name not in CHOOSING])
def test_refit_is_a_fresh_fit_on_the_union_up_to_the_chosen_epoch(name: str, split: Split) -> None:
    """Bit for bit: nothing is left of the fit that chose the epoch."""
    model = make(name, **few_epochs(name), **no_trend(name))
    model.fit(split.train, Validation.of(split))
    chosen = model.best_epoch_
    model.refit(split.before_test)
    again = type(model)(**values_of(model.settings_))  # a refit keeps what the data of the fit gave
    epochs = trail(again, split.before_test, None)
    assert digest(model) == epochs[(chosen or 1) - 1]
    assert model.best_epoch_ == chosen
    assert model.report_["interactions"] == len(split.train) + len(split.validation)


@EVERY_MODEL
def test_a_model_that_has_seen_one_event_after_the_cut_is_caught(name: str) -> None:
    cut = temporal_cut(synthesize(users=60, items=40, interactions=900, seed=1))
    event = np.arange(len(cut.test)) == 3
    quick = {"epochs": 1} if name in ITERATIVE else {}
    model = make(name, **quick).fit(cut.before_test)
    assert evaluate(model, cut, "temporal").users
    model.fit(Interactions.joined(cut.before_test, cut.test.select(event)))
    with pytest.raises(EvaluationError, match="fitted on 1 of the test interactions"):
        evaluate(model, cut, "temporal")


class KilledError(Exception):
    """Stands for whatever ends a run in the middle."""


@pytest.mark.parametrize("name", ITERATIVE)
def test_a_killed_run_resumes_with_the_same_bits(name: str, split: Split, tmp_path: Path) -> None:
    whole = make(name, **few_epochs(name)).fit(split.train, Validation.of(split))

    def die(epoch: Epoch) -> None:
        if epoch.number == 3:
            raise KilledError

    broken = FitOptions(checkpoint=tmp_path, checkpoint_seconds=0.0, on_epoch=die)
    with pytest.raises(KilledError):
        make(name, **few_epochs(name)).fit(split.train, Validation.of(split), broken)
    going_on = FitOptions(checkpoint=tmp_path, resume=True)
    resumed = make(name, **few_epochs(name)).fit(split.train, Validation.of(split), going_on)
    assert digest(resumed) == digest(whole)
    clock = ("seconds", "validation_seconds")
    assert resumed.history_.drop(clock).equals(whole.history_.drop(clock))
    assert resumed.best_epoch_ == whole.best_epoch_


@pytest.mark.parametrize("validated", [False, True])
@pytest.mark.parametrize("name", ITERATIVE)
def test_training_does_not_touch_the_model(name: str, validated: bool, split: Split) -> None:
    model = make(name, epochs=3, **no_trend(name))
    told: list[tuple[int, FittedScorer, str]] = []

    def listen(epoch: Epoch) -> None:
        assert not model.is_fitted
        assert not [attribute for attribute in vars(model) if attribute.endswith("_")]
        with pytest.raises(NotFittedError):
            model.recommend()
        told.append((epoch.number, epoch.snapshot, digest_of(epoch.snapshot)))

    judge = Validation.of(split) if validated else None
    model.fit(split.train, judge, FitOptions(on_epoch=listen))
    assert [number for number, _, _ in told] == [1, 2, 3]
    assert len({mark for _, _, mark in told}) == 3, "every epoch learns something"
    for _, snapshot, mark in told:
        assert digest_of(snapshot) == mark, "later epochs changed an earlier snapshot"
    # The model takes over the epoch that was chosen, as it was then.
    assert digest(model) == told[model.best_epoch_ - 1][2]
    if judge is not None:
        metrics = [judge(snapshot) for _, snapshot, _ in told]
        assert model.history_["metric"].to_list() == metrics


@pytest.mark.parametrize("name", ITERATIVE)
def test_a_fitted_model_is_not_touched_by_later_work(name: str, split: Split) -> None:
    """Not by a second fit of another model on the same data, nor by its own failed one."""
    model = make(name, epochs=2).fit(split.train)
    kept, mark = model.learned_, digest(model)
    make(name, epochs=2, random_state=3).fit(split.train)
    assert digest(model) == mark
    model.set_params(random_state=4).fit(split.train)
    assert digest_of(kept) == mark
    assert digest(model) != mark


class _AsGuests:
    """A model that knows its users by their histories alone."""

    def __init__(self, model: Recommender) -> None:
        self.users_ = model.users_
        self._guests = model.learned_.fold_in(model.histories_)

    def scores(self, users: np.ndarray) -> np.ndarray:
        return np.array(self._guests.scores(users))


@pytest.mark.parametrize("name", [name for name in available() if name not in FLOOR])
def test_people_who_were_not_in_training_get_good_lists(name: str, tastes: tuple) -> None:
    log, held = tastes
    model = make(name).fit(log)
    floor = max(hit_rate(make(other).fit(log), log, held) for other in FLOOR)
    assert hit_rate(_AsGuests(model), log, held) > floor + 0.08
