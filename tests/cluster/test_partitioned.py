"""Workers that read their own users from disk learn the same bits as one process from memory."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from transcf import Interactions, Split, create, k_core, leave_one_out, load, synthesize
from transcf.data import PartitionedLog, prepare_parts, read_interactions
from transcf.distributed import Cluster
from transcf.distributed.training import share_out
from transcf.errors import EvaluationError, UnsupportedError
from transcf.evaluation.validation import Validation, as_validation, validation_in_parts
from transcf.models.bpr import LogisticSolver
from transcf.models.mixture.training import Events, Shards
from transcf.models.partitioned import (
    PartitionedEvents,
    PartitionedProblem,
    read_training_data,
)
from transcf.models.training import FitOptions
from transcf.models.triples import Problem

ray = pytest.importorskip("ray", reason="needs the extra cluster")

CLUSTER = Cluster(workers=2, threads=1)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("log")
    frame = synthesize(users=300, items=500, interactions=6000, seed=3).to_frame()
    for number in range(4):
        frame[number::4].write_parquet(folder / f"{number}.parquet")
    return folder


@pytest.fixture(scope="module")
def parted(source: Path) -> PartitionedLog:
    return prepare_parts(source, source.parent / "parts", partitions=5, k_core=5)


@pytest.fixture(scope="module")
def split(source: Path) -> Split:
    return leave_one_out(k_core(read_interactions(source), 5, 5))


@pytest.mark.usefixtures("session")
@pytest.mark.parametrize(
    ("name", "settings"),
    [("bpr", {}), ("transcf", {"recency": 2.0}), ("transcf-mixture", {"batch_events": 200})],
)
def test_a_fit_is_that_of_one_process(
    name: str, settings: dict[str, Any], parted: PartitionedLog, split: Split, tmp_path: Path
) -> None:
    settings = {"trend": 0.0, **settings}  # partitioned logs have no automatic trend
    model = create(name, dim=8, epochs=3, validate_every=1, validation_users=50, **settings)
    model.fit(split.train, split.validation)
    expected, metrics = model.learned_, model.history_["metric"]
    model.fit(parted.train, parted.validation, FitOptions(cluster=CLUSTER))
    assert model.history_["metric"].equals(metrics)
    assert model.report_["cluster"]["workers"] == 2
    model.save(tmp_path / "model")
    for learned in (model.learned_, load(tmp_path / "model").learned_):
        for what, array in expected.arrays().items():
            assert np.array_equal(array, learned.arrays()[what]), what
        known = learned.known
        assert np.array_equal(known.seen.indices, expected.known.seen.indices)
        assert np.array_equal(known.histories.items, expected.known.histories.items)
    user = split.train.users.series[7]
    assert not set(model.recommend(user, k=50)["item_id"]) & set(
        split.train.items.ids(split.train.by_user.row(7))
    )


@pytest.mark.parametrize("recency", [0.0, 3.0])
def test_shares_on_disk_are_those_in_memory(
    recency: float, parted: PartitionedLog, split: Split
) -> None:
    settings = create("bpr", recency=recency).settings
    whole, counted = (
        Problem.of(split.train, settings.event_weights),
        PartitionedProblem.of_log(parted.train, settings),
    )
    layout = LogisticSolver.layout(whole, settings)
    other = LogisticSolver.layout(counted, settings)
    assert np.array_equal(layout.groups, other.groups)
    assert (layout.triples, layout.interactions) == (other.triples, other.interactions)
    cuts = share_out(np.diff(counted.user_indptr), range(counted.n_users + 1), 3)
    for first, end in pairwise(cuts):
        found, expected = counted.part(first, end)(), whole.part(first, end)
        assert np.array_equal(found.by_user.indices, expected.by_user.indices)
        for field in ("user_indptr", "item_counts", "weights"):
            assert np.array_equal(getattr(found, field), getattr(expected, field)), field


def test_histories_on_disk_are_those_in_memory(parted: PartitionedLog, split: Split) -> None:
    settings = create("transcf-mixture").settings
    whole, counted = (
        Events.of(split.train, settings),
        PartitionedEvents.of_log(parted.train, settings),
    )
    shards, other = Shards.of(whole), Shards.of(counted)
    assert np.array_equal(shards.groups, other.groups)
    sizes = [(one.n_batches, one.samples, one.weight) for one in (shards, other)]
    assert sizes[0] == sizes[1]
    for first, end in ((0, 100), (100, whole.histories.indptr.size - 1)):
        found, expected = counted.part(first, end)(), whole.part(first, end)
        assert isinstance(expected, Events)
        assert np.array_equal(found.histories.indptr, expected.histories.indptr)
        assert np.array_equal(found.histories.items, expected.histories.items)
        assert np.array_equal(found.weights, expected.weights)
        assert np.array_equal(found.item_counts, expected.item_counts)
    with pytest.raises(UnsupportedError, match="recency weighs events by the mean of all"):
        PartitionedEvents.of_log(parted.train, create("transcf-mixture", recency=1.0).settings)


def test_weights_that_differ_nowhere_are_none(tmp_path: Path) -> None:
    single = synthesize(users=9, items=30, interactions=45).to_frame().unique("user_id")
    single.write_parquet(tmp_path / "log.parquet")
    log = prepare_parts(tmp_path / "log.parquet", tmp_path / "parts", partitions=2)
    settings = create("bpr", recency=3.0).settings
    assert PartitionedProblem.of_log(log, settings).recency == 0
    assert not len(Problem.of(log.read(), settings.event_weights).weights)


@pytest.mark.parametrize("users", [20, None])
def test_a_sample_is_judged_as_in_memory(
    users: int | None, parted: PartitionedLog, split: Split
) -> None:
    model = create("popularity").fit(split.train)
    whole = Validation(split.validation, known=split.train.by_user).sampled(users)
    assert validation_in_parts(parted.train, parted.validation, users)(model) == whole(model)


def test_what_needs_all_events_says_so(parted: PartitionedLog, split: Split) -> None:
    options = FitOptions(cluster=CLUSTER)
    for setting in ({"half_life": 0.1}, {"confidence": "ratings"}, {"trend": 1.0}):
        (name,) = setting
        with pytest.raises(UnsupportedError, match=f"{name} compares events of different users"):
            create("bpr", **setting).fit(parted, options=options)
    with pytest.raises(EvaluationError, match="judged by another part of it"):
        as_validation(parted.train, split.validation)
    with pytest.raises(UnsupportedError, match="iALS cannot be fitted on a log in parts"):
        create("ials").fit(parted, options=options)


def test_without_a_cluster_all_events_are_read(parted: PartitionedLog) -> None:
    model = create("popularity").fit(parted.folder)
    counts: Interactions = parted.read()
    assert np.array_equal(model.item_counts_, counts.by_item.counts)
    assert read_training_data(parted, model.settings_).facts() == model.learned_.known.facts()
