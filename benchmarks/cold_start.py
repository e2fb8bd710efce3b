"""Time until first use: imports, first fits and the demo, without and with compiled kernels.

The library is copied to a temporary tree with a temporary cache folder, so that nothing has been
compiled. Every case is a process of its own; a cold one starts with an empty cache. Wall-clock
seconds need a quiet machine; processor seconds (user and system, children included) are shown next
to them.

Run: python benchmarks/cold_start.py [--only REGEX] [--json]
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import transcf

#: Reads the demo's log, which another process has written: making it up is not part of a fit.
FIT = "import sys, transcf; transcf.{model}().fit(transcf.read_interactions(sys.argv[1]))"
WRITE = """
import sys
from transcf.data.synthetic import synthesize, write_csv
write_csv(synthesize(drift=4.0, sequences=0.5, seed=0), sys.argv[1])
"""
COMMAND = "import sys; from transcf.cli import main; sys.argv = ['transcf', {words}]; main()"


class Case(NamedTuple):
    """A script, whether it starts with an empty cache, and the most seconds it may take."""

    name: str
    script: str
    is_cold: bool
    bar: float


CASES = [
    Case("import transcf", "import transcf", False, 0.05),
    Case("transcf --help", COMMAND.format(words="'--help'"), False, 0.25),
    *(
        Case(f"{model}().fit", FIT.format(model=model), True, bar)
        for model, bar in (
            ("EASE", 1.0),
            ("BPR", 4.0),
            ("CML", 4.0),
            ("IALS", 4.0),
            ("TransCF", 6.0),
            ("TransCFMixture", 8.0),
        )
    ),
    Case("transcf demo, cold", COMMAND.format(words="'demo'"), True, 15.0),
    Case("transcf demo, warm", COMMAND.format(words="'demo'"), False, 4.0),
]


def run(script: str, tree: Path, cache: Path, *words: str) -> tuple[float, float]:
    """Run a script with the copied library; returns wall-clock and processor seconds."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(tree),
        "NUMBA_CACHE_DIR": str(cache),
        "XDG_CACHE_HOME": str(cache),
    }
    before, started = _processor_seconds(), time.perf_counter()
    command = [sys.executable, "-c", script, *words]
    subprocess.run(command, env=environment, check=True, capture_output=True)
    return time.perf_counter() - started, _processor_seconds() - before


def _processor_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def main() -> None:
    """Measure all cases, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", metavar="REGEX", help="cases, as in 'fit'")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        tree, warm, log = Path(folder, "tree"), Path(folder, "warm"), Path(folder, "log.csv")
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(Path(transcf.__file__).parent, tree / "transcf", ignore=ignored)
        run(WRITE, tree, warm, str(log))
        for number, case in enumerate(CASES):
            if not re.search(options.only, case.name):
                continue
            cache = Path(folder, f"cache-{number}") if case.is_cold else warm
            if not case.is_cold:
                run(case.script, tree, warm, str(log))  # compiles kernels and bytecode
            wall, processor = run(case.script, tree, cache, str(log))
            rows.append({"case": case.name, "wall": wall, "cpu": processor, "bar": case.bar})
    if options.json:
        print(json.dumps(rows, indent=2))
        return
    print(f"{'case':22} {'wall s':>7} {'cpu s':>7} {'bar s':>7}")
    for row in rows:
        print(f"{row['case']:22} {row['wall']:7.2f} {row['cpu']:7.2f} {row['bar']:7.2f}")


if __name__ == "__main__":
    main()
