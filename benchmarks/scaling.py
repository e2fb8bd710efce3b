"""What an epoch in rounds costs on a cluster: constants measured here, predictions, measurements.

    python benchmarks/scaling.py [--events 2000000] [--dim 64] [--epochs 3] [--json]

An epoch of BPR with W workers of one thread each on P cores takes

    imbalance * triples * t / min(W, P)                     the work itself
    + rounds * h                                            a block arrives, every round
    + bytes * b * max(1, W / P)                             blocks that travel, and all at the end
    + state * s * max(1, W / P)                             what is learned, kept in Ray's store
    + c                                                     an epoch of next to nothing

where t (a triple), h (a small message), b (a byte between workers), s (a byte into Ray's store) and
c (calls of Ray, and what every epoch does once) are measured alone, and imbalance (the slowest
worker of each round against the mean) follows from the log. bytes is twice the item side at most:
once round by round, once when all is shared; state is the worker's share of users and items. The
prediction is shown beside measured epochs of 1, 2 and 4 workers, and then for a cluster that nobody
has here, with network figures that are assumptions and printed as such. Ask for two quiet cores.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import time
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from transcf import Interactions, create, synthesize
from transcf.distributed import Cluster
from transcf.distributed.cluster import LOOPBACK, connected
from transcf.distributed.communicator import Address, RayCommunicator, connect
from transcf.distributed.training import share_out
from transcf.kernels import Array
from transcf.models.training import FitOptions
from transcf.models.triples import BLOCK_BYTES, PairwiseSolver, Problem, StratumLayout
from transcf.parallel import use_threads

WORKERS = (1, 2, 4)


@dataclass(frozen=True)
class Costs:
    """Seconds of what an epoch is made of."""

    triple: float
    hop: float
    byte: float
    stored_byte: float
    call: float


@dataclass(frozen=True)
class Job:
    """An epoch, and who works on it."""

    users: int
    items: int
    triples: float
    row_bytes: int
    rounds: int
    workers: int
    cores: int
    imbalance: float = 1.0

    @property
    def sent_bytes(self) -> float:
        """What reaches a worker: a block in every round, and at the end all blocks of others."""
        if self.workers == 1:
            return 0.0
        return self.items * self.row_bytes * (1 + (self.workers - 1) / self.workers)

    @property
    def state_bytes(self) -> float:
        """What a worker keeps after an epoch: its users, and as large a share of the items."""
        return (self.users + self.items) / self.workers * self.row_bytes


def predict(costs: Costs, job: Job) -> dict[str, float]:
    """Seconds of an epoch by what they are for."""
    crowd = max(1.0, job.workers / job.cores)
    parts = {
        "work": job.imbalance * job.triples * costs.triple / min(job.workers, job.cores),
        "hops": job.rounds * costs.hop if job.workers > 1 else 0.0,
        "bytes": job.sent_bytes * costs.byte * crowd,
        "state": job.state_bytes * costs.stored_byte * crowd,
        "call": costs.call,
    }
    return parts | {"epoch": sum(parts.values())}


def imbalance(log: Interactions, layout: StratumLayout, workers: int) -> float:
    """The slowest worker of every round against the mean, for items dealt at random."""
    blocks = np.random.default_rng(0).integers(layout.n_blocks, size=log.n_items)
    groups = np.searchsorted(layout.groups, log.user_rows, side="right") - 1
    strata = np.zeros((layout.n_groups, layout.n_blocks))
    np.add.at(strata, (groups, blocks[log.item_rows]), 1.0)
    shares = share_out(log.by_user.counts, layout.groups, workers)
    order = np.arange(layout.n_groups)
    slowest = 0.0
    for r in range(layout.n_blocks):
        met = strata[order, (order + r) % layout.n_blocks]
        slowest += max(np.add.reduceat(met, shares[:-1]))
    return float(slowest * workers / strata.sum())


# -- constants ------------------------------------------------------------------------------------


class Talker:
    """One of two processes that send each other arrays."""

    def listen(self) -> Address:
        """Listen for the other one."""
        self._listener = socket.create_server((LOOPBACK, 0))
        return LOOPBACK, self._listener.getsockname()[1]

    def connect(self, number: int, address: Address) -> None:
        """Connect to the other one."""
        listener = self._listener if number == 0 else None
        group = connect(address, number, 2, LOOPBACK, listener)
        self._comm = RayCommunicator(group, [0, 1, 2])

    def talk(self, size: int, times: int) -> float:
        """Return the seconds after which both have what the other sent."""
        parts, seconds = [[np.ones(size, np.float32)] for _ in range(2)], []
        for _ in range(times):
            started = time.perf_counter()
            self._comm.gather(parts)
            seconds.append(time.perf_counter() - started)
        return statistics.median(seconds)


def costs_of(log: Interactions, dim: int, epochs: int) -> Costs:
    """Measure the constants, each alone."""
    small, large, stored = 16, 2_000_000, 16_000_000
    with connected(None, processors=2) as ray:
        actors = [ray.remote(Talker).remote() for _ in range(2)]
        address = ray.get(actors[0].listen.remote())
        ray.get([actor.connect.remote(number, address) for number, actor in enumerate(actors)])

        def exchange(size: int, times: int) -> float:
            return float(np.median(ray.get([actor.talk.remote(size, times) for actor in actors])))

        hop = exchange(small, 500)
        byte = (exchange(large, 30) - hop) / (4 * large)
        array, seconds = np.ones(stored, np.float32), []
        for _ in range(9):
            started = time.perf_counter()
            kept = ray.put(array)
            seconds.append(time.perf_counter() - started)
            del kept
    with use_threads(1):
        alone = epoch_seconds(log, dim, epochs, None)
    tiny = synthesize(users=200, items=200, interactions=2_000)
    call = epoch_seconds(tiny, dim, 20, workers=2)
    return Costs(alone / len(log), hop, byte, statistics.median(seconds) / (4 * stored), call)


def epoch_seconds(log: Interactions, dim: int, epochs: int, workers: int | None) -> float:
    """Median time of an epoch, the first one left out."""
    cluster = None if workers is None else Cluster(workers=workers, threads=1)
    model = create("bpr", dim=dim, epochs=epochs + 1)
    model.fit(log, options=FitOptions(cluster=cluster, progress=False))
    seconds: Array = model.history_["seconds"].to_numpy()
    return float(np.median(seconds[1:]))


# -- the cluster that nobody has here -------------------------------------------------------------

#: 100 million users, 10 million items, 10 billion events, 64 machines. A network of 10 Gbit/s and
#: .1 ms a hop is assumed; triples and Ray's store cost what they cost here.
LARGE = Job(
    users=100_000_000, items=10_000_000, triples=1e10, row_bytes=0, rounds=0, workers=64, cores=64
)
NETWORK_HOP, NETWORK_BYTE = 1e-4, 1 / 1.25e9


def main() -> None:
    """Measure, predict and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--events", type=int, default=2_000_000)
    parser.add_argument("--dim", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    log = synthesize(users=69_482, items=25_687, interactions=options.events)
    model = create("bpr", dim=options.dim)
    layout = PairwiseSolver.layout(Problem.of(log, model.settings.event_weights), model.settings)
    costs, row_bytes = costs_of(log, options.dim, options.epochs), 4 * (options.dim + 1)
    job = Job(
        users=log.n_users, items=log.n_items, triples=layout.triples, row_bytes=row_bytes,
        rounds=layout.n_blocks, workers=1, cores=len(os.sched_getaffinity(0)),
    )  # fmt: skip
    rows: list[dict[str, Any]] = []
    for workers in WORKERS:
        mine = replace(job, workers=workers, imbalance=imbalance(log, layout, workers))
        measured = epoch_seconds(log, options.dim, options.epochs, workers)
        told = {"workers": workers, "imbalance": mine.imbalance, "measured": measured}
        rows.append(told | predict(costs, mine))
    blocks = -(-LARGE.items * row_bytes // BLOCK_BYTES)
    large = replace(LARGE, row_bytes=row_bytes, rounds=blocks, imbalance=rows[-1]["imbalance"])
    there = replace(costs, hop=NETWORK_HOP, byte=NETWORK_BYTE)
    found: dict[str, Any] = {
        "costs": asdict(costs),
        "epochs": rows,
        "large": {"workers": large.workers, "rounds": blocks, **predict(there, large)},
    }
    if options.json:
        print(json.dumps(found, indent=1))
        return
    print("seconds:", "  ".join(f"{name} {value:.3g}" for name, value in asdict(costs).items()))
    for row in [*rows, found["large"]]:
        print("  ".join(f"{name} {_short(value)}" for name, value in row.items()))


def _short(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    main()
