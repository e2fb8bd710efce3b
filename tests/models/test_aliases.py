"""Old names of models and parameters: replaced with a warning, in one place."""

from __future__ import annotations

import pytest

from transcf import TransCF, TransCFMixture, create
from transcf.errors import ParameterError
from transcf.models.aliases import PARAMETERS, from_format_2
from transcf.models.registry import canonical_name, model_class


@pytest.mark.parametrize(
    ("old", "new"), [("transcf-translation", "transcf"), ("TransCF_still", "transcf-none")]
)
def test_old_names_of_models(old: str, new: str) -> None:
    with pytest.warns(FutureWarning, match=f"called '{new}'"):
        assert canonical_name(old) == new
    with pytest.warns(FutureWarning):
        assert create(old).get_params() == create(new).get_params()


def test_the_plain_name_is_the_published_model() -> None:
    model = create("transcf")
    assert (type(model), model.variant, model.name) == (TransCF, "translation", "TransCF")
    assert model.get_params() == TransCF().get_params()


def test_form_is_called_variant() -> None:
    with pytest.warns(FutureWarning, match="'variant'"):
        assert TransCF(form="dot", dim=8).get_params() == TransCF(variant="dot", dim=8).get_params()
    with pytest.warns(FutureWarning, match="'variant'"):
        assert TransCF().set_params(form="still").variant == "none"
    with pytest.warns(FutureWarning), pytest.raises(ParameterError, match="'variant' twice"):
        TransCF(form="dot", variant="alt")


def test_the_mixture_is_another_class() -> None:
    with pytest.warns(FutureWarning, match="TransCFMixture"):
        model = create("transcf", form="mixture", rho=0.5, tied=True)
    assert (
        model.get_params() == TransCFMixture(history_decay=0.5, tie_item_vectors=True).get_params()
    )
    with pytest.warns(FutureWarning), pytest.raises(ParameterError, match="TransCFMixture"):
        TransCF(form="mixture")
    with pytest.raises(ParameterError, match=r"'tau' .*TransCFMixture"):
        create("transcf", tau=3.0)


@pytest.mark.parametrize("kind", ["TransCF", "TransCFMixture"])
def test_old_names_of_parameters(kind: str) -> None:
    for old, new in PARAMETERS[kind].items():
        value = model_class(kind)().get_params()[new]
        with pytest.warns(FutureWarning, match=f"{old!r}.*{new!r}"):
            assert model_class(kind)(**{old: value}).get_params()[new] == value


def test_removed_parameters() -> None:
    with pytest.warns(FutureWarning, match="'bias_rate'"):
        assert TransCF(bias_rate=0.2).get_params() == TransCF().get_params()
    with pytest.raises(ParameterError, match=r"'bias_rate' any more.*always 0.2"):
        TransCF(bias_rate=0.5)
    with pytest.warns(FutureWarning, match="'decay'.*ignored"):
        kind, params = from_format_2("TransCF", {"form": "mixture", "decay": "none", "dim": 8})
    assert (kind, params) == ("TransCFMixture", {"dim": 8})


def test_parts_of_old_blends_keep_their_meaning() -> None:
    """The plain name of a part meant the mixture."""
    text = "ease(regularization=3.0) + transcf + transcf(dim=8) + transcf-still(dim=4)"
    _, params = from_format_2("Blend", {"parts": text, "beneath": 0.0})
    assert params["parts"] == (
        "ease(regularization=3.0) + transcf-mixture + transcf-mixture(dim=8) + transcf-none(dim=4)"
    )
    assert "beneath" not in params


def test_combinations_that_do_not_exist_any_more_are_named() -> None:
    old = {"form": "dot", "neighbors": "attention", "dim": 8}
    with pytest.raises(ParameterError, match=r"attention.*not exist"):
        from_format_2("TransCF", old)


def test_removed_models_are_named() -> None:
    with pytest.raises(ParameterError, match=r"'transcf-map' any more.*none was better"):
        create("transcf-map")


def test_values_of_any_type_are_refused_with_a_sentence() -> None:
    with pytest.warns(FutureWarning), pytest.raises(ParameterError, match="variant"):
        create("transcf", form=["dot"])._check_params()
    with pytest.warns(FutureWarning):
        assert from_format_2("TransCF", {"form": {}})[1]["variant"] == {}
