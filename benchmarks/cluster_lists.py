"""Lists for everybody: two workers of one thread each against two threads of one process.

    python benchmarks/cluster_lists.py [--models bpr transcf-mixture] [--events 8000000]
        [--mixture-events 1000000] [--dim 64] [--rounds 5] [--command-rounds 3] [--json]
    python benchmarks/cluster_lists.py --kills 2    # and kill the command, start it again, compare

Models at Flixster's size (69,482 users x 25,687 items), of an epoch on generated events, top 10.
Sides take turns after a round that warms up; medians. Every round, all have to write equal rows.

- lists: from the folder of a model to files, by processes that are there. One side loads the model
  and writes one Parquet file with two threads; on the other, both workers load it and write parts,
  on a Ray that is there. **This is held against 1.15.** Beside it, the processor seconds of all
  workers against those of one thread that does everything, which waits for nobody.
- command: `transcf recommend --all` as a new process, with workers on a Ray that is there. They
  are new, too: before the first list, Python and libraries are loaded twice in a row.
- command, own Ray: the same with a Ray that it starts and ends.

Steps are those of the first: what loading, lists and writing take on either side, where each of
two workers has half of the users; the rest is calls of Ray, and waiting for the last part.

Both sides are at their best: threads of OpenBLAS that have nothing to do go to sleep at once rather
than keep a core from the other threads (OPENBLAS_THREAD_TIMEOUT=4; without it one process takes
up to 1.5 times as long), and Ray's workers do not give way to other processes, as they do by
default (RAY_worker_niceness=0).

With --kills, the command with its own Ray is killed with all its processes (SIGKILL) as soon as one
to three more parts of the first model are there, and started again. At the end there have to be the
same files as of a run that nobody disturbed, by name and SHA-256, of which none was written twice,
and no others. Linux only; it asks for two quiet cores.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import count, pairwise
from pathlib import Path
from typing import Any

import polars as pl

from cluster import parent, peak_of, stat_of, ticks_of
from transcf import create, load, synthesize
from transcf.data.report import counted
from transcf.data.writing import write_pieces
from transcf.distributed import Cluster
from transcf.distributed.cluster import connected
from transcf.distributed.lists import recommend_all
from transcf.models.tables import Filters, recommendation_pieces
from transcf.parallel import use_threads

K, WORKERS, BAR = 10, 2, 1.15
STEPS = ("load", "lists", "write")
TEXT = "{case:<48} {ours:6.2f} s, one process {peer:6.2f} s, ratio {ratio:.2f}"
#: What libraries read when they are loaded.
BEST = {"OPENBLAS_THREAD_TIMEOUT": "4", "RAY_worker_niceness": "0"}
#: How often to look for new parts, and how long to wait for one.
LOOK_SECONDS, PATIENCE_SECONDS = 0.005, 300
#: Parts that are waited for before a kill, at least and at most.
MORE_PARTS = (1, 3)


class Sides:
    """All ways to the lists of one model; every call goes to a new file or folder.

    Args:
        model: Its folder.
        scratch: Where to write.
    """

    def __init__(self, model: Path, scratch: Path) -> None:
        """Begin with the first call."""
        self._model, self._scratch, self._calls = model, scratch, count()

    def _new(self, name: str) -> Path:
        return self._scratch / f"{next(self._calls)}-{name}"

    def threads(self, threads: int = WORKERS) -> Path:
        """Load and write in this process."""
        out = self._new("all.parquet")
        with use_threads(threads):
            load(self._model).recommend_all(out, K)
        return out

    def workers(self) -> Path:
        """Let workers load and write; under a new name, no worker has the model already."""
        model, out = self._new("model"), self._new("parts")
        model.symlink_to(self._model)
        return recommend_all(model, out, K, cluster=Cluster(WORKERS, threads=1))

    def threads_command(self) -> Path:
        """Do the first by a command."""
        out = self._new("all.parquet")
        words = command(self._model, out)
        run([*words[:3], "--threads", str(WORKERS), *words[3:]])
        return out

    def workers_command(self, address: str = "local") -> Path:
        """Do the second by a command."""
        out = self._new("parts")
        run(command(self._model, out, "--workers", f"{WORKERS}@{address}"))
        return out


def command(model: Path, out: Path, *words: str) -> list[str]:
    asked = ["recommend", str(model), "--all", "-k", str(K), "--out", str(out), "--json"]
    return [sys.executable, "-m", "transcf", *asked, *words]


def run(words: list[str]) -> None:
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)


def rows(place: Path) -> pl.DataFrame:
    return pl.read_parquet(sorted(place.glob("part-*.parquet")) if place.is_dir() else place)


def take_turns(
    sides: dict[str, Callable[[], Path]], rounds: int, clocks: Callable[[], tuple[float, ...]]
) -> dict[str, list[float]]:
    """Run sides in turn, which have to write the same rows; medians by some clocks."""
    found: dict[str, list[tuple[float, ...]]] = {name: [] for name in sides}
    for turn in range(rounds + 1):
        expected: pl.DataFrame | None = None
        for name, side in sides.items():
            before = clocks()
            written = side()
            if turn:
                found[name].append(tuple(b - a for a, b in zip(before, clocks(), strict=True)))
            table = rows(written)
            expected = table if expected is None else expected
            assert table.equals(expected), f"{name}: not the same rows"
    return {
        name: [statistics.median(values) for values in zip(*times, strict=True)]
        for name, times in found.items()
    }


def below(process: int) -> list[int]:
    """All processes that a process has started, and those of these."""
    parents = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(folder.name)] = parent(int(folder.name))
        except OSError:
            continue
    found = [process]
    for above in found:
        found += [child for child, its in parents.items() if its == above]
    return found[1:]


def ray_workers() -> list[int]:
    """Those below this process that do what a cluster is asked to."""
    found = []
    for process in below(os.getpid()):
        try:
            if Path(f"/proc/{process}/cmdline").read_bytes().startswith(b"ray::"):
                found.append(process)
        except OSError:
            continue
    return found


def clocks() -> tuple[float, float]:
    """Time by the clock, and processor seconds of this process and of all workers."""
    ticks = sum(ticks_of(process) for process in ray_workers())
    return time.perf_counter(), time.process_time() + ticks / os.sysconf("SC_CLK_TCK")


def steps(model: Path, out: Path, share: tuple[int, int], threads: int) -> list[float]:
    """Seconds to load a model, to make the lists of a share of the users, and to write them."""
    moments = [time.perf_counter()]
    with use_threads(threads):
        learned = load(model).learned_
        moments.append(time.perf_counter())
        ids = learned.known.users.series.filter(pl.Series(learned.known.active))
        part, parts = share
        some = ids[len(ids) * part // parts : len(ids) * (part + 1) // parts]
        pieces = list(recommendation_pieces(learned, some, K, Filters(exclude_seen=True)))
        moments.append(time.perf_counter())
        write_pieces(pieces, out)
        moments.append(time.perf_counter())
    return [b - a for a, b in pairwise(moments)]


def step_by_step(model: Path, scratch: Path, rounds: int, ray: Any) -> dict[str, Any]:
    """Median seconds of each step: of one process, and of the slower of two workers."""
    remote = ray.remote(num_cpus=1)(steps)
    alone, spread = [], []
    for turn in range(rounds + 1):
        some = [steps(model, scratch / "steps.parquet", (0, 1), WORKERS)]
        asked = [
            remote.remote(model, scratch / f"steps-{w}.parquet", (w, WORKERS), 1)
            for w in range(WORKERS)
        ]
        others = ray.get(asked)
        if turn:
            alone += some
            spread.append(max(others, key=sum))
    return {
        side: dict(zip(STEPS, map(statistics.median, zip(*found, strict=True)), strict=True))
        for side, found in (("one process", alone), ("a worker", spread))
    }


def case(name: str, what: str, ours: list[float], peer: list[float]) -> dict[str, Any]:
    found = {"case": f"{name}: {what}", "ours": ours[0], "peer": peer[0], "unit": "s"}
    found["ratio"] = ours[0] / peer[0]
    return found


def measure(
    name: str, model: Path, scratch: Path, rounds: int, command_rounds: int
) -> list[dict[str, Any]]:
    """Let all sides take turns, on a Ray that is started before and ended after."""
    sides = Sides(model, scratch)
    with connected(None, processors=WORKERS) as ray:
        address = ray.get_runtime_context().gcs_address
        in_turn = {
            "peer": sides.threads,
            "ours": sides.workers,
            "one thread": lambda: sides.threads(1),
        }
        times = take_turns(in_turn, rounds, clocks)
        peak = max(map(peak_of, ray_workers()))
        seconds = step_by_step(model, scratch, rounds, ray)
        commands = take_turns(
            {
                "peer": sides.threads_command,
                "there": lambda: sides.workers_command(address),
                "own": sides.workers_command,
            },
            command_rounds,
            lambda: (time.perf_counter(),),
        )
    lists = case(name, "lists", times["ours"], times["peer"])
    lists["processor_ratio"] = times["ours"][1] / times["one thread"][1]
    lists |= {"bar": BAR, "worker_peak_mb": peak / 1e6, "steps": seconds}
    return [
        lists,
        case(name, "command, on a Ray that is there", commands["there"], commands["peer"]),
        case(name, "command, with a Ray of its own", commands["own"], commands["peer"]),
    ]


def files(folder: Path) -> dict[str, tuple[str, int]]:
    """SHA-256 and moment of writing of every file, also of those that should not be there."""
    found = {}
    for path in sorted(folder.rglob("*")) if folder.is_dir() else ():
        if path.is_file():
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
            found[str(path.relative_to(folder))] = (digest, path.stat().st_mtime_ns)
    return found


def finished(folder: Path) -> set[Path]:
    return set(folder.glob("part-*.parquet"))


def kill_all(process: subprocess.Popen[bytes]) -> None:
    """Kill a command and all that it has started, and wait until they are gone."""
    doomed = [process.pid, *below(process.pid)]
    for one in doomed:
        try:
            os.kill(one, signal.SIGKILL)
        except ProcessLookupError:
            continue
    process.wait()
    while any(is_alive(one) for one in doomed):
        time.sleep(LOOK_SECONDS)


def is_alive(process: int) -> bool:
    try:
        return stat_of(process)[0] != "Z"
    except OSError:
        return False


def killed(words: list[str], out: Path, more: int) -> None:
    """Start a command, and kill it when there are so many more parts."""
    before, end = len(finished(out)), time.monotonic() + PATIENCE_SECONDS
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, start_new_session=True)
    while len(finished(out)) < before + more:
        if process.poll() is not None or time.monotonic() > end:
            kill_all(process)
            sys.exit(f"There were never {before + more} parts before the command had ended.")
        time.sleep(LOOK_SECONDS)
    kill_all(process)


def survive(name: str, model: Path, scratch: Path, kills: int) -> dict[str, Any]:
    """Kill the command again and again; compare with a run that nobody disturbed."""
    sides, out, draw = Sides(model, scratch), scratch / "killed", random.Random(0)
    undisturbed = sides.workers_command()
    alone = rows(sides.threads())
    words = command(model, out, "--workers", str(WORKERS))
    parts, kept, left = [], dict[str, tuple[str, int]](), 0
    again = set[str]()
    for number in range(kills + 1):
        if number < kills:
            killed(words, out, draw.randint(*MORE_PARTS))
        else:
            run(words)
        now = files(out)
        again |= {each for each in kept if now.get(each) != kept[each]}
        kept = {path.name: now[path.name] for path in finished(out)}
        parts.append(len(kept))
        left = sum(".tmp" in each for each in now)
    expected, found = ({k: v[0] for k, v in files(each).items()} for each in (undisturbed, out))
    return {
        "case": f"{name}: {counted(kills, 'kill')}",
        "parts_at_each_kill": parts[:-1],
        "parts": parts[-1],
        "written_again": len(again),
        "temporary_files": left,
        "same_files": found == expected,
        "same_rows": rows(out).equals(alone),
    }


def show(cases: list[dict[str, Any]]) -> None:
    for one in cases:
        print(TEXT.format(**one))
        if "steps" in one:
            print(
                f"    at most {BAR} is wanted; processor seconds {one['processor_ratio']:.2f} "
                f"times those of one thread; a worker's peak {one['worker_peak_mb']:.0f} MB"
            )
            for side, seconds in one["steps"].items():
                told = ", ".join(f"{step} {value:.2f} s" for step, value in seconds.items())
                print(f"    {side}: {told}")
    sys.stdout.flush()


def show_survival(found: dict[str, Any]) -> None:
    print(
        "{case} at {parts_at_each_kill} of {parts} parts; written again {written_again}, "
        "temporary files left {temporary_files}; the same files: {same_files}, the same rows as "
        "of one process: {same_rows}".format(**found),
        flush=True,
    )


def main() -> None:
    """Measure and print."""
    if any(os.environ.get(name) != value for name, value in BEST.items()):
        os.execve(sys.executable, [sys.executable, *sys.argv], os.environ | BEST)
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--models", nargs="+", default=["bpr", "transcf-mixture"])
    parser.add_argument("--events", type=int, default=8_000_000)
    parser.add_argument("--mixture-events", type=int, default=1_000_000)
    parser.add_argument("--dim", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5, help="0 leaves times out.")
    parser.add_argument("--command-rounds", type=int, default=3)
    parser.add_argument("--kills", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    found: dict[str, list[dict[str, Any]]] = {"times": [], "kills": []}
    for name in options.models:
        events = options.mixture_events if name == "transcf-mixture" else options.events
        log = synthesize(users=69_482, items=25_687, interactions=events)
        with tempfile.TemporaryDirectory() as folder:
            scratch, model = Path(folder), Path(folder) / "model"
            create(name, dim=options.dim, epochs=1).fit(log).save(model)
            title = f"{name}, {events:,} events"
            if options.rounds:
                cases = measure(title, model, scratch, options.rounds, options.command_rounds)
                found["times"] += cases
                if not options.json:
                    show(cases)
            if options.kills and name == options.models[0]:
                found["kills"].append(survive(title, model, scratch, options.kills))
                if not options.json:
                    show_survival(found["kills"][-1])
    if options.json:
        print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
