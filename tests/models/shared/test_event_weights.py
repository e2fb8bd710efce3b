"""`EventWeights` as a parameter of models: constructor, old names, files, command line."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import pytest
from sklearn.base import clone

import transcf
from transcf.data import synthesize
from transcf.errors import ParameterError
from transcf.models.registry import name_and_params

WEIGHTS = transcf.EventWeights(recency=2.0, half_life=0.2)


def test_it_is_immutable_and_compared_by_value() -> None:
    assert transcf.EventWeights(recency=2.0, half_life=0.2) == WEIGHTS
    assert len({WEIGHTS, transcf.EventWeights(recency=2.0, half_life=0.2)}) == 1
    assert repr(WEIGHTS) == "EventWeights(recency=2.0, half_life=0.2)"
    with pytest.raises(AttributeError):
        WEIGHTS.recency = 1.0  # type: ignore[misc]


def test_old_names_are_replaced_with_a_warning() -> None:
    with pytest.warns(FutureWarning, match="'half_life' of TransCF is part of 'event_weights'"):
        model = transcf.TransCF(half_life=3.0)
    assert model.event_weights == transcf.EventWeights(recency=4.0, half_life=3.0)
    with pytest.warns(FutureWarning, match="'recency'"):
        model.set_params(recency=1.0)
    assert model.event_weights == transcf.EventWeights(recency=1.0, half_life=3.0)
    with pytest.raises(ParameterError, match="'half_life' is given twice"):
        transcf.BPR(half_life=3.0, event_weights=WEIGHTS)
    with pytest.raises(ParameterError, match="'half_life' is given twice"):
        transcf.create("bpr", half_life=3.0, event_weights=WEIGHTS)


def test_wrong_values_are_refused() -> None:
    log = synthesize()
    with pytest.raises(ParameterError, match="event_weights='x' is not allowed; it must be an Ev"):
        transcf.BPR(event_weights="x").fit(log)
    with pytest.raises(ParameterError, match="BPR: half_life=-1 is not allowed"):
        transcf.BPR(event_weights=transcf.EventWeights(half_life=-1)).fit(log)
    with pytest.raises(ParameterError, match="half_life=0 is not allowed"):
        transcf.BPR().set_params(event_weights=transcf.EventWeights(half_life=0))


def test_names_of_fields_work_where_parameters_are_text(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = transcf.create("ease", recency=2.0, half_life=0.2)
        assert model.event_weights == WEIGHTS == clone(model).event_weights
        assert transcf.create("ease", event_weights=WEIGHTS).get_params() == model.get_params()
        assert name_and_params(model) == ("ease", {"recency": 2.0, "half_life": 0.2})
        assert transcf.TransCF.paper("ciao").event_weights.recency == 0
        assert transcf.TransCF.paper(event_weights=WEIGHTS).event_weights == WEIGHTS
        folder = model.fit(synthesize()).save(tmp_path / "model")
        assert transcf.load(folder).event_weights == WEIGHTS
    stored = json.loads((folder / "model.json").read_text(encoding="utf-8"))
    assert stored["params"]["half_life"] == 0.2
