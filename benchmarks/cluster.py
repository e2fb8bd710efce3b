"""Two workers of one thread each against two threads of one process, time per epoch.

    python benchmarks/cluster.py [--models bpr transcf transcf-mixture ials]
        [--events 8000000] [--dim 64] [--epochs 3] [--json]
    python benchmarks/cluster.py --exchange    # 0.8 MB to each other: by gloo, by calls of Ray

Generated events at Flixster's size (69,482 users x 25,687 items). Both sides train the same epochs
in turn, after one that warms up, and have to come to the same loss; medians, by the clock and in
processor seconds, which others on the machine disturb less. An epoch of the mixture takes half a
minute, that of others seconds at most. At most 1.25 times is wanted, and of a worker's peak memory,
without the code of libraries that processes of a machine share, at most its share of the users
(vectors and interactions), one item side and 300 MB. Kernels that have to be compiled first add to
both: run it twice after a change. Ray's workers give way to other processes by default, which
threads of this one do not: here neither does (RAY_worker_niceness=0). Linux only; it asks for two
quiet cores.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import re
import socket
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np

from transcf import Interactions, create, synthesize
from transcf.distributed import Cluster
from transcf.distributed.cluster import LOOPBACK, connected
from transcf.distributed.communicator import Address, RayCommunicator, connect
from transcf.distributed.training import DistributedTraining, is_of_users, share_out
from transcf.kernels import Array
from transcf.models.training import EpochStats, FitOptions
from transcf.parallel import use_threads

TEXT = """{case}: {ours:.2f} {unit}, one process {peer:.2f}, ratio {ratio:.2f}
    processor seconds {processor_ratio:.2f} times, {waited_share:.0%} of the time waited
    peak {peak_mb:.0f} MB of {bound_mb:.0f}, {sent_mb_per_epoch:.1f} MB sent per epoch"""
BARS = {"time": 1.25, "memory": 300e6}


class Race:
    """A cluster, and beside it one process, which train the same epochs in turn."""

    def __init__(self) -> None:
        """Begin without any."""
        self.rows: list[tuple[float, ...]] = []

    def spread(self, solver: Any, problem: Any, settings: Any) -> Race:
        """Start both."""
        self._spread = DistributedTraining(Cluster(workers=2, threads=1), solver, problem, settings)
        self._alone = solver(problem, settings)
        self.bound = bound_of(solver, problem, settings, self._alone.tensors())
        return self

    def run_epoch(self, number: int) -> EpochStats:
        """Train an epoch here, and the same one there."""
        before = self._clocks()
        with use_threads(2):
            alone = self._alone.run_epoch(number)
        between = self._clocks()
        found = self._spread.run_epoch(number)
        after = self._clocks()
        self.rows.append((*(between - before), *(after - between)))
        assert found.loss == alone.loss, "not the same bits"
        return found

    def _clocks(self) -> Array:
        """Time by the clock, and processor seconds of this process and of all workers."""
        ticks = sum(ticks_of(process) for process in workers())
        used = time.process_time() + ticks / os.sysconf("SC_CLK_TCK")
        return np.array([time.perf_counter(), used])

    def facts(self) -> dict[str, Any]:
        """Those of the cluster."""
        return self._spread.facts()

    def close(self) -> None:
        """Look how much memory workers had, and end them."""
        self.peak = max(peak_of(process) for process in workers())
        self._spread.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._spread, name)


def bound_of(solver: Any, problem: Any, settings: Any, tensors: Any) -> float:
    """What a worker may take: its users, one item side, and what a process takes anyway."""
    groups = solver.layout(problem, settings).groups
    lengths = problem.user_indptr[1:] - problem.user_indptr[:-1]
    middle = int(groups[share_out(lengths, groups, 2)[1]])
    parts = problem.part(0, middle), problem.part(middle, len(lengths))
    interactions = max(nbytes(part) for part in parts)
    users = sum(t.nbytes / len(t) for name, t in tensors.items() if is_of_users(name))
    others = sum(t.nbytes for name, t in tensors.items() if not is_of_users(name))
    return interactions + users * max(middle, len(lengths) - middle) + others + BARS["memory"]


def nbytes(thing: Any) -> int:
    """Bytes of the arrays in something made of parts."""
    if hasattr(thing, "nbytes"):
        return int(thing.nbytes)
    parts = thing if isinstance(thing, tuple) else getattr(thing, "__dict__", {}).values()
    return sum(map(nbytes, parts))


def workers() -> list[int]:
    """Processes of this run's workers."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            is_worker = (folder / "cmdline").read_bytes().startswith(b"ray::Worker")
            if is_worker and parent(parent(int(folder.name))) == os.getpid():
                found.append(int(folder.name))
        except OSError:
            continue
    return found


