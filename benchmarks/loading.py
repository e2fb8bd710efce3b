"""How soon a saved model of 1 GB answers: load the folder, recommend to one user.

A TransCF model with 1.9 million users, 100,000 items and 64 dimensions (random vectors, ten
interactions for each user), and an EASE model with 16,384 items. Each is read by a fresh program
that has imported the library; the files are in the system's cache, as on a server that restarts.

Run: python benchmarks/loading.py [--json]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from transcf import EASE, Recommender
from transcf.data.csr import Csr, Histories
from transcf.data.ids import IdMap
from transcf.io.model_dir import VERSION
from transcf.io.tensors import Arrays
from transcf.models.fitted import TrainingData
from transcf.models.registry import model_of
from transcf.models.transcf import TransCF

BAR = 2.0
DIM, EVENTS = 64, 10

PROGRAM = """
import sys, time
import transcf
from transcf.models import base, transcf as _
from transcf.io import model_dir
start = time.perf_counter()
model = transcf.load(sys.argv[1])
loaded = time.perf_counter()
assert len(model.recommend(7)) == 10
print(loaded - start, time.perf_counter() - start)
"""


def untrained(
    kind: type[Recommender[Any]], params: dict[str, Any], known: TrainingData, arrays: Arrays
) -> Recommender[Any]:
    """Return a model with what it knows and has learned, without training."""
    report = {
        "users": len(known.users),
        "items": len(known.items),
        "interactions": len(known.seen.indices),
        "seconds": 0.0,
    }
    about = {"class": kind.__name__, "version": VERSION, "params": params, "report": report}
    about |= {"best_epoch": None, "additions": 0}
    return model_of(about, known, arrays, "memory")


def random_known(rng: np.random.Generator, n_users: int, n_items: int) -> TrainingData:
    """Users, items and seen items."""
    indices = np.sort(rng.integers(0, n_items // EVENTS, (n_users, EVENTS)), axis=1)
    indices = indices * EVENTS + np.arange(EVENTS)  # distinct and ascending in each row
    indices.sort(axis=1)
    seen = Csr(
        np.arange(n_users + 1, dtype=np.int64) * EVENTS, indices.ravel().astype(np.int32), n_items
    )
    users, items = (IdMap(pl.Series(range(n), dtype=pl.Int64)) for n in (n_users, n_items))
    histories = Histories(seen.indptr, seen.indices, n_items)
    return TrainingData(users, items, seen, histories, timed=False)


def large_transcf() -> Recommender[Any]:
    n_users, n_items = 1_900_000, 100_000
    rng = np.random.default_rng(0)
    known = random_known(rng, n_users, n_items)
    sizes = {"user_vectors": n_users, "item_vectors": n_items}
    sizes |= {"user_neighborhoods": n_users, "item_neighborhoods": n_items}
    state = {name: rng.standard_normal((n, DIM), dtype=np.float32) for name, n in sizes.items()}
    state["item_bias"] = np.zeros(n_items, np.float32)
    return untrained(TransCF, {"dim": DIM}, known, state)


def large_ease() -> Recommender[Any]:
    n_items = 16_384
    rng = np.random.default_rng(0)
    known = random_known(rng, 50_000, n_items)
    weights = rng.standard_normal((n_items, n_items), dtype=np.float32)
    return untrained(EASE, {}, known, {"weights": weights})


def measure() -> list[dict[str, object]]:
    cases = []
    with tempfile.TemporaryDirectory() as scratch:
        for make in (large_transcf, large_ease):
            model = make()
            folder = model.save(Path(scratch) / type(model).__name__)
            size = sum(path.stat().st_size for path in folder.iterdir()) / 2**30
            name = type(model).__name__
            del model
            best = (np.inf, np.inf)
            for _ in range(3):
                command = [sys.executable, "-c", PROGRAM, str(folder)]
                done = subprocess.run(command, capture_output=True, text=True, check=True)
                load, first = map(float, done.stdout.split())
                best = min(best, (first, load))
            cases.append(
                {
                    "case": f"{name}, {size:.2f} GB",
                    "load": round(best[1], 3),
                    "first answer": round(best[0], 3),
                    "unit": "s",
                }
            )
    return cases


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    cases = measure()
    if options.json:
        print(json.dumps(cases, indent=2))
        return
    for case in cases:
        print(f"{case['case']:<20} loaded after {case['load']:.2f} s", end=", ")
        print(f"first answer after {case['first answer']:.2f} s (aim: {BAR:.0f} s)")


if __name__ == "__main__":
    main()
