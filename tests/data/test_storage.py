"""Splits as folders."""

import json

import numpy as np
import pytest

from transcf.data import Split, draw_candidates, leave_one_out, open_data, open_split, synthesize
from transcf.errors import DataError


@pytest.fixture(scope="module")
def split():
    log = synthesize(users=60, items=40, interactions=600)
    return draw_candidates(leave_one_out(log, "time"), n=9, seed=3)


def same(one, other):
    for name in ("train", "validation", "test"):
        a, b = getattr(one, name), getattr(other, name)
        assert a.to_frame().equals(b.to_frame())
        assert a.positions.tolist() == b.positions.tolist()
        assert a.categories.equals(b.categories)
        assert a.report == b.report
    assert one.recipe == other.recipe
    assert one.report == other.report
    assert one.candidates.source == other.candidates.source
    assert one.candidates.indptr.tolist() == other.candidates.indptr.tolist()
    assert one.candidates.items.tolist() == other.candidates.items.tolist()


def test_round_trip(split, tmp_path):
    folder = split.save(tmp_path / "deep" / "split")
    same(split, Split.load(folder))
    assert [path.name for path in folder.parent.iterdir()] == ["split"]


def test_without_candidates_and_users_without_events(tmp_path):
    log = synthesize(users=60, items=40, interactions=600)
    part = log.select(log.user_rows > 3)
    made = leave_one_out(part, "random", seed=9)
    loaded = Split.load(made.save(tmp_path / "s"))
    assert loaded.candidates is None
    assert loaded.train.n_users == 60
    assert (loaded.recipe["rule"], loaded.recipe["seed"]) == ("leave-one-out by random", 9)
    assert loaded.how == made.how
    assert loaded.how.endswith("at random for test, another for validation, seed 9")


def test_a_saved_split_is_replaced_and_nothing_else(split, tmp_path):
    folder = split.save(tmp_path / "split")
    same(split, Split.load(split.save(folder)))
    other = tmp_path / "photos"
    other.mkdir()
    (other / "cat.jpg").touch()
    with pytest.raises(DataError, match="is not a saved split"):
        split.save(other)
    assert (other / "cat.jpg").exists()


def test_a_failed_save_leaves_no_trace(split, tmp_path, monkeypatch):
    monkeypatch.setattr("transcf.data.split.Report.to_list", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        split.save(tmp_path / "split")
    assert list(tmp_path.iterdir()) == []


def test_damage_is_one_sentence(split, tmp_path):
    folder = split.save(tmp_path / "split")
    with pytest.raises(DataError, match=r"it has no split\.json"):
        Split.load(tmp_path)
    (folder / "train.parquet").write_bytes(b"PAR1")
    with pytest.raises(DataError, match="is a damaged split"):
        Split.load(folder)
    head = json.loads((folder / "split.json").read_text())
    (folder / "split.json").write_text(json.dumps({**head, "version": 99}))
    with pytest.raises(DataError, match="of version 99"):
        Split.load(folder)


def test_a_saved_split_opens_as_data_and_as_split(split, tmp_path):
    folder = split.save(tmp_path / "split")
    log = open_data(folder)
    whole = synthesize(users=60, items=40, interactions=600)
    assert log.to_frame().equals(whole.to_frame())
    assert np.array_equal(log.positions, whole.positions)
    same(split, open_split(folder, "paper"))
