"""The model for use: the chosen epoch on all events, and what a failed fit leaves alone."""

from __future__ import annotations

import numpy as np
import pytest

from transcf import BPR, EASE, TransCF, TransCFMixture, leave_one_out, load, synthesize
from transcf.data.split import Split
from transcf.errors import DivergenceError, NotFittedError, ParameterError
from transcf.models import ease
from transcf.models.training import FitOptions


@pytest.fixture(scope="module")
def split() -> Split:
    return leave_one_out(synthesize(users=120, items=60, interactions=2000, seed=4))


def test_refit_takes_the_first_steps_of_a_fresh_fit_on_everything(split: Split) -> None:
    log = synthesize(users=120, items=60, interactions=2000, seed=4)
    settings = {"dim": 8, "decay": "none", "bias_regularization": 0.02}
    model = BPR(epochs=6, validate_every=1, **settings).fit(split.train, split.validation)
    chosen = model.best_epoch_
    model.refit(log)
    fresh = BPR(epochs=chosen, **settings).fit(log)
    assert model.best_epoch_ == chosen
    assert len(model.history_) == chosen
    for name, array in fresh.learned_.arrays().items():
        np.testing.assert_array_equal(model.learned_.arrays()[name], array)


def test_refit_keeps_the_defaults_that_the_data_gave(split: Split) -> None:
    log = synthesize(users=120, items=60, interactions=2000, seed=4)
    model = BPR(dim=8, epochs=2).fit(split.train, split.validation)
    found = model.settings_
    assert model.refit(log).settings_ == found
    assert model.fit(log).settings_.bias_regularization != found.bias_regularization
    model.set_params(bias_regularization=0.5)
    assert model.refit(log).settings_.bias_regularization == 0.5


def test_refit_keeps_the_schedule_of_the_learning_rate(split: Split) -> None:
    log = synthesize(users=120, items=60, interactions=2000, seed=4)
    kept: dict[int, np.ndarray] = {}
    options = FitOptions(on_epoch=lambda e: kept.update({e.number: e.snapshot.arrays()}))
    TransCFMixture(dim=8, epochs=5).fit(log, options=options)
    model = TransCFMixture(dim=8, epochs=5, validate_every=1).fit(split.train, split.validation)
    chosen = model.best_epoch_
    model.refit(log)
    for name, array in kept[chosen].items():
        np.testing.assert_array_equal(model.learned_.arrays()[name], array)


def test_a_loaded_model_can_be_fitted_again(split: Split, tmp_path: object) -> None:
    log = synthesize(users=120, items=60, interactions=2000, seed=4)
    model = BPR(dim=8, epochs=3).fit(split.train, split.validation)
    again = load(model.save(f"{tmp_path}/model")).refit(log)
    model.refit(log)
    np.testing.assert_array_equal(again.item_vectors_, model.item_vectors_)
    with pytest.raises(NotFittedError, match="call fit first"):
        BPR().refit(log)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_failed_fit_keeps_the_model_there_was(
    split: Split, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = EASE(regularization=50.0).fit(split.train)
    before = model.recommend(k=3)
    model.set_params(regularization=1.0)
    monkeypatch.setattr(ease, "invert_lower", lambda gram: False)
    with pytest.raises(ParameterError, match="cannot use regularization"):
        model.refit(split.train)
    assert model.recommend(k=3).equals(before)
    assert model.settings_.regularization == 50.0
    diverging = TransCF(dim=8, epochs=2).fit(split.train)
    vectors = diverging.item_vectors_.copy()
    diverging.set_params(learning_rate=1e4, norm_constraint="none")
    with pytest.raises(DivergenceError):
        diverging.fit(split.train)
    np.testing.assert_array_equal(diverging.item_vectors_, vectors)
