"""More events than one process may hold: made up, prepared and trained on, each process watched.

    python benchmarks/large.py [--events 5000000] [--model bpr] [--dim 32] [--workers 2]
        [--partitions 32] [--folder DIR] [--json]

Four steps, each in a process of its own: events are made up to Parquet files, a piece at a time;
the files are prepared by partitions (5-core, leave one out) and one epoch is trained by
workers of a Ray cluster of this machine; the model is loaded and asked. The figure of a step is the
largest peak of resident memory (VmHWM) among all of its processes, those of Ray included; pages of
Ray's object store count for everybody who has them mapped. The bar is 3 GB. Steps that were done in
--folder are not done again: a run that was ended goes on. Linux only.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from transcf import create, load
from transcf.data import open_parts, prepare_parts
from transcf.distributed import Cluster
from transcf.models.training import FitOptions

BAR = 3e9
PIECE = 2_000_000
EVENTS_PER_USER, USERS_PER_ITEM = 50, 10


def make_up(folder: Path, events: int, seed: int = 0) -> None:
    """Write events in the order of time, with a long tail of users and items."""
    users = max(100, events // EVENTS_PER_USER)
    items = max(100, users // USERS_PER_ITEM)
    names = np.random.default_rng(seed).permutation(items)  # ids tell nothing of popularity
    folder.mkdir(exist_ok=True)
    for number, first in enumerate(range(0, events, PIECE)):
        size = min(PIECE, events - first)
        random = np.random.default_rng([seed, number])
        table = {
            "user_id": (users * random.random(size) ** 1.5).astype(np.int64),
            "item_id": names[(items * random.random(size) ** 3).astype(np.int64)],
            "timestamp": 1_600_000_000 + first + np.arange(size),
        }
        frame = pl.DataFrame(table)
        frame.write_parquet(folder / f"{number:05}.parquet", row_group_size=1 << 18)


def prepare(folder: Path, arguments: Any) -> None:
    source, target = folder / "events", folder / "prepared"
    prepare_parts(source, target, partitions=arguments.partitions, k_core=5)


def train(folder: Path, arguments: Any) -> None:
    log = open_parts(folder / "prepared")
    cluster = Cluster(arguments.workers, threads=1)
    model = create(arguments.model, dim=arguments.dim, epochs=1)
    model.fit(log, options=FitOptions(cluster=cluster))
    model.save(folder / "model", overwrite=True)
    print(json.dumps(model.report_ | {"epoch_seconds": float(model.history_["seconds"].sum())}))


def ask(folder: Path) -> None:
    model = load(folder / "model")
    known = model.learned_.known
    for user in range(0, len(known.users), max(1, len(known.users) // 5)):
        listed = model.recommend(known.users.series[user], k=10)
        rows = known.items.require(listed["item_id"], "item")
        assert len(rows) == 10
        assert not set(rows.tolist()) & set(known.seen.row(user).tolist()), "something seen"


def watch(command: list[str]) -> tuple[float, dict[str, int], str]:
    """Run a command; return its seconds, the peak of each kind of process, and what it printed."""
    started, peaks = time.perf_counter(), dict[int, tuple[str, int]]()
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(command, stdout=output)
        while process.poll() is None:
            for pid in family(process.pid, set(peaks)):
                try:
                    status = Path(f"/proc/{pid}/status").read_text()
                    line = Path(f"/proc/{pid}/cmdline").read_bytes()
                except OSError:
                    continue
                found = dict(entry.split(":", 1) for entry in status.splitlines() if ":" in entry)
                if "VmHWM" in found:
                    peaks[pid] = (kind_of(line), 1024 * int(found["VmHWM"].split()[0]))
            time.sleep(0.2)
        output.seek(0)
        printed = output.read()
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {process.returncode}")
    highest: dict[str, int] = {}
    for kind, peak in peaks.values():
        highest[kind] = max(peak, highest.get(kind, 0))
    return time.perf_counter() - started, highest, printed


def family(root: int, known: set[int]) -> set[int]:
    """A process with all that it started, and those that it was seen to have started before."""
    parents = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                stat = Path(f"/proc/{entry}/stat").read_text()
            except OSError:
                continue
            parents[int(entry)] = int(stat.rpartition(")")[2].split()[1])
    found, size = {root} | (known & parents.keys()), 0
    while len(found) > size:
        size = len(found)
        found |= {pid for pid, parent in parents.items() if parent in found}
    return found


def kind_of(line: bytes) -> str:
    """Name a process: the driver, a worker of Ray, or what else Ray runs."""
    name = line.split(b"\0")[0].decode("utf-8", "replace")
    if name.startswith("ray::"):
        return "worker"
    return "driver" if b"large.py" in line else f"ray ({Path(name).name.split(' ')[0]})"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--events", type=int, default=5_000_000)
    parser.add_argument("--model", default="bpr")
    parser.add_argument("--dim", type=int, default=32)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--partitions", type=int, default=32)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--step", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    steps = {
        "make up": lambda folder: make_up(folder / "events", arguments.events),
        "prepare": lambda folder: prepare(folder, arguments),
        "train": lambda folder: train(folder, arguments),
        "ask": ask,
    }
    if arguments.step is not None:
        steps[arguments.step](arguments.folder)
        return
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        folder = arguments.folder or Path(scratch)
        for step in steps:
            if (folder / f"{step}.done").exists():
                continue
            command = [sys.executable, *sys.argv, "--step", step, "--folder", str(folder)]
            seconds, peaks, printed = watch(command)
            row = {
                "step": step,
                "seconds": round(seconds, 1),
                "peak_gb": {kind: round(peak / 1e9, 3) for kind, peak in peaks.items()},
                "bar_gb": BAR / 1e9,
                "ratio": round(BAR / max(peaks.values()), 2),
                "report": json.loads(printed) if printed.strip() else None,
            }
            rows.append(row)
            (folder / f"{step}.done").touch()
            if not arguments.json:
                print(f"{step}: {seconds:.1f} s, peaks {row['peak_gb']} GB, ratio {row['ratio']}")
                print(printed, end="", flush=True)
    if arguments.json:
        print(json.dumps(rows, indent=2))


if __name__ == "__main__":
    main()
