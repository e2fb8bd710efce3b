"""Workers that read their own users from disk learn the same bits as one process from memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from transcf import Interactions, Split, create, k_core, leave_one_out, load, synthesize
from transcf.data import PartitionedLog, prepare_parts, read_interactions
from transcf.distributed import Cluster
from transcf.errors import UnsupportedError
from transcf.evaluation.validation import Validation, as_validation
from transcf.models.mixture.training import Events
from transcf.models.partitioned import mixture_events_of, problem_of, read_training_data
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
def test_a_problem_on_disk_is_that_in_memory(
    recency: float, parted: PartitionedLog, split: Split
) -> None:
    settings = create("bpr", recency=recency).settings
    found, expected = (
        problem_of(parted.train, settings),
        Problem.of(split.train, settings.event_weights),
    )
    assert np.array_equal(found.by_user.indices, expected.by_user.indices)
    for field in ("user_indptr", "item_counts", "weights"):
        assert np.array_equal(getattr(found, field), getattr(expected, field)), field


def test_histories_on_disk_are_those_in_memory(parted: PartitionedLog, split: Split) -> None:
    settings = create("transcf-mixture").settings
    found, expected = mixture_events_of(parted.train, settings), Events.of(split.train, settings)
    assert np.array_equal(found.histories.indptr, expected.histories.indptr)
    assert np.array_equal(found.histories.items, expected.histories.items)
    for field in ("weights", "item_counts", "taught_weight"):
        assert np.array_equal(getattr(found, field), getattr(expected, field)), field
    with pytest.raises(UnsupportedError, match="recency weighs events by the mean of all"):
        mixture_events_of(parted.train, create("transcf-mixture", recency=1.0).settings)


def test_weights_that_differ_nowhere_are_none(tmp_path: Path) -> None:
    single = synthesize(users=9, items=30, interactions=45).to_frame().unique("user_id")
    single.write_parquet(tmp_path / "log.parquet")
    log = prepare_parts(tmp_path / "log.parquet", tmp_path / "parts", partitions=2)
    settings = create("bpr", recency=3.0).settings
    assert not len(problem_of(log, settings).weights)
    assert not len(Problem.of(log.read(), settings.event_weights).weights)


@pytest.mark.parametrize("users", [20, None])
def test_a_sample_is_judged_as_in_memory(
    users: int | None, parted: PartitionedLog, split: Split
) -> None:
    model = create("popularity").fit(split.train)
    whole = Validation(split.validation, known=split.train.by_user).sampled(users)
    assert as_validation(parted.train, parted.validation).sampled(users)(model) == whole(model)


def test_what_needs_all_events_says_so(parted: PartitionedLog) -> None:
    options = FitOptions(cluster=CLUSTER)
    for setting in ({"half_life": 0.1}, {"confidence": "ratings"}, {"trend": 1.0}):
        (name,) = setting
        with pytest.raises(UnsupportedError, match=f"{name} compares events of different users"):
            create("bpr", **setting).fit(parted, options=options)
    with pytest.raises(UnsupportedError, match="iALS cannot be fitted on a log in parts"):
        create("ials").fit(parted, options=options)


def test_without_a_cluster_all_events_are_read(parted: PartitionedLog) -> None:
    model = create("popularity").fit(parted.folder)
    counts: Interactions = parted.read()
    assert np.array_equal(model.item_counts_, counts.by_item.counts)
    assert read_training_data(parted, model.settings_).facts() == model.learned_.known.facts()