def stat_of(process: int) -> list[str]:
    """What the system says of a process, from its state on."""
    return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()


def parent(process: int) -> int:
    return int(stat_of(process)[1])


def ticks_of(process: int) -> int:
    """Processor time that a process has used."""
    user, system = stat_of(process)[11:13]
    return int(user) + int(system)


def peak_of(process: int) -> int:
    """The most memory that a process ever had but for files that it maps, in bytes."""
    status = Path(f"/proc/{process}/status").read_text()
    peak, files = (int(found[1]) for found in re.finditer(r"(?:VmHWM|RssFile):\s+(\d+) kB", status))
    return 1024 * (peak - files)


class Talker:
    """One of two actors that send each other as much as a batch of the mixture takes."""

    def __init__(self) -> None:
        self._received: queue.Queue[Array] = queue.Queue()

    def listen(self) -> Address:
        """Listen for the other one."""
        self._listener = socket.create_server((LOOPBACK, 0))
        return LOOPBACK, self._listener.getsockname()[1]

    def deliver(self, array: Array) -> None:
        """Receive an array by a call of Ray."""
        self._received.put(array)

    def talk(self, number: int, address: Address, other: Any, rounds: int) -> list[float]:
        """Return milliseconds of an exchange: by gloo, and by calls of Ray."""
        listener = self._listener if number == 0 else None
        comm = RayCommunicator(connect(address, number, 2, LOOPBACK, listener), [0, 1, 2])
        parts = [[np.ones(200_000, np.float32)] for _ in range(2)]

        def call_ray() -> None:
            other.deliver.remote(parts[number][0])
            self._received.get()

        found = []
        for exchange in (lambda: comm.gather(parts), call_ray):
            seconds = []
            for _ in range(rounds):
                started = time.perf_counter()
                exchange()
                seconds.append(time.perf_counter() - started)
            found.append(1e3 * statistics.median(seconds[rounds // 10 :]))
        return found


def exchange() -> dict[str, Any]:
    """Let two actors talk."""
    with connected(None, processors=2) as ray:
        actors = [ray.remote(max_concurrency=2)(Talker).remote() for _ in range(2)]
        address = ray.get(actors[0].listen.remote())
        calls = [actors[w].talk.remote(w, address, actors[1 - w], 200) for w in range(2)]
        gloo, by_ray = np.median(ray.get(calls), axis=0).tolist()
    case = "0.8 MB to each other, gloo against calls of Ray"
    return {"case": case, "ours": gloo, "peer": by_ray, "unit": "ms", "ratio": gloo / by_ray}


def measure(name: str, log: Interactions, dim: int, epochs: int) -> dict[str, Any]:
    race = Race()
    model = create(name, dim=dim, epochs=epochs + 1)
    model.fit(log, options=FitOptions(cluster=race))  # type: ignore[arg-type]
    alone, alone_used, spread, spread_used = np.median(race.rows[1:], axis=0).tolist()
    facts = model.report_["cluster"]
    return {
        "case": f"{name}, {len(log):,} events, dim {dim}",
        "ours": spread,
        "peer": alone,
        "unit": "s per epoch",
        "ratio": spread / alone,
        "processor_ratio": spread_used / alone_used,
        "peak_mb": race.peak / 1e6,
        "bound_mb": race.bound / 1e6,
        "sent_mb_per_epoch": facts["sent_bytes"] / 1e6 / len(race.rows),
        "waited_share": facts["waited_seconds"] / 2 / sum(row[2] for row in race.rows),
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    names = ["bpr", "transcf", "transcf-mixture", "ials"]
    parser.add_argument("--models", nargs="+", default=names)
    parser.add_argument("--events", type=int, default=8_000_000)
    parser.add_argument("--dim", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--exchange", action="store_true")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    os.environ.setdefault("RAY_worker_niceness", "0")
    if options.exchange:
        case = exchange()
        text = "{case}: {ours:.2f} {unit}, {peer:.2f}, ratio {ratio:.2f}"
        print(json.dumps([case], indent=2) if options.json else text.format(**case))
        return
    cases = []
    for name in options.models:
        log = synthesize(users=69_482, items=25_687, interactions=options.events)
        cases.append(measure(name, log, options.dim, options.epochs))
        if not options.json:
            print(TEXT.format(**cases[-1]), flush=True)
    if options.json:
        print(json.dumps(cases, indent=2))


if __name__ == "__main__":
    main()
