"""Tables in memory, whoever made them: read as the plain oracle does, or refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import scipy.sparse as sp
from hypothesis import assume, given
from hypothesis import strategies as st
from tests.hostile import _oracle
from tests.hostile._checks import judge
from tests.hostile._columns import Table, tables
from tests.hostile._oracle import Events, Row, UnclearError, WrongError
from tests.hostile._outcomes import Refused, cases, outcome_of

from transcf import read_interactions
from transcf.data.readers import as_interactions, open_data


@cases("tables", 0.04)
@given(table=tables(), lazy=st.booleans())
def test_polars(round_: int, table: Table, lazy: bool) -> None:
    try:
        frame: Any = table.polars()
    except (TypeError, pl.exceptions.PolarsError):
        assume(False)
    found = outcome_of("tables", lambda: read_interactions(frame.lazy() if lazy else frame))
    judge(found, table.expected, most=len(frame))


@cases("tables", 0.04)
@given(table=tables())
def test_pandas(round_: int, table: Table) -> None:
    try:
        frame = table.pandas()
    except (TypeError, ValueError, OverflowError):
        assume(False)
    judge(outcome_of("tables", lambda: as_interactions(frame)), table.expected, most=len(frame))


SCALARS = st.sampled_from(
    [1, 2, 3, "ann", "bob", "x", 1.0, 2.5, True, None, b"b", 2**63, -(2**63), 2**200, "",
     float("nan"), (1,), 1j, np.int8(4), np.float32(2.0), np.str_("ann"), np.bool_(True),
     np.datetime64("2020-01-01"), pd.NA, pd.Timestamp("2020-01-01"), object(), "\ud800"]
)  # fmt: skip
LIKELY = st.sampled_from([1, 2, 3]) | st.sampled_from(["ann", "bob"])


@cases("tables", 0.03)
@given(
    pairs=st.lists(st.tuples(st.sampled_from([1, 2]), st.sampled_from(["x", "y", "z"])), max_size=5)
    | st.lists(st.tuples(LIKELY, LIKELY), max_size=3)
    | st.lists(st.tuples(SCALARS, SCALARS) | st.lists(SCALARS, max_size=3) | SCALARS, max_size=4)
)
def test_pairs(round_: int, pairs: list[Any]) -> None:
    def expected() -> Events:
        if not all(
            isinstance(pair, tuple | list) and len(pair) == 2 and {*map(type, pair)} <= {int, str}
            for pair in pairs
        ):
            raise UnclearError("odd objects")
        if any(value == "\ud800" for pair in pairs for value in pair):
            raise WrongError("no text")
        if any(len({type(pair[place]) for pair in pairs}) > 1 for place in (0, 1)):
            raise WrongError("of two kinds")
        return _oracle.events_of([Row(*pair) for pair in pairs], rated=False, timed=False,
                                 from_text=False)  # fmt: skip

    judge(outcome_of("tables", lambda: as_interactions(pairs)), expected, most=len(pairs))


@cases("tables", 0.03)
@given(data=st.data())
def test_sparse_matrices(round_: int, data: st.DataObject) -> None:
    shape = data.draw(st.tuples(st.integers(0, 4), st.integers(0, 4)))
    kind = data.draw(st.sampled_from(["float64", "float32", "int8", "uint8", "bool", "complex128"]))
    form = data.draw(st.sampled_from(["csr", "csc", "coo", "lil", "dok", "bsr", "dia"]))
    values = st.sampled_from([0, 1, 1, 2, -1, 100])
    cells = [[data.draw(values) for _ in range(shape[1])] for _ in range(shape[0])]
    if kind in ("uint8", "bool"):
        cells = [[abs(value) for value in row] for row in cells]
    dense = np.array(cells, dtype=kind).reshape(shape)
    container = data.draw(st.sampled_from([sp.coo_matrix, sp.coo_array]))
    matrix = container(dense).asformat(form)

    def expected() -> Events:
        if kind == "complex128":
            raise WrongError("complex numbers")
        if form in ("bsr", "dia"):
            raise UnclearError("these forms store zeros of their own")
        stored = [(u, i, dense[u, i].item()) for u in range(shape[0]) for i in range(shape[1])
                  if dense[u, i]]  # fmt: skip
        rated = any(value != 1 for *_, value in stored)
        rows = [Row(u, i, float(value)) for u, i, value in stored]
        return _oracle.events_of(rows, rated=rated, timed=False, from_text=False)

    judge(outcome_of("tables", lambda: as_interactions(matrix)), expected, most=dense.size)


OTHERS = [
    None, 5, 2.5, True, b"bytes", {}, {"user": [1], "item": [2]}, {1, 2}, object(), range(3), int,
    np.arange(4), np.ones((3, 2)), np.array([("a", "b")]), pd.Series([1, 2]), pd.Index([1]),
    pl.Series([1, 2]), pl.DataFrame(), pd.DataFrame(), pl.LazyFrame({"user": [1]}),
    pa.table({"user": [1, 2], "item": ["x", "y"]}), pa.table({"x": [1]}), pa.array([1]),
    pl.LazyFrame({"user": [1], "item": [2]}).select("nothing"), iter([(1, 2)]), lambda: 1,
    pd.DataFrame({"user": [1], "item": [2]}, index=["a"]), pd.DataFrame([[1, 2]]),
    pd.DataFrame([[1, 2, 3]], columns=["user", "item", "item"]), sp.coo_array(np.ones(3)),
    pd.DataFrame([[1, 2]], columns=pd.MultiIndex.from_tuples([("user", "a"), ("item", "b")])),
    pa.table({"user": pa.array([1], pa.dictionary(pa.int8(), pa.string()).index_type),
              "item": pa.array(["x"]).dictionary_encode()}),
    "", ".", "/", "/dev/null", "nowhere.csv", "a" * 5000, "a\0b", "~nobody/x.csv", "*.csv", "[",
    "\ud800.csv",
]  # fmt: skip
READING = st.fixed_dictionaries(
    {},
    optional={
        "user": st.sampled_from([None, "user", "x", 1, 0, -1, 2**70, True, 1.5, "", b"user", []]),
        "item": st.sampled_from([None, "item", 2, "user", ()]),
        "rating": st.sampled_from([None, "rating", 3, "user"]),
        "timestamp": st.sampled_from([None, "nothing", 2**64]),
        "category": st.sampled_from([None, "item", "c"]),
        "min_rating": st.sampled_from([None, 0, "3", float("nan"), True, 2**2000, 1j, [1]]),
        "header": st.sampled_from([True, False, "no", None, 1]),
        "separator": st.sampled_from([None, ",", "", "\n", '"', 5, "\ud800"]),
        "encoding": st.sampled_from(["utf-8", "klingon", "", None, 5, "rot13", "idna", "\0"]),
    },
)


@cases("tables", 0.03)
@given(
    source=st.sampled_from(OTHERS),
    reading=READING,
    opener=st.sampled_from([read_interactions, read_interactions, open_data]),
)
def test_whatever_else(round_: int, source: Any, reading: dict[str, Any], opener: Any) -> None:
    found = outcome_of("tables", lambda: opener(source, **reading))
    # All that could be a log among them have a row or two.
    assert isinstance(found, Refused) or 0 < len(found.value) <= 2
