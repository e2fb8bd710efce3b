"""Speed of the baselines against named peers, side by side in one run, on one thread.

    python benchmarks/baselines.py [--quick] [--json] [--recbole-python peer/bin/python]

BPR and iALS meet `implicit`, eALS the exact solver of its own objective, NeuMF and CDAE RecBole,
which needs an environment of its own: see `_recbole_peer.py`, or let `make bench-baselines` set it
up. A ratio above 1 means that we are faster. Epochs are those of the models as they are shipped:
RecBole's CDAE has a loss over all items, ours one over drawn items as in its publication.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import scipy.sparse as sp

from _peers import Timed, implicit_als, implicit_bpr
from _sets import ciao, interactions, long_tail
from _turns import use_one_thread
from transcf.kernels.als import solve_rows
from transcf.models.alternation import ALSProblem, Alternation
from transcf.models.base import Recommender
from transcf.models.bpr import BPR
from transcf.models.eals import EALS, EALSSettings, objective, weights_of_items
from transcf.models.factors import first_vectors
from transcf.models.families import LogSizes
from transcf.models.ials import IALS
from transcf.models.registry import create

Case = dict[str, Any]

BATCH = 2048


def exact_eals(data: sp.csr_matrix, dim: int, epochs: int) -> Timed:
    """Seconds per iteration: the objective of eALS, every row solved exactly in O(dim^3)."""
    log = interactions(data)
    settings = EALSSettings(dim=dim).for_log(LogSizes.of(log))
    weights = weights_of_items(settings, log.by_item.counts)
    goal = objective(settings, weights, log.by_user.counts)

    def run() -> float:
        start = first_vectors(data.shape, dim, 0.01, np.random.default_rng(0))
        solver, seconds = (
            Alternation(ALSProblem(log.by_user, log.by_item, goal), solve_rows, *start),
            [],
        )
        for number in range(1, epochs + 1):
            begun = time.perf_counter()
            solver.run_epoch(number)
            seconds.append(time.perf_counter() - begun)
        return median(seconds[1:])

    return run


def per_epoch(model: Recommender[Any], data: sp.csr_matrix) -> Timed:
    log = interactions(data)
    return lambda: float(median(model.fit(log).history_["seconds"][1:]))


def per_sample(model: Recommender[Any], data: sp.csr_matrix) -> Timed:
    log = interactions(data)

    def run() -> float:
        history = model.fit(log).history_[1:]
        return float(median(history["seconds"] / history["samples"]))

    return run


def recbole(python: Path, model: str, file: Path, dim: int, epochs: int) -> Timed:
    script = Path(__file__).with_name("_recbole_peer.py")
    words = ["--epochs", epochs, "--dim", dim, "--batch", BATCH]

    def run() -> float:
        told = subprocess.run(
            map(str, (python, script, model, file, *words)),
            capture_output=True,
            text=True,
            check=True,
        )
        return float(json.loads(told.stdout.splitlines()[-1])["seconds"])

    return run


def case(name: str, ours: Timed, peer: Timed, repeats: int, aim: float) -> Case:
    ours()  # compiles
    turns = [(ours(), peer()) for _ in range(repeats)]
    mine, theirs = (median(side) for side in zip(*turns, strict=True))
    return {"case": name, "ours": mine, "peer": theirs, "ratio": theirs / mine, "aim": aim}


def against_implicit(repeats: int, epochs: int) -> list[Case]:
    sets = {"Ciao": ciao(), "Amazon's size": long_tail(59_089, 17_969, 332_236)}
    cases = []
    for name, data in sets.items():
        ours: Timed = per_sample(BPR(dim=64, epochs=epochs), data)
        peer = implicit_bpr(data, 64, epochs)
        cases.append(case(f"{name}, dim 64: BPR / implicit, sample", ours, peer, repeats, 1 / 1.1))
        for dim in (64, 128):
            ours = per_epoch(IALS(dim=dim, epochs=epochs), data)
            peer = implicit_als(data, dim, epochs)
            title = f"{name}, dim {dim}: iALS / implicit, iteration"
            cases.append(case(title, ours, peer, repeats, 1 / 1.5))
            ours = per_epoch(EALS(dim=dim, epochs=epochs), data)
            peer = exact_eals(data, dim, epochs)
            title = f"{name}, dim {dim}: eALS / exact solver, iteration"
            cases.append(case(title, ours, peer, repeats, 1.0))
    return cases


def against_recbole(python: Path, repeats: int, epochs: int) -> list[Case]:
    data, cases = ciao(), []
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "train.inter"
        pairs = data.tocoo()
        lines = (f"{user}\t{item}" for user, item in zip(pairs.row, pairs.col, strict=True))
        file.write_text("\n".join(["user_id:token\titem_id:token", *lines, ""]))
        for name, dim, settings in (
            ("NeuMF", 16, {"layers": 3, "negatives": 4, "batch_size": BATCH}),
            ("CDAE", 64, {"dropout": 0.5, "batch_size": BATCH}),
        ):
            ours = create(name, dim=dim, epochs=epochs + 1, device="cpu", **settings)
            peer = recbole(python, name, file, dim, epochs)
            title = f"Ciao, dim {dim}: {name} / RecBole, epoch"
            cases.append(case(title, per_epoch(ours, data), peer, repeats, 2.0))
    return cases


def main() -> None:
    use_one_thread()
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--recbole-python", type=Path, help="interpreter that has RecBole")
    options = parser.parse_args()
    repeats, epochs = (1, 3) if options.quick else (5, 6)
    cases = against_implicit(repeats, epochs)
    if options.recbole_python is None:
        left_out = "NeuMF and CDAE are left out: name an interpreter with --recbole-python."
    else:
        left_out = ""
        # Not resolved: the link in an environment is what makes it one.
        cases += against_recbole(options.recbole_python.absolute(), min(repeats, 3), 3)
    if options.json:
        print(json.dumps({"cases": cases, "left_out": left_out}, indent=2))
        return
    for entry in cases:
        print(
            f"{entry['case']:<54} ours {entry['ours']:9.3g} s   peer {entry['peer']:9.3g} s   "
            f"ratio {entry['ratio']:5.2f}   aim {entry['aim']:.2f}"
        )
    if left_out:
        print(left_out)


if __name__ == "__main__":
    main()
