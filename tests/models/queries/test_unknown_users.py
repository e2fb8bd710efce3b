"""Strangers get what is popular, if that is asked for."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from transcf import EASE, Popularity, read_interactions, synthesize
from transcf.errors import ParameterError
from transcf.models import tables
from transcf.models.base import Recommender

ITEMS = 30


@pytest.fixture(scope="module")
def model() -> Recommender:
    return EASE().fit(synthesize(users=40, items=ITEMS, interactions=400, seed=1))


def most_popular(model: Recommender, left: list[str] | None = None) -> list[tuple[str, float]]:
    """Items by their users, equal ones by id."""
    counts = model.item_counts_
    ids = model.items_.series.to_list()
    order = sorted(range(ITEMS), key=lambda row: (-counts[row], row))
    return [(ids[row], float(counts[row])) for row in order if left is None or ids[row] in left]


def test_known_users_and_strangers_in_one_table(model: Recommender, tmp_path: Path) -> None:
    asked = ["zoe", "u03", "abe", "zoe", "u01"]
    table = model.recommend(asked, 4, on_unknown="popular")
    assert table.columns == ["user_id", "item_id", "score", "rank", "source"]
    assert table["user_id"].to_list() == np.repeat(["zoe", "u03", "abe", "u01"], 4).tolist()
    is_known = np.repeat([False, True, False, True], 4)
    assert table["source"].to_list() == np.where(is_known, "model", "popularity").tolist()
    known = table.filter(pl.Series(is_known)).drop("source")
    assert known.equals(model.recommend(["u03", "u01"], 4))
    popular = table.filter(pl.Series(~is_known))
    assert popular.select("item_id", "score").rows() == most_popular(model)[:4] * 2
    assert popular["rank"].to_list() == [1, 2, 3, 4] * 2
    assert table.drop("source").schema == known.schema


def test_filters_hold_for_strangers(model: Recommender) -> None:
    ids = model.items_.series.to_list()

    def listed(**filters: object) -> list[tuple[str, float]]:
        table = model.recommend(["zoe", "abe"], 5, on_unknown="popular", **filters)
        return table.select("item_id", "score").rows()

    some = ids[4:8]
    with pytest.warns(UserWarning, match="1 of 5 item ids"):
        assert listed(items=[*some, "odd"]) == most_popular(model, some) * 2
    best = most_popular(model)[0][0]
    assert listed(exclude=[best]) == most_popular(model)[1:6] * 2
    own = {"abe": ids[:3], "zoe": ids[5:7]}
    assert listed(items=own) == most_popular(model, own["zoe"]) + most_popular(model, own["abe"])
    assert listed(exclude={"zoe": [best]}) == most_popular(model)[1:6] + most_popular(model)[:5]
    assert listed(exclude_seen=False) == listed(), "nothing of theirs is known"


def test_users_without_training_interactions_are_strangers() -> None:
    log = synthesize(users=40, items=ITEMS, interactions=400, seed=1)
    idle = EASE().fit(log.select(log.user_rows != 7))
    user = log.users.series[7]
    table = idle.recommend(user, 3, on_unknown="popular")
    assert table["source"].to_list() == ["popularity"] * 3
    assert idle.recommend(on_unknown="popular")["source"].to_list().count("model") == 39 * 10
    floor = Popularity().fit(log.select(log.user_rows != 7))
    listed = floor.recommend_for(["odd"], 3, on_unknown="popular")
    assert listed["item_id"].to_list() == table["item_id"].to_list()


@pytest.mark.parametrize("piece_rows", [1, 7, 2**20])
def test_the_same_goes_to_files(
    model: Recommender, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, piece_rows: int
) -> None:
    monkeypatch.setattr(tables, "PIECE_ROWS", piece_rows)
    asked = ["zoe", "u03", "abe", "u01"]
    path = model.recommend_all(tmp_path / "x.parquet", 3, users=asked, on_unknown="popular")
    assert pl.read_parquet(path).equals(model.recommend(asked, 3, on_unknown="popular"))
    model.recommend_all(path, 3, users=[], on_unknown="popular")
    assert pl.read_parquet(path).equals(model.recommend([], 3, on_unknown="popular"))


def test_somebody_new_without_usable_items(model: Recommender) -> None:
    ids = model.items_.series.to_list()
    for history in ([], ["odd", "rare"]):
        table = model.recommend_for(history, 3, on_unknown="popular", exclude=ids[:1])
        left = [pair for pair in most_popular(model) if pair[0] != ids[0]][:3]
        assert table.select("item_id", "score").rows() == left
        assert table["source"].to_list() == ["popularity"] * 3
    some = model.recommend_for(["odd", ids[2]], 3, on_unknown="popular")
    assert some["source"].to_list() == ["model"] * 3
    assert some.drop("source").equals(model.recommend_for([ids[2]], 3))
    assert some.schema == table.schema


def test_ids_of_another_kind_and_other_words_are_refused(model: Recommender) -> None:
    with pytest.raises(ParameterError, match=r"user 5 cannot stand in a table.*ids are text"):
        model.recommend(["zoe", 5], on_unknown="popular")
    with pytest.raises(ParameterError, match=r"cannot stand in a table.*text in UTF-8"):
        model.recommend("\udce9", on_unknown="popular")
    numbers = EASE().fit(read_interactions(pl.DataFrame({"user": [1, 2], "item": [3, 4]})))
    for wrong in ("zoe", True, 1.5, 2**70):
        with pytest.raises(ParameterError, match="ids are integers"):
            numbers.recommend([1, wrong], on_unknown="popular")
    mixed = numbers.recommend(np.array([1, 77]), 1, on_unknown="popular")
    assert mixed["user_id"].to_list() == [1, 77]
    with pytest.raises(ParameterError, match="one of 'raise', 'skip', 'popular'"):
        model.recommend("u01", on_unknown="odd")
    for ask in (model.similar_items, model.score):
        with pytest.raises(ParameterError, match="one of 'raise', 'skip'"):
            ask("u01", on_unknown="popular")
    with pytest.raises(ParameterError, match="one of 'raise', 'skip'"):
        model.explain_for(["odd"], model.items_.series[0], on_unknown="popular")


IN_A_FORKED_CHILD = """
import os, sys
import polars as pl
from transcf import EASE, TransCFMixture, synthesize

log = synthesize(users=200, items=60, interactions=2000, seed=1)
models = [EASE().fit(log), TransCFMixture(dim=4, epochs=1).fit(log)]
pl.DataFrame({"a": range(50_000)}).group_by("a").len()  # the pool of threads is running now
child = os.fork()
if child == 0:
    for model in models:
        table = model.recommend(["u010", "zoe"], 3, on_unknown="popular")
        assert table["source"].to_list() == ["model"] * 3 + ["popularity"] * 3
        model.recommend_for(["odd"], 3, on_unknown="popular")
        found = model.explain("u010", table["item_id"][0])
        assert len(str(found)) > 100 and found.to_frame().height == len(found.effects)
    os._exit(0)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_strangers_and_explanations_in_a_forked_child() -> None:
    program = [sys.executable, "-W", "ignore", "-c", IN_A_FORKED_CHILD]
    # A process of its own group, so that a child that hangs ends with it.
    with subprocess.Popen(program, start_new_session=True) as process:
        try:
            assert process.wait(timeout=120) == 0
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            pytest.fail("a forked child hangs")
