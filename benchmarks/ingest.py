"""From a CSV file to a split: how much longer than polars takes only to read the file.

The file has the size of Flixster: 8 million rows, 69,482 users, 25,687 items, text ids. Each
measurement runs in its own process, ours and polars' in turn; medians are shown. The bar: no
more than three times polars' time, and less than 2.5 GB at the peak.

Run: python benchmarks/ingest.py [--rows N] [--repeats N] [--filter paper|k-core] [--json]
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import polars as pl

from transcf.data import (
    k_core,
    leave_one_out,
    paper_filter,
    read_interactions,
    synthesize,
    write_csv,
)

USERS, ITEMS = 69_482, 25_687
TIME_BAR, MEMORY_BAR_GB = 3.0, 2.5


def write_log(path: Path, rows: int) -> None:
    """Write a made-up log in random order."""
    frame = synthesize(users=USERS, items=ITEMS, interactions=rows).to_frame()
    order = np.random.default_rng(0).permutation(len(frame))
    frame.select(pl.all().gather(order)).write_csv(path)


def run_ours(path: Path, kind: str) -> str:
    """Read, number ids, filter, split."""
    log = read_interactions(path)
    log = paper_filter(log) if kind == "paper" else k_core(log)
    return repr(leave_one_out(log, by="time"))


def run_peer(path: Path, kind: str) -> str:
    """Read, and no more."""
    return repr(pl.read_csv(path).shape)


def work(side: str, path: Path, kind: str) -> None:
    """Measure one run in this process, after a small one that loads the compiled code."""
    run = {"ours": run_ours, "peer": run_peer}[side]
    with tempfile.TemporaryDirectory() as folder:
        small = Path(folder) / "small.csv"
        write_csv(synthesize(users=100, items=50, interactions=2000), small)
        run(small, kind)
    start = time.perf_counter()
    result = run(path, kind)
    seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9
    print(json.dumps({"seconds": seconds, "peak": peak, "result": result}))


def measure(side: str, path: Path, kind: str) -> dict[str, float]:
    command = [sys.executable, __file__, "--worker", side, "--path", str(path), "--filter", kind]
    answer = subprocess.run(command, check=True, capture_output=True, text=True)
    return json.loads(answer.stdout)


def compare(rows: int, repeats: int, kind: str) -> list[dict[str, object]]:
    runs: dict[str, list[dict[str, float]]] = {"ours": [], "peer": []}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log.csv"
        write_log(path, rows)
        for _ in range(repeats):
            for side, measured in runs.items():
                measured.append(measure(side, path, kind))
    seconds = {k: statistics.median(run["seconds"] for run in v) for k, v in runs.items()}
    peak = max(run["peak"] for run in runs["ours"])
    return [
        {
            "case": f"read, ids, {kind} filter and split against polars.read_csv, {rows:,} rows",
            "ours": round(seconds["ours"], 3),
            "peer": round(seconds["peer"], 3),
            "unit": "s",
            "bar": f"{TIME_BAR:g} x peer",
            "ratio": round(TIME_BAR * seconds["peer"] / seconds["ours"], 3),
        },
        {
            "case": f"peak memory of the same against {MEMORY_BAR_GB:g} GB",
            "ours": round(peak, 3),
            "peer": MEMORY_BAR_GB,
            "unit": "GB",
            "bar": "peer",
            "ratio": round(MEMORY_BAR_GB / peak, 3),
        },
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=8_000_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--filter", choices=("paper", "k-core"), default="paper")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--worker", choices=("ours", "peer"), help=argparse.SUPPRESS)
    parser.add_argument("--path", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        work(options.worker, options.path, options.filter)
        return
    cases = compare(options.rows, options.repeats, options.filter)
    if options.json:
        print(json.dumps(cases, indent=2))
        return
    print(f"{'case':<75} {'ours':>8} {'peer':>8} unit {'bar':>9} {'ratio':>6}")
    for case in cases:
        print(
            f"{case['case']:<75} {case['ours']:>8} {case['peer']:>8} {case['unit']:<4} "
            f"{case['bar']:>9} {case['ratio']:>6}"
        )
    print("ratio: bar / ours, above 1 is better")


if __name__ == "__main__":
    main()
