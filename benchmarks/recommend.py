"""Top-10 of everybody: against the bare matrix product, and against implicit's `recommend`.

Random vectors of Ciao's shape: 6,760 users, 11,166 items, 257 numbers each (TransCF at dim 64),
about 22 seen items for each user; implicit has 64 factors. One thread, the contestants in turn,
medians. The bare product writes into memory that is already there, which is its best case.

Run: python benchmarks/recommend.py [--repeats N] [--json]
"""

from __future__ import annotations

import argparse
import json

import numpy as np
import scipy.sparse as sp
from implicit.cpu.als import AlternatingLeastSquares

from _turns import in_turn, use_one_thread
from transcf.data.csr import Csr
from transcf.retrieval.scorer import FormView, StoredForm

USERS, ITEMS, WIDTH, FACTORS, SEEN, K = 6760, 11166, 257, 64, 22, 10
BAR = 1.12


def random_vectors(rng: np.random.Generator) -> FormView:
    form = StoredForm(
        rng.standard_normal((USERS, WIDTH), dtype=np.float32),
        rng.standard_normal((ITEMS, WIDTH), dtype=np.float32),
        rng.standard_normal(USERS, dtype=np.float32),
    )
    return FormView("random vectors", np.ones(ITEMS, dtype=bool), form)


def random_peer(rng: np.random.Generator) -> AlternatingLeastSquares:
    """Implicit's own model with random factors: only its ranking is timed."""
    peer = AlternatingLeastSquares(factors=FACTORS, num_threads=1)
    peer.user_factors = rng.standard_normal((USERS, FACTORS), dtype=np.float32)
    peer.item_factors = rng.standard_normal((ITEMS, FACTORS), dtype=np.float32)
    return peer


def random_seen(rng: np.random.Generator) -> Csr:
    rows = [np.unique(rng.integers(0, ITEMS, SEEN)) for _ in range(USERS)]
    indptr = np.concatenate([[0], np.cumsum([len(row) for row in rows])]).astype(np.int64)
    return Csr(indptr, np.concatenate(rows).astype(np.int32), ITEMS)


def case(name: str, ours: float, peer: float, ratio: float) -> dict[str, object]:
    return {
        "case": name,
        "ours": round(ours, 4),
        "peer": round(peer, 4),
        "unit": "s",
        "ratio": round(ratio, 3),
    }


def measure(repeats: int) -> list[dict[str, object]]:
    rng = np.random.default_rng(0)
    linear, peer, seen = random_vectors(rng), random_peer(rng), random_seen(rng)
    users, seen_rows = np.arange(USERS, dtype=np.int32), sp.csr_matrix(seen.to_scipy())
    product = np.zeros((USERS, ITEMS), dtype=np.float32)
    form = linear.form
    found = in_turn(
        {
            "sgemm": lambda: np.matmul(form.user_vectors, form.item_vectors.T, out=product),
            "ours": lambda: linear.top_k(users, K, seen=seen),
            "implicit": lambda: peer.recommend(users, seen_rows, N=K),
        },
        repeats,
    )
    ours, bare, other = found["ours"], found["sgemm"], found["implicit"]
    return [
        case(f"top-10, 257 wide, against the bare sgemm (x {BAR})", ours, bare, BAR * bare / ours),
        case("top-10, 257 wide, against implicit at 64 factors", ours, other, other / ours),
    ]


def main() -> None:
    use_one_thread()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    cases = measure(options.repeats)
    if options.json:
        print(json.dumps(cases, indent=2))
        return
    for one in cases:
        print(f"{one['case']:<60} ours {one['ours']:.3f} s  peer {one['peer']:.3f} s", end="  ")
        print(f"ratio {one['ratio']:.3f}")
    print(f"ratio: peer / ours (the first: {BAR} x peer / ours), above 1 is better")


if __name__ == "__main__":
    main()
