"""Parameters and fitted state, copies and pickles: scikit-learn's manners, for every model."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from transcf import EALS, EASE, load
from transcf.data.interactions import Interactions
from transcf.errors import ModelFileError, ParameterError, TransCFError
from transcf.models.base import Recommender
from transcf.models.mixture import TransCFMixture
from transcf.models.params import params_of
from transcf.models.registry import available, create
from transcf.models.training import FitOptions

EVERY_MODEL = pytest.mark.parametrize("name", available())


def use(model: Recommender[Any]) -> None:
    """Ask for all there is, so that everything which is kept for later is there."""
    user, item = model.users_.series[0], model.items_.series[0]
    model.recommend()
    form = model.linear_form()
    if form is not None:
        assert form.user_vectors.shape[0] == len(model.users_)
    for ask in (
        lambda: model.recommend_for([item]),
        lambda: model.similar_items(item),
        lambda: model.similar_users(user),
        lambda: model.explain(user, item, include_seen=True),
    ):
        with suppress(TransCFError):
            ask()


@EVERY_MODEL
def test_models_are_cloned_copied_and_pickled_at_any_time(
    name: str, fitted: Callable[[str], Recommender[Any]]
) -> None:
    base = pytest.importorskip("sklearn.base")
    model = create(name)
    for fresh in (base.clone(model), copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert fresh.get_params(deep=True) == model.get_params(deep=False)
        assert not fresh.is_fitted
    model = fitted(name)
    for _ in range(2):
        for copied in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
            assert copied.recommend().equals(model.recommend())
            use(copied)
        assert not base.clone(model).is_fitted
        assert base.clone(model).get_params() == model.get_params()
        use(model)


@EVERY_MODEL
def test_a_fitted_model_keeps_the_settings_it_was_fitted_with(
    name: str, fitted: Callable[[str], Recommender[Any]], tmp_path: Path
) -> None:
    model = fitted(name)
    before, answers = params_of(model.settings_), model.recommend()
    others = {"dim": 32, "regularization": 7.0, "n_neighbors": 3, "random_state": 9, "layers": 1}
    others |= {"alpha": 0.1, "item_bias": False, "form": "gmf" if name == "neumf" else "dot"}
    model.set_params(**{key: value for key, value in others.items() if key in before})
    assert model.recommend().equals(answers)
    model.save(tmp_path / "model")
    model.save(tmp_path / "model", overwrite=True)
    loaded = load(tmp_path / "model")
    assert loaded.recommend().equals(answers)
    assert loaded.get_params() == before
    assert loaded.name == model.name


def test_settings_that_matter_after_the_fit_count_at_once(
    log: Interactions, tmp_path: Path
) -> None:
    def model() -> EALS:
        return EALS(dim=4, epochs=1).fit(log)

    more = log.select(log.user_rows < 2)
    plain, changed, other = model(), model(), model()
    changed.set_params(dim=16, regularization=9.0, w_new=8.0)
    other.w_new = 8.0
    new_user = _with_new_user(more)
    vectors = [m.partial_fit(new_user).user_vectors_ for m in (plain, changed, other)]
    assert vectors[0].shape == vectors[1].shape
    assert (vectors[1] == vectors[2]).all()
    assert (vectors[0] != vectors[1]).any()
    loaded = load(changed.save(tmp_path / "model"))
    assert (loaded.get_params()["dim"], loaded.get_params()["w_new"]) == (4, 8.0)


def _with_new_user(log: Interactions) -> Interactions:
    from transcf import read_interactions

    table = log.to_frame().select("user_id", "item_id")
    return read_interactions(table.with_columns(user_id="new-" + table["user_id"]))


def test_set_params_checks_names_and_values() -> None:
    model = TransCFMixture()
    for values, expected in (
        ({"dim": 0}, "dim=0 is not allowed"),
        ({"dim": "many"}, "dim='many' is not allowed"),
        ({"dim": 8, "user_vectors": "learnt"}, "user_vectors='learnt' is not allowed"),
        ({"dims": 8}, "has no parameter 'dims'"),
    ):
        with pytest.raises(ParameterError, match=expected):
            model.set_params(**values)
        assert model.get_params() == TransCFMixture().get_params(), "nothing is changed"
    with pytest.raises(ParameterError, match="dim=0"):
        model.dim = 0
    wrong = TransCFMixture(dim=0, epochs=-1)
    assert wrong.set_params(dim=8).dim == 8, "others are left to fit"


@EVERY_MODEL
def test_notebooks_show_parameters(name: str, fitted: Callable[[str], Recommender[Any]]) -> None:
    shown = create(name)._repr_html_()
    assert "not fitted" in shown
    for parameter in create(name).get_params():
        assert f">{parameter}<" in shown
    assert "fitted on" in fitted(name)._repr_html_()
    assert "<script>" not in EASE(precision="<script>")._repr_html_()


def test_checkpoints_of_other_runs_are_kept(log: Interactions, tmp_path: Path) -> None:
    TransCFMixture(dim=4, epochs=2).fit(log, options=FitOptions(tmp_path))
    file = tmp_path / "checkpoint.safetensors"
    before = file.read_bytes()
    other = TransCFMixture(dim=5, epochs=1)
    for options in (FitOptions(tmp_path), FitOptions(tmp_path, resume=True)):
        with pytest.raises(ModelFileError, match=r"another folder.*fresh=True"):
            other.fit(log, options=options)
        assert file.read_bytes() == before
    # The same run, started again.
    TransCFMixture(dim=4, epochs=2).fit(log, options=FitOptions(tmp_path))
    other.fit(log, options=FitOptions(tmp_path, fresh=True))
    assert other.fit(log, options=FitOptions(tmp_path, resume=True)).is_fitted
    file.write_bytes(before[:100])
    with pytest.raises(ModelFileError, match="is damaged"):
        other.fit(log, options=FitOptions(tmp_path))
    with pytest.raises(ParameterError, match="contradict"):
        FitOptions(tmp_path, resume=True, fresh=True)
