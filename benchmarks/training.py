"""Training speed of TransCF's fast solver against BPR of `implicit`, and against itself.

Every case alternates the two sides and compares medians; a ratio above 1 means that we are better.
Against BPR a triple has one random negative on both sides, the paper's setting.

    python benchmarks/training.py [--quick] [--json]
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
import scipy.sparse as sp

from _peers import implicit_bpr
from _sets import ciao, long_tail
from transcf.data.csr import Csr
from transcf.models.transcf import TransCF
from transcf.models.transcf.model import TransCFSolver
from transcf.models.triples import Problem
from transcf.parallel import use_threads

Case = dict[str, Any]


def epochs(data: sp.csr_matrix, solver: type, dim: int, threads: int = 1) -> Callable[[], float]:
    """A function that trains one more epoch and returns its triples per second."""
    by_user = Csr(data.indptr.astype(np.int64), data.indices.astype(np.int32), data.shape[1])
    problem = Problem(by_user, by_user.transposed().counts)
    settings = TransCF.paper(dim=dim, learning_rate=0.02, margin=2.0).settings
    engine, number = solver(problem, settings), 0

    def run() -> float:
        nonlocal number
        number += 1
        start = time.perf_counter()
        with use_threads(threads):
            stats = engine.run_epoch(number)
        return float(stats.samples / (time.perf_counter() - start))

    run()
    return run


def bpr(data: sp.csr_matrix, dim: int) -> Callable[[], float]:
    """Samples per second of implicit's BPR."""
    seconds = implicit_bpr(data, dim, iterations=20)
    return lambda: 1 / seconds()


def compare(name: str, ours: Callable[[], float], peer: Callable[[], float], repeats: int) -> Case:
    speeds = [(ours(), peer()) for _ in range(repeats)]
    mine, theirs = (median(side) / 1e6 for side in zip(*speeds, strict=True))
    unit = "million triples/s"
    return {"case": name, "ours": mine, "peer": theirs, "unit": unit, "ratio": mine / theirs}


def run(quick: bool) -> list[Case]:
    repeats = 3 if quick else 9
    sets = {"Ciao": ciao(), "Amazon's size": long_tail(59_089, 17_969, 332_236)}
    cases = [
        compare(f"{name}, dim {dim}: fast / implicit BPR", epochs(data, TransCFSolver, dim),
                bpr(data, dim), repeats)
        for name, data in sets.items()
        for dim in (64, 128)
    ]  # fmt: skip
    for name, data in sets.items():
        two, one = (epochs(data, TransCFSolver, 64, threads) for threads in (2, 1))
        cases.append(compare(f"{name}, dim 64: two threads / one", two, one, repeats))
    return cases


def growth(chart: Path | None) -> list[Case]:
    """Cost per triple from 100 thousand to 8 million interactions, against the smallest."""
    sizes = [(5_000, 3_000, 100_000), (13_000, 7_000, 500_000), (30_000, 14_000, 2_000_000),
             (69_482, 25_687, 8_000_000)]  # fmt: skip
    runs = [epochs(long_tail(*size), TransCFSolver, 64) for size in sizes]
    turns = [[run() for run in runs] for _ in range(3)]
    costs = [1e9 / median(speeds) for speeds in zip(*turns, strict=True)]
    if chart is not None:
        draw(chart, [nnz for *_, nnz in sizes], costs)
    return [
        {
            "case": f"cost of a triple at {nnz:,} interactions",
            "ours": cost,
            "peer": costs[0],
            "unit": "ns",
            "ratio": costs[0] / cost,
        }
        for (*_, nnz), cost in zip(sizes, costs, strict=True)
    ]


def draw(path: Path, sizes: list[int], costs: list[float]) -> None:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(6, 3.5), layout="constrained")
    axes.plot(sizes, costs, "o-")
    axes.set(
        xscale="log",
        ylim=(0, 1.1 * max(*costs, 2 * costs[0])),
        xlabel="interactions",
        ylabel="ns per triple, one thread",
        title="Training cost per triple (dim 64)",
    )
    axes.axhline(2 * costs[0], linestyle=":", color="gray", label="twice the smallest")
    axes.legend()
    figure.savefig(path, dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--chart", type=Path, help="draw the cost per triple to this PNG")
    arguments = parser.parse_args()
    cases = run(arguments.quick)
    if not arguments.quick:
        cases += growth(arguments.chart)
    if arguments.json:
        print(json.dumps(cases, indent=2))
        return
    print(f"{'case':48}{'ours':>8}{'peer':>8}{'ratio':>8}  unit")
    for case in cases:
        print("{case:48}{ours:8.2f}{peer:8.2f}{ratio:8.2f}  {unit}".format(**case))


if __name__ == "__main__":
    main()
