"""Peak memory of training at Flixster's size (69,482 x 25,687, 8 million), above the loaded data.

    python benchmarks/memory.py [--model transcf] [--dim 128] [--epochs 2] [--json]

The bar is one gigabyte; the ratio is the bar over the measured peak. Seconds are those of the fit
with its validation, by the clock. Linux only: the high-water
mark of the process is reset (/proc/self/clear_refs) once the data is loaded.
"""

from __future__ import annotations

import argparse
import json
import re
import time
from pathlib import Path

from transcf import create
from transcf.data import leave_one_out, synthesize

BAR = 1e9


def status(field: str) -> int:
    """One field of this process's memory status, in bytes."""
    found = re.search(rf"{field}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None, f"/proc/self/status has no {field}"
    return 1024 * int(found[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", default="transcf")
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    # Compiling takes memory of its own, once: it belongs to neither side.
    create(arguments.model, dim=8, epochs=1).fit(
        synthesize(users=200, items=100, interactions=2000)
    )
    split = leave_one_out(synthesize(users=69_482, items=25_687, interactions=8_000_000))
    Path("/proc/self/clear_refs").write_text("5")
    loaded = status("VmRSS")
    model = create(arguments.model, dim=arguments.dim, epochs=arguments.epochs)
    start = time.perf_counter()
    model.fit(split.train, split.validation)
    seconds = time.perf_counter() - start
    above = status("VmHWM") - loaded
    case = {
        "case": f"{model.name} at dim {arguments.dim}, peak above the data ({loaded / 1e9:.2f} GB)",
        "ours": above / 1e9,
        "peer": BAR / 1e9,
        "unit": "GB",
        "microseconds": 1e6 * seconds / arguments.epochs / len(split.train),
        "ratio": BAR / above,
    }
    if arguments.json:
        print(json.dumps([case], indent=2))
    else:
        text = "{case}: {ours:.2f} {unit}, bar {peer:.2f}, ratio {ratio:.2f}; {microseconds:.1f} us"
        print(text.format(**case), "per event and epoch")


if __name__ == "__main__":
    main()
