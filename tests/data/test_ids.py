"""Ids survive the way in and out."""

import copy
import os
import pickle
import signal
import subprocess
import sys

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from transcf.data.ids import UNKNOWN, IdMap
from transcf.errors import UnknownIdError

INTEGERS = st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1)
TEXTS = st.lists(st.text(max_size=20), min_size=1)


@given(INTEGERS | TEXTS)
@settings(deadline=None)
def test_ids_survive_the_round_trip(values):
    column = pl.Series(values, dtype=pl.String if isinstance(values[0], str) else pl.Int64)
    ids, rows = IdMap.encode(column)
    assert ids.ids(rows).to_list() == values
    assert ids.series.to_list() == sorted(set(values), key=_order)
    assert ids.rows(column).tolist() == rows.tolist()
    assert ids.rows_of_column(column).tolist() == rows.tolist()


def _order(value):
    return value.encode("utf-8") if isinstance(value, str) else value


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["10", "9", "-3", "0"], [-3, 0, 9, 10]),
        (["10", "007"], ["007", "10"]),
        (["10", "+9"], ["+9", "10"]),
        (["1.0", "2"], ["1.0", "2"]),
        (["10", "x"], ["10", "x"]),
        (["9" * 19, "1"], ["1", "9" * 19]),
        (["-0"], ["-0"]),
    ],
)
def test_text_becomes_integers_only_if_nothing_is_lost(texts, expected):
    ids, rows = IdMap.encode(pl.Series(texts), parse_integers=True)
    assert ids.series.to_list() == expected
    assert [str(value) for value in ids.ids(rows)] == texts


def test_a_collision_of_hashes_is_found_and_mended(monkeypatch):
    honest = pl.Series.hash

    def colliding(column, seed=0):
        return honest(column, seed) if seed else pl.Series(np.zeros(len(column), np.uint64))

    monkeypatch.setattr(pl.Series, "hash", colliding)
    ids, rows = IdMap.encode(pl.Series(["b", "a", "b"]))
    assert ids.series.to_list() == ["a", "b"]
    assert rows.tolist() == [1, 0, 1]


def test_many_ids_are_numbered_in_order():
    values = np.random.default_rng(0).permutation(100_000) * 7 - 50_000
    ids, rows = IdMap.encode(pl.Series(np.repeat(values, 2)))
    expected, inverse = np.unique(np.repeat(values, 2), return_inverse=True)
    assert ids.series.to_numpy().tolist() == expected.tolist()
    assert rows.tolist() == inverse.tolist()


def test_unknown_ids_have_no_row_and_are_named():
    ids = IdMap(pl.Series(["ann", "bob"]))
    assert ids.rows(["bob", "zoe"]).tolist() == [1, UNKNOWN]
    assert ids.rows([1, 2]).tolist() == [UNKNOWN, UNKNOWN]
    with pytest.raises(UnknownIdError, match=r"user 'zoe' is unknown \(1 of 2 are\)"):
        ids.require(["bob", "zoe"], "user")


@pytest.mark.parametrize(
    ("known", "asked", "message"),
    [
        (["a", "b"], ["c"], "user 'c' is unknown; user ids are text such as 'a', and 2 are known."),
        ([7], [8], "user 8 is unknown; the only known user is 7."),
        ([7, 9], ["7", 9], "user '7' is unknown (1 of 2 are); user ids are integers such as 7, "
         "and 2 are known."),
    ],
)  # fmt: skip
def test_the_sentence_about_an_unknown_id(known, asked, message):
    with pytest.raises(UnknownIdError) as caught:
        IdMap(pl.Series(known)).require(asked, "user")
    assert str(caught.value) == message


def test_what_no_id_can_be_is_unknown():
    assert IdMap(pl.Series(["a", "b"])).rows(["\udcff", "b"]).tolist() == [UNKNOWN, 1]
    assert IdMap(pl.Series([1, 2])).rows([2**200, 2, -(2**64), 1j, None]).tolist() == [
        UNKNOWN, 1, UNKNOWN, UNKNOWN, UNKNOWN
    ]  # fmt: skip


def test_a_collision_among_known_ids_takes_another_hash(monkeypatch):
    honest = pl.Series.hash

    def colliding(column, seed=0):
        return honest(column, seed) if seed else pl.Series(np.zeros(len(column), np.uint64))

    monkeypatch.setattr(pl.Series, "hash", colliding)
    assert IdMap(pl.Series(["a", "b"])).rows(pl.Series(["b", "c", "a"])).tolist() == [1, UNKNOWN, 0]


def test_copies_and_pickles_are_equal():
    ids = IdMap(pl.Series(["ann", "bob"]))
    assert ids.rows(["bob"]).tolist() == [1]
    for twin in (copy.deepcopy(ids), pickle.loads(pickle.dumps(ids))):
        assert twin == ids
        assert twin.rows(["bob"]).tolist() == [1]


IN_A_FORKED_CHILD = """
import os, sys
import numpy as np
import polars as pl
from transcf.data.ids import IdMap

texts, numbers = (IdMap(column) for column in (
    pl.Series([f"u{row:06d}" for row in range(50_000)]), pl.Series(np.arange(50_000))))
pl.DataFrame({"a": numbers.series}).group_by("a").len()  # the pool of threads is running now
rows = np.arange(0, 50_000, 7)
child = os.fork()
if child == 0:
    for ids in (texts, numbers):
        assert (ids.require(ids.ids(rows), "user") == rows).all()
        assert (ids.rows(ids.ids(rows[:3]).to_list()) == rows[:3]).all()
    os._exit(0)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_lookups_work_in_a_forked_child():
    program = [sys.executable, "-W", "ignore", "-c", IN_A_FORKED_CHILD]
    # A process of its own group, so that a child that hangs ends with it.
    with subprocess.Popen(program, start_new_session=True) as process:
        try:
            assert process.wait(timeout=60) == 0
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            pytest.fail("ids cannot be looked up in a forked child")


def test_what_is_no_id_is_unknown_and_never_rounded():
    ids = IdMap(pl.Series([1, 2, 3]))
    assert ids.rows([1.9, 2.0, float("nan")]).tolist() == [UNKNOWN, 1, UNKNOWN]
    assert ids.rows(pl.Series([2.5, 3.0, None])).tolist() == [UNKNOWN, 2, UNKNOWN]
    assert ids.rows([True]).tolist() == ids.rows(pl.Series([True])).tolist() == [UNKNOWN]
    assert ids.rows([True, np.bool_(True), 2]).tolist() == [UNKNOWN, UNKNOWN, 1]
    assert ids.rows([np.int32(1), "1", 3]).tolist() == [0, UNKNOWN, 2]
    assert IdMap(pl.Series(["1", "b"])).rows([1, "b"]).tolist() == [UNKNOWN, 1]
