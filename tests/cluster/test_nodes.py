"""A machine that leaves in the middle of a run; here machines are Rays of their own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from transcf import create, synthesize
from transcf.distributed import Cluster
from transcf.distributed.training import LostWorkersError
from transcf.models.training import Epoch, FitOptions

ray = pytest.importorskip("ray", reason="needs the extra cluster")

#: Vectors of half of the users do not fit into a message of Ray, so that they stay on a machine.
SETTINGS = {"dim": 128, "epochs": 4}


@pytest.fixture
def machines() -> Iterator[Any]:
    """Two with a processor each; the first one is that of the driver."""
    from ray.cluster_utils import Cluster as Machines

    first = {"num_cpus": 1, "include_dashboard": False}
    found = Machines(initialize_head=True, head_node_args=first)
    found.add_node(num_cpus=1)
    yield found
    ray.shutdown()
    found.shutdown()


def test_what_left_with_a_machine_is_learned_again_from_the_checkpoint(
    machines: Any, tmp_path: Path
) -> None:
    log = synthesize(users=600, items=900, interactions=12000, seed=3)
    alone = create("bpr", **SETTINGS).fit(log)
    leaving = list(machines.worker_nodes)

    def one_leaves(epoch: Epoch[Any]) -> None:
        if epoch.number == 2 and leaving:
            machines.remove_node(leaving.pop(), allow_graceful=False)
            machines.add_node(num_cpus=1)

    spread = FitOptions(
        checkpoint=tmp_path,
        checkpoint_seconds=0,
        cluster=Cluster(workers=2, threads=1, address=machines.address),
        on_epoch=one_leaves,
    )
    with pytest.raises(LostWorkersError, match="go on from the checkpoint"):
        create("bpr", **SETTINGS).fit(log, options=spread)
    here = FitOptions(checkpoint=tmp_path, resume=True)
    found = create("bpr", **SETTINGS).fit(log, options=here)
    for name, array in alone.learned_.arrays().items():
        assert np.array_equal(array, found.learned_.arrays()[name]), name
    assert found.history_["loss"].equals(alone.history_["loss"])
