"""How long does `transcf runs list` take? Fill a run cache with copies of one run, and list it.

Run: python benchmarks/runs.py [--entries 5000]

Prints seconds (wall clock and CPU) of the first list, which makes the index, and of later ones.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from transcf import EASE, open_split
from transcf.experiments.run import EvalConfig, RunKey, fit_and_evaluate
from transcf.experiments.store import Store


def fill(store: Store, entries: int) -> None:
    """Store the result of one run under many keys."""
    split, config = open_split("synthetic"), EvalConfig("temporal")
    model = EASE()
    result = fit_and_evaluate(model, split, config)
    key = RunKey.evaluated(model, split, config)
    for number in range(entries):
        settings = {**key.settings, "number": number}
        store.write(replace(key, settings=settings), result, {"dataset": "synthetic"})


def timed_list(store: Store) -> tuple[float, float]:
    """Run the command; return its wall clock and CPU seconds."""
    before, started = _cpu_seconds(), time.perf_counter()
    command = [sys.executable, "-m", "transcf", "--store", str(store.folder), "runs", "list"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - started, _cpu_seconds() - before


def _cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--entries", type=int, default=5000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        store = Store(Path(scratch) / "runs")
        fill(store, options.entries)
        (store.folder / "index.jsonl").unlink()
        for what in ("without an index", "with an index", "with an index"):
            wall, cpu = timed_list(store)
            print(f"{options.entries:,} entries, {what}: {wall:.2f} s, CPU {cpu:.2f} s", flush=True)


if __name__ == "__main__":
    main()
