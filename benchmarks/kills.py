r"""Does a table survive kills? Run it whole, then kill it at random moments, go on, and compare.

Run: python benchmarks/kills.py [--kills 5] -- reproduce performance \\
    --datasets delicious --budget quick --workers 2

Prints how many cells were there at each kill, whether any of them was run again later, and whether
the table of the killed run is the one that nobody interrupted.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from transcf.data.report import counted
from transcf.experiments.store import Store

#: What differs between two runs that are the same.
CLOCKS = ("seconds", "minutes", "stored")
#: Kills come after such a share of the time that the whole takes.
SHARE = (0.03, 0.15)


def start(words: list[str], store: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "transcf", "--store", str(store), *words, "--json"]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def figures(content: Any) -> Any:
    """Leave out clocks, and where results come from."""
    if isinstance(content, dict):
        kept = {k: v for k, v in content.items() if not k.endswith(CLOCKS)}
        return {name: figures(value) for name, value in kept.items()}
    return [figures(entry) for entry in content] if isinstance(content, list) else content


def entries(store: Path) -> dict[str, tuple[int, bytes]]:
    """Every entry by its key: a cell that is run again has another file."""
    found = {}
    for key in Store(store).all_keys():
        head = store / key[:2] / key / "run.json"
        found[key] = (head.stat().st_ino, head.read_bytes())
    return found


def whole(words: list[str], store: Path) -> tuple[Any, float]:
    """Run to the end; returns what was printed, and the seconds."""
    started = time.perf_counter()
    process = start(words, store)
    text, _ = process.communicate()
    if process.returncode:
        sys.exit(f"{' '.join(words)} ended with {process.returncode}")
    return figures(json.loads(text)), time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--whole", type=Path, help="Store of a run that nobody interrupted.")
    parser.add_argument("--seconds", type=float, help="What that run took.")
    parser.add_argument("words", nargs="+", help="Words of the command, after --.")
    options = parser.parse_args()
    rng = random.Random(options.seed)
    with tempfile.TemporaryDirectory() as scratch:
        uninterrupted = options.whole or Path(scratch) / "whole"
        expected, seconds = whole(options.words, uninterrupted)
        seconds = options.seconds or seconds
        print(f"uninterrupted: {seconds:.0f} s, {len(entries(uninterrupted))} cells", flush=True)
        store, repeated = Path(scratch) / "killed", set[str]()
        for number in range(1, options.kills + 1):
            before = entries(store)
            process, after = start(options.words, store), rng.uniform(*SHARE) * seconds
            time.sleep(after)
            process.kill()
            process.wait()
            now = entries(store)
            repeated |= {key for key in before if now.get(key) != before[key]}
            print(
                f"kill {number} after {after:.0f} s: {len(before)} -> {len(now)} cells", flush=True
            )
        before = entries(store)
        found, seconds = whole(options.words, store)
        now = entries(store)
        repeated |= {key for key in before if now.get(key) != before[key]}
        print(f"to the end: {seconds:.0f} s, {len(before)} -> {len(now)} cells")
        print(f"finished cells that were run twice: {len(repeated)}")
        print(f"the same table: {found == expected}; {counted(options.kills, 'kill')}")
        sys.exit(bool(repeated) or found != expected)


if __name__ == "__main__":
    main()
