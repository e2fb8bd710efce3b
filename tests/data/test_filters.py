"""Filters against loops over plain pairs."""

from collections import Counter

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from transcf.data import k_core, paper_filter, read_interactions
from transcf.errors import DataError, ParameterError

PAIRS = st.sets(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=90)


def log_of(pairs):
    return read_interactions(pl.DataFrame(list(pairs), schema=["user", "item"], orient="row"))


def drop(pairs, side, least):
    counts = Counter(pair[side] for pair in pairs)
    return {pair for pair in pairs if counts[pair[side]] >= least}


def check(filtered, pairs, expected, step):
    if not expected:
        with pytest.raises(DataError, match="leaves nothing"):
            filtered()
        return
    log = filtered()
    assert set(log.to_frame().rows()) == expected
    for side, key in ((0, "users"), (1, "items")):
        lost = len({p[side] for p in pairs}) - len({p[side] for p in expected})
        assert log.report.count(step, key) == lost
    assert log.report.count(step, "interactions") == len(pairs) - len(expected)


@given(PAIRS, st.integers(0, 5), st.integers(0, 5))
@settings(deadline=None)
def test_k_core_ends_where_nothing_is_below_the_bar(pairs, users, items):
    expected, before = pairs, None
    while expected != before:
        before = expected
        expected = drop(drop(expected, 0, users), 1, items)
    check(lambda: k_core(log_of(pairs), users=users, items=items), pairs, expected, "k-core")


@given(PAIRS)
@settings(deadline=None)
def test_paper_filter_is_one_pass(pairs):
    expected = drop(drop(drop(pairs, 0, 5), 1, 5), 0, 3)
    check(lambda: paper_filter(log_of(pairs)), pairs, expected, "paper filter")


def test_categories_follow_the_items():
    frame = pl.DataFrame({"user": [1, 2, 2], "item": [1, 1, 2], "category": ["a", "a", "b"]})
    log = k_core(read_interactions(frame), users=1, items=2)
    assert log.categories.rows() == [(1, "a")]


@pytest.mark.parametrize("bar", [-1, 2.5, True])
def test_bars_are_whole_numbers(bar):
    with pytest.raises(ParameterError, match="users="):
        k_core(log_of({(1, 1)}), users=bar)
