"""Recommendations for everybody, in a file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from transcf.data.interactions import Interactions
from transcf.errors import DataError, EvaluationError, UnknownIdError
from transcf.models import tables
from transcf.models.ease import EASE
from transcf.models.item_weights import ItemWeights
from transcf.models.tables import Filters


@pytest.mark.parametrize("piece_rows", [1, 70, 2**20])
def test_the_file_holds_what_recommend_returns(
    random_log: Interactions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, piece_rows: int
) -> None:
    monkeypatch.setattr(tables, "PIECE_ROWS", piece_rows)
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
    monkeypatch.setattr(tables, "PIECE_ROWS", 100)
    weights = np.full_like(model.weights_, np.nan)
    model.learned_ = ItemWeights(model.learned_.known, model.name, weights)
    with pytest.raises(EvaluationError, match="NaN"):
        model.recommend_all(path)
    assert path.read_text() == "as it was"
    assert [found.name for found in tmp_path.iterdir()] == ["recs.parquet"]
    for place in (tmp_path, tmp_path / "nowhere" / "recs.parquet"):
        with pytest.raises(DataError, match="name a file in a folder that exists"):
            model.recommend_all(place)


def test_files_of_neighbours_are_the_table_in_pieces(
    random_log: Interactions, tmp_path: Path
) -> None:
    model, size = EASE().fit(random_log), 7
    some = list(model.items_.series[:1])
    filters = Filters.of(model.items_, items=some)  # who has it gets no list
    expected = model.recommend(k=3, items=some)
    n_users = int(model.learned_.known.active.sum())
    assert expected["user_id"].n_unique() < n_users
    paths = [tmp_path / f"{number:02}.parquet" for number in range(-(-n_users // size))]
    paths[1].write_text("stays")
    for at, some_paths in ((0, paths[:2]), (2, paths[2:])):
        tables.write_lists(model.learned_, some_paths, at * size, size, 3, filters)
    assert paths[1].read_text() == "stays"
    paths[1].unlink()
    tables.write_lists(model.learned_, paths[1:2], size, size, 3, filters)
    assert pl.read_parquet(paths).equals(expected)
    users = model.users_.series.filter(pl.Series(model.learned_.known.active))
    for number, path in enumerate(paths):
        assert pl.read_parquet(path)["user_id"].is_in(users[number * size :][:size].implode()).all()
