"""Defaults that depend on the data."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from transcf import IALS, load
from transcf.data.splitters import leave_one_out
from transcf.data.synthetic import synthesize
from transcf.evaluation.validation import Validation
from transcf.models.families import EpochRule, LogSizes
from transcf.models.registry import create


@pytest.fixture(scope="module")
def sparse() -> Any:
    """A log of many users with few events each, among many items."""
    return leave_one_out(synthesize(users=3000, items=1500, interactions=18_000, seed=1))


def test_sizes_leave_out_users_and_items_without_events() -> None:
    log = synthesize(users=40, items=30, interactions=300, seed=0)
    some = log.select(log.item_rows < 10)
    sizes = LogSizes.of(some)
    assert sizes.per_user * len(sizes.users) == pytest.approx(len(some))
    assert sizes.users.min() > 0
    assert len(sizes.items) == 10
    assert sizes.density == pytest.approx(len(some) / (len(sizes.users) * 10))


def test_the_largest_singular_value_is_exact_where_counts_explain_all() -> None:
    sizes = LogSizes(np.full(6, 4), np.full(4, 6))
    assert sizes.largest_singular_value == pytest.approx(np.linalg.norm(np.ones((6, 4)), 2))
    assert sizes.item_skew == 1


def test_epochs_grow_where_users_have_few_events() -> None:
    rule = EpochRule(10, 600, 100)
    for events, epochs in ((1000, 10), (20, 30), (2, 100)):
        assert rule(LogSizes(np.full(9, events), np.full(9, events))) == epochs


@pytest.mark.parametrize("name", ["ials", "eals", "slim"])
def test_defaults_do_not_collapse_on_a_sparse_log(name: str, sparse: Any) -> None:
    judge = Validation(sparse.validation, known=sparse.train.by_user)
    floor = judge(create("popularity").fit(sparse.train))
    model = create(name, **({"dim": 16} if name != "slim" else {})).fit(sparse.train)
    assert judge(model) > floor


def test_a_fitted_model_keeps_the_resolved_defaults(sparse: Any, tmp_path: Any) -> None:
    model = IALS(dim=4, epochs=2).fit(sparse.train)
    found = model.settings_.unobserved_weight
    assert found == pytest.approx(16 * LogSizes.of(sparse.train).density)
    assert model.unobserved_weight is None, "the next fit looks at its own data"
    assert load(model.save(tmp_path / "model")).settings_.unobserved_weight == found


@pytest.mark.parametrize("name", ["bpr", "aobpr", "cml", "fism"])
def test_numbers_that_are_given_are_kept(name: str) -> None:
    log = synthesize(users=50, items=40, interactions=500, seed=0)
    model = create(name, dim=4, epochs=3).fit(log)
    assert model.settings_.epochs == len(model.history_) == 3
