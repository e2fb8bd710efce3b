"""The same bits on a real Ray cluster of this machine, whatever is killed on the way."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from tests.cluster.processes import processes_called

from transcf import Interactions, create, load, synthesize
from transcf.distributed import Cluster
from transcf.distributed.lists import recommend_all
from transcf.errors import DataError, UnsupportedError
from transcf.models.base import Recommender
from transcf.models.training import Epoch, FitOptions

ray = pytest.importorskip("ray", reason="needs the extra cluster")

SETTINGS: dict[str, Any] = {"dim": 16, "epochs": 4, "recency": 2.0}


@pytest.fixture(scope="module")
def log() -> Interactions:
    return synthesize(users=600, items=900, interactions=12000, seed=3)


@pytest.fixture(scope="module")
def alone(log: Interactions) -> Recommender[Any]:
    return create("transcf", **SETTINGS).fit(log)


def check_same(found: Recommender[Any], expected: Recommender[Any]) -> None:
    arrays = expected.learned_.arrays()
    assert arrays.keys() == found.learned_.arrays().keys()
    for name, array in found.learned_.arrays().items():
        assert np.array_equal(array, arrays[name]), name


def test_where_nobody_answers_there_is_no_cluster(log: Interactions) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    options = FitOptions(cluster=Cluster(address=f"127.0.0.1:{port}"))
    with pytest.raises(UnsupportedError, match="There is no Ray cluster at"):
        create("bpr", epochs=1).fit(log, options=options)


@pytest.mark.usefixtures("session")
def test_two_workers_one_of_whom_is_killed(log: Interactions) -> None:
    settings = {"dim": 16, "epochs": 3, "batch_events": 64, "shared_negatives": 100}
    alone = create("transcf-mixture", **settings).fit(log)

    def kill_one(epoch: Epoch[Any]) -> None:
        if epoch.number == 1:  # a moment later, the second is under way
            threading.Timer(
                0.05, os.kill, (processes_called("ray::Worker")[0], signal.SIGKILL)
            ).start()

    options = FitOptions(cluster=Cluster(workers=2, threads=1), on_epoch=kill_one)
    found = create("transcf-mixture", **settings).fit(log, options=options)
    check_same(found, alone)
    assert found.history_["loss"].equals(alone.history_["loss"])
    report = found.report_["cluster"]
    assert (report["workers"], report["restarts"]) == (2, 1)
    assert report["sent_bytes"] > 0


@pytest.mark.usefixtures("session")
def test_one_process_goes_on_from_a_checkpoint_of_workers(
    log: Interactions, tmp_path: Path
) -> None:
    alone = create("ials", dim=16, epochs=4).fit(log)
    cluster = Cluster(workers=2, threads=1)
    options = FitOptions(checkpoint=tmp_path, checkpoint_seconds=0, cluster=cluster)
    create("ials", dim=16, epochs=2).fit(log, options=options)
    found = create("ials", dim=16, epochs=4)
    found.fit(log, options=FitOptions(checkpoint=tmp_path, resume=True))
    check_same(found, alone)


DRIVER = """
import sys
from pathlib import Path
from transcf import create, synthesize
from transcf.distributed import Cluster
from transcf.models.training import FitOptions

log = synthesize(users=600, items=900, interactions=12000, seed=3)
options = FitOptions(
    checkpoint=Path(sys.argv[1]), resume=True, checkpoint_seconds=0,
    cluster=Cluster(workers=2, threads=1), on_epoch=lambda epoch: print(epoch.number, flush=True),
)
model = create("transcf", dim=16, epochs=4, recency=2.0).fit(log, options=options)
model.save(sys.argv[2])
"""


def test_a_driver_that_was_killed_goes_on(tmp_path: Path, alone: Recommender[Any]) -> None:
    script = tmp_path / "driver.py"
    script.write_text(DRIVER)
    command = [sys.executable, script, tmp_path / "checkpoint", tmp_path / "model"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as first:
        assert first.stdout is not None
        assert [first.stdout.readline().strip() for _ in range(2)] == ["1", "2"]
        first.kill()
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split() in (["2", "3", "4"], ["3", "4"])
    check_same(load(tmp_path / "model"), alone)


@pytest.mark.usefixtures("session")
def test_lists_for_everybody_in_parts(tmp_path: Path, alone: Recommender[Any]) -> None:
    alone.save(tmp_path / "model")
    expected = pl.read_parquet(alone.recommend_all(tmp_path / "all.parquet", k=3))
    cluster, out = Cluster(workers=2, threads=1), tmp_path / "parts"

    def ask(k: int = 3) -> None:
        recommend_all(tmp_path / "model", out, k, cluster=cluster, part_users=150)

    ask()
    assert pl.read_parquet(sorted(out.glob("part-*.parquet"))).equals(expected)
    kept, lost = out / "part-00000.parquet", out / "part-00002.parquet"
    before = kept.stat().st_mtime_ns
    lost.unlink()
    left = out / ".part-00000.parquet.0123abcd.tmp"  # by a writer that was killed at its last step
    left.mkdir()
    ask()
    assert pl.read_parquet(sorted(out.glob("part-*.parquet"))).equals(expected)
    assert kept.stat().st_mtime_ns == before
    assert not left.exists()
    with pytest.raises(DataError, match=r"another question \(other k\)"):
        ask(4)
    (out / "parts.json").write_text("{")
    with pytest.raises(DataError, match="is damaged"):
        ask()
    (out / "parts.json").unlink()
    with pytest.raises(DataError, match="not empty"):
        ask()


@pytest.mark.usefixtures("session")
def test_lists_are_of_the_model_that_is_there_now(tmp_path: Path, log: Interactions) -> None:
    """The mixture is asked for several parts at once; workers have the model of before."""
    cluster = Cluster(workers=2, threads=1)
    for seed in (1, 2):
        model = create("transcf-mixture", dim=8, epochs=1, random_state=seed).fit(log)
        model.save(tmp_path / "model", overwrite=True)
        expected = pl.read_parquet(model.recommend_all(tmp_path / "all.parquet", k=3))
        out = tmp_path / f"parts-{seed}"
        recommend_all(tmp_path / "model", out, 3, cluster=cluster, part_users=70)
        assert pl.read_parquet(sorted(out.glob("part-*.parquet"))).equals(expected)
