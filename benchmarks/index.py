"""The approximate index against the exact engine: queries per second at a recall of .95.

A million items with vectors shaped like a trained TransCF model of dim 64 (257 wide). They are
made, since no public log has a million items: items lie on the unit sphere around shelves of
about 25, shelves around topics; users take 20 items from one to four shelves and a tenth from
anywhere; q, a, n and the bias follow from that as in training (means over histories, users near
the mean of their items, popular items with a larger bias). At the size of Ciao the lengths of
all parts, the spectrum of the scores, the distance to the nearest item (median .83 against .84
of a trained model) and the spread of the best scores come out as those of a model trained on it.

Both sides run on one thread and take turns with the same users; medians are shown. The bar: a
recall@10 of at least .95, with at least ten times the queries per second of `top_k`.

Run: python benchmarks/index.py [--items N] [--queries N] [--repeats N] [--json]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from transcf.models.transcf.score_functions import SCORE_FUNCTIONS
from transcf.parallel import use_threads
from transcf.retrieval.index import ItemIndex
from transcf.retrieval.scorer import FormView, LinearForm, StoredForm

DIM, PER_USER, PER_SHELF = 64, 20, 25
RECALL_BAR, SPEED_BAR, K = 0.95, 10.0, 10
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")

Floats = npt.NDArray[np.float32]


def on_sphere(vectors: Floats) -> Floats:
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def draw_histories(
    shelf_of: npt.NDArray[np.int64], users: int, random: np.random.Generator
) -> sp.csr_array:
    """(users, items): who took what."""
    items, shelves = len(shelf_of), int(shelf_of[-1]) + 1
    starts = np.searchsorted(shelf_of, np.arange(shelves + 1))
    tastes = shelf_of[random.integers(0, items, (users, 4))]
    which = random.integers(0, random.integers(1, 5, users)[:, None], (users, PER_USER))
    shelf = np.take_along_axis(tastes, which, axis=1)
    within = random.random((users, PER_USER)) ** 1.5 * np.diff(starts)[shelf]
    taken = starts[shelf] + within.astype(np.int64)
    stray = random.random(taken.shape) < 0.1
    taken[stray] = random.integers(0, items, int(stray.sum()))
    ones = np.ones(taken.size, dtype=np.float32)
    indptr = np.arange(users + 1) * PER_USER
    return sp.csr_array((ones, taken.ravel(), indptr), shape=(users, items))


def make_form(items: int, users: int, seed: int = 0) -> LinearForm:
    """Make up a trained model; see the head of the file."""
    random = np.random.default_rng(seed)

    def noise(n: int, length: float) -> Floats:
        scale = np.float32(length / np.sqrt(DIM))
        return scale * random.standard_normal((n, DIM), dtype=np.float32)

    n_shelves = max(1, items // PER_SHELF)
    n_topics = max(1, int(np.sqrt(n_shelves)))
    shelves = noise(n_topics, 0.5)[random.integers(0, n_topics, n_shelves)]
    shelves += noise(n_shelves, 0.75)
    shelf_of = np.sort(random.integers(0, n_shelves, items))
    b = on_sphere(shelves[shelf_of] + noise(items, 0.85))
    taken = draw_histories(shelf_of, users, random)
    q = (taken @ b / PER_USER).astype(np.float32)
    a = on_sphere(q / np.float32(0.6) + noise(users, 0.35))
    counts = taken.sum(axis=0)
    n = np.where(counts[:, None] > 0, taken.T @ a / np.maximum(counts, 1)[:, None], 0.6 * b)
    bias = 0.08 * np.log1p(counts) - 0.25 + 0.1 * random.standard_normal(items)
    form = SCORE_FUNCTIONS["translation"]
    x, constants = form.linear_users(a, q)
    y = form.linear_items(b, n.astype(np.float32), bias.astype(np.float32)[:, None])
    return StoredForm(x, y, constants)


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    start = time.perf_counter()
    result = work()
    return time.perf_counter() - start, result


def compare(items: int, queries: int, repeats: int) -> list[dict[str, object]]:
    form = make_form(items, max(2 * queries, items // 5))
    vectors, constants = form.user_vectors[:queries], form.user_constants[:queries]
    # The users that are asked for play no part in the building.
    others = StoredForm(
        form.user_vectors[queries:], form.item_vectors, form.user_constants[queries:]
    )
    building, index = timed(lambda: ItemIndex.build(others))
    everything = np.ones(len(form.item_vectors), dtype=bool)
    model, users = FormView("exact", everything, form), np.arange(queries, dtype=np.int32)
    model.top_k(users[:1], K)  # loads the compiled code
    seconds: dict[str, list[float]] = {"ours": [], "peer": []}
    for _ in range(repeats):
        spent, found = timed(lambda: index.search(vectors, K, constants=constants))
        seconds["ours"].append(spent)
        spent, (truth, _) = timed(lambda: model.top_k(users, K))
        seconds["peer"].append(spent)
    recall = float((found.items[:, :, None] == truth[:, None, :]).any(axis=2).mean())
    rate = {side: queries / statistics.median(times) for side, times in seconds.items()}
    looked = f"{index.probes[0]} of {index.lists.nlist} lists" if index.lists else "all"
    print(f"built in {building:.0f} s; a search looks at {looked}", file=sys.stderr)
    return [
        {
            "case": f"queries per second, index against exact top {K} of {items:,} items",
            "ours": round(rate["ours"], 1),
            "peer": round(rate["peer"], 1),
            "unit": "1/s",
            "bar": f"{SPEED_BAR:g} x peer",
            "ratio": round(rate["ours"] / rate["peer"] / SPEED_BAR, 3),
        },
        {
            "case": f"recall@{K} of the same against {RECALL_BAR}",
            "ours": round(recall, 4),
            "peer": RECALL_BAR,
            "unit": "",
            "bar": "peer",
            "ratio": round(recall / RECALL_BAR, 3),
        },
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--items", type=int, default=1_000_000)
    parser.add_argument("--queries", type=int, default=1400)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if not os.environ.items() >= ONE_THREAD.items():
        # Libraries read it when they are imported.
        command = [sys.executable, __file__, *sys.argv[1:]]
        sys.exit(subprocess.run(command, env=os.environ | ONE_THREAD).returncode)
    with use_threads(1):
        cases = compare(options.items, options.queries, options.repeats)
    if options.json:
        print(json.dumps(cases, indent=2))
        return
    print(f"{'case':<65} {'ours':>8} {'peer':>8} unit {'bar':>9} {'ratio':>6}")
    for case in cases:
        print(
            f"{case['case']:<65} {case['ours']:>8} {case['peer']:>8} {case['unit']:<4} "
            f"{case['bar']:>9} {case['ratio']:>6}"
        )
    print("ratio: ours / bar, above 1 is better")


if __name__ == "__main__":
    main()
