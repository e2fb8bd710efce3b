"""What scikit-learn and its users expect of an estimator."""

from __future__ import annotations

from typing import Any

import pytest
from tests.conformance.test_every_model import EVERY_MODEL, make

from transcf.data.synthetic import synthesize
from transcf.errors import NotFittedError, UnsupportedError
from transcf.models.ease import EASE

LOG = synthesize(users=30, items=20, interactions=200)
#: Attributes that every fitted model has.
FITTED = (
    "learned_",
    "users_",
    "items_",
    "seen_",
    "histories_",
    "item_counts_",
    "report_",
)


@EVERY_MODEL
def test_fitted_attributes_are_missing_before_fit(name: str) -> None:
    model = make(name)
    assert not any(hasattr(model, attribute) for attribute in FITTED)
    with pytest.raises(NotFittedError, match="call fit first"):
        _ = model.items_
    with pytest.raises(AttributeError, match="call fit first"):
        _ = model.user_vectors_
    with pytest.raises(AttributeError, match="no attribute 'odd'"):
        _ = model.odd
    model.fit(LOG)
    assert all(hasattr(model, attribute) for attribute in FITTED)
    assert not hasattr(model, "odd_")


def test_partial_fit_is_missing_from_models_that_cannot_grow() -> None:
    model = EASE().fit(LOG)
    assert not hasattr(model, "partial_fit")
    with pytest.raises(AttributeError, match="use refit"):
        model.partial_fit(LOG)


@pytest.mark.parametrize("options", [{}, {"scoring": lambda model, test: 1.0}])
def test_a_grid_search_names_what_tunes_models(options: dict[str, Any]) -> None:
    selection = pytest.importorskip("sklearn.model_selection")
    search = selection.GridSearchCV(EASE(), {"regularization": [1.0, 10.0]}, **options)
    with pytest.raises(UnsupportedError, match="transcf tune"):
        search.fit(LOG.to_frame().select("user_id", "item_id").to_numpy())
