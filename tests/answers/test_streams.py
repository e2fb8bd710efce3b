"""Recommendations for everybody, in a file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from transcf.answers import streams
from transcf.data.interactions import Interactions
from transcf.errors import DataError, EvaluationError, UnknownIdError
from transcf.learning.item_weights import ItemWeights
from transcf.models.ease import EASE


@pytest.mark.parametrize("piece_rows", [1, 70, 2**20])
def test_the_file_holds_what_recommend_returns(
    random_log: Interactions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, piece_rows: int
) -> None:
    monkeypatch.setattr(streams, "PIECE_ROWS", piece_rows)
    model = EASE().fit(random_log)
    filters = {"exclude": ["item 01"], "exclude_seen": False}
    path = model.recommend_all(tmp_path / "recs.parquet", 7, **filters)
    assert pl.read_parquet(path).equals(model.recommend(k=7, **filters))
    some = [5, 3, 5, 99999]
    model.recommend_all(path, 7, users=some, on_unknown="skip")
    assert pl.read_parquet(path).equals(model.recommend(some, 7, on_unknown="skip"))
    model.recommend_all(path, 0)
    assert pl.read_parquet(path).equals(model.recommend(k=0))
    assert [found.name for found in tmp_path.iterdir()] == ["recs.parquet"]


def test_a_failure_leaves_the_old_file_alone(
    random_log: Interactions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = EASE().fit(random_log)
    path = tmp_path / "recs.parquet"
    path.write_text("as it was")
    with pytest.raises(UnknownIdError):
        model.recommend_all(path, users=[99999])
    monkeypatch.setattr(streams, "PIECE_ROWS", 100)
    weights = np.full_like(model.weights_, np.nan)
    model.learned_ = ItemWeights(model.learned_.known, model.name, weights)
    with pytest.raises(EvaluationError, match="NaN"):
        model.recommend_all(path)
    assert path.read_text() == "as it was"
    assert [found.name for found in tmp_path.iterdir()] == ["recs.parquet"]
    for place in (tmp_path, tmp_path / "nowhere" / "recs.parquet"):
        with pytest.raises(DataError, match="name a file in a folder that exists"):
            model.recommend_all(place)
