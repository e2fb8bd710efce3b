"""`form="auto"`: what validation prefers is kept, and said."""

import signal
from pathlib import Path

import numpy as np
import pytest

from transcf import TransCF, leave_one_out, load, synthesize
from transcf.data.split import Split
from transcf.errors import DivergenceError
from transcf.models.transcf import choosing
from transcf.models.transcf.settings import CANDIDATES
from transcf.training import FitOptions

SMALL = {"dim": 8, "epochs": 3, "validate_every": 1}


@pytest.fixture(scope="module")
def split() -> Split:
    return leave_one_out(synthesize(users=120, items=60, interactions=2000, seed=0))


def test_the_form_with_the_best_validation_is_kept(split: Split, tmp_path: Path) -> None:
    auto = TransCF(form="auto", **SMALL).fit(split.train, split.validation)
    alone = {
        form: TransCF(form=form, **SMALL).fit(split.train, split.validation) for form in CANDIDATES
    }
    figures = {form: model.history_["metric"].max() for form, model in alone.items()}
    assert auto.report_["validation_by_form"] == figures
    chosen = max(figures, key=figures.__getitem__)
    assert auto.report_["form"] == auto.settings_.form == chosen
    assert auto.settings.form == "auto", "the next fit chooses again"
    assert auto.name == alone[chosen].name
    assert auto.recommend(k=5).equals(alone[chosen].recommend(k=5))
    assert auto.best_epoch_ == alone[chosen].best_epoch_
    again = load(auto.save(tmp_path / "model"))
    assert again.settings.form == chosen
    assert again.recommend(k=5).equals(auto.recommend(k=5))


@pytest.mark.parametrize("forms", [CANDIDATES, CANDIDATES[::-1]])
def test_a_refit_keeps_the_choice(
    split: Split, forms: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(choosing, "CANDIDATES", forms[:1])
    auto = TransCF(form="auto", **SMALL).fit(split.train, split.validation)
    monkeypatch.setattr(choosing, "CANDIDATES", forms[::-1])
    figures = auto.report_["validation_by_form"]
    auto.refit(split.before_test)
    assert auto.report_["validation_by_form"] == figures
    assert auto.report_["form"] == auto.settings_.form == forms[0]
    expected = TransCF(form=forms[0], **SMALL).fit(split.train, split.validation)
    assert auto.recommend(k=5).equals(expected.refit(split.before_test).recommend(k=5))


def test_without_validation_the_first_is_taken(split: Split) -> None:
    auto = TransCF(form="auto", **SMALL).fit(split.train)
    assert auto.report_["form"] == CANDIDATES[0]
    assert "validation_by_form" not in auto.report_


def test_each_form_has_a_checkpoint_of_its_own(split: Split, tmp_path: Path) -> None:
    options = FitOptions(checkpoint=tmp_path)
    first = TransCF(form="auto", **SMALL).fit(split.train, split.validation, options)
    assert {path.name for path in tmp_path.iterdir()} >= set(CANDIDATES)
    again = TransCF(form="auto", **SMALL).fit(split.train, split.validation, options)
    assert again.recommend(k=5).equals(first.recommend(k=5))


@pytest.mark.parametrize("form", CANDIDATES)
def test_settings_of_either_form_can_be_given(
    split: Split, form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(choosing, "CANDIDATES", (form,))
    auto = TransCF(form="auto", tau=2, margin=2.0, **SMALL).fit(split.train, split.validation)
    again = load(auto.save(tmp_path / "model"))
    assert again.recommend(k=5).equals(auto.recommend(k=5))
    assert again.refit(split.before_test).settings_.form == form
    own = {"mixture": {"tau": 2}, "translation": {"margin": 2.0}}[form]
    alone = TransCF(form=form, **own, **SMALL).fit(split.train, split.validation)
    assert auto.recommend(k=5).equals(alone.recommend(k=5))


def test_an_interruption_keeps_the_form_that_was_finished(
    split: Split, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(choosing, "CANDIDATES", CANDIDATES)
    ended: list[int] = []

    def stop(epoch: object) -> None:
        ended.append(1)
        if len(ended) == SMALL["epochs"] + 1:  # in the second form
            signal.raise_signal(signal.SIGINT)

    options = FitOptions(on_epoch=stop)
    auto = TransCF(form="auto", **SMALL).fit(split.train, split.validation, options)
    assert auto.report_["ending"] == "interrupted"
    assert auto.report_["form"] == CANDIDATES[0]
    alone = TransCF(form=CANDIDATES[0], **SMALL).fit(split.train, split.validation)
    assert auto.recommend(k=5).equals(alone.recommend(k=5))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_form_that_diverges_is_not_chosen(split: Split, monkeypatch: pytest.MonkeyPatch) -> None:
    wild = {"dim": 8, "epochs": 3, "learning_rate": 1e4, "bound": "none"}
    monkeypatch.setattr(choosing, "CANDIDATES", ("translation",))
    alone = TransCF(form="auto", **wild)
    with pytest.raises(DivergenceError):
        alone.fit(split.train, split.validation)
    assert not alone.is_fitted or alone.settings_.form == "translation"
    monkeypatch.setattr(choosing, "CANDIDATES", ("translation", "mixture"))
    auto = TransCF(form="auto", **wild).fit(split.train, split.validation)
    assert auto.report_["validation_by_form"]["translation"] is None
    assert auto.report_["form"] == "mixture"
    assert np.isfinite(auto.score_block(np.arange(3, dtype=np.int32))).all()
