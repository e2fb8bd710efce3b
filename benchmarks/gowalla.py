"""TransCF on the public split of Gowalla that graph recommenders are compared on.

The settings were chosen on a tenth of the training part (`transcf evaluate gowalla --part
validation`, number of negatives and epochs) and are fixed here: a model for each seed is fitted on
all of the training part, without any look at a figure, and everybody is judged once. Published by
others, recall@20 / NDCG@20: LightGCN .1830 / .1554, SimpleX .1872 / .1557, UltraGCN .1862 / .1580,
BSPM .1920 / .1597.

Run: python benchmarks/gowalla.py [--dim 64] [--negatives 1500] [--epochs 20] [--seeds 3] [--json]
"""

from __future__ import annotations

import argparse
import json
import time

import numpy as np

from transcf import TransCF, evaluate, open_split

METRICS = ("R@20", "N@20")


def main() -> None:
    """Fit, judge and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--dim", type=int, default=64)
    parser.add_argument("--negatives", type=int, default=1500)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    split, rows = open_split("gowalla", "strict"), []
    TransCF(dim=options.dim, epochs=1).fit(split.validation)  # compile
    for seed in range(options.seeds):
        model = TransCF(
            dim=options.dim, shared_negatives=options.negatives, epochs=options.epochs,
            random_state=seed,
        )  # fmt: skip
        started = time.perf_counter()
        model.fit(split.before_test)
        trained = time.perf_counter()
        found = evaluate(model, split, protocol="strict", at=(20,)).metrics
        seconds = trained - started, time.perf_counter() - trained
        rows.append([*(found[name].mean for name in METRICS), *seconds])
        if not options.json:
            print(_line(f"seed {seed}", rows[-1]), flush=True)
    means, spreads = np.mean(rows, axis=0), np.std(rows, axis=0, ddof=min(1, len(rows) - 1))
    if options.json:
        print(json.dumps({"rows": rows, "means": means.tolist(), "spreads": spreads.tolist()}))
        return
    print(_line("mean", means))
    print(_line("spread", spreads))


def _line(name: str, row: list[float]) -> str:
    recall, gain, training, judging = row
    return (
        f"{name:<8} R@20 {recall:.4f}  N@20 {gain:.4f}  fit {training:.0f} s  judge {judging:.0f} s"
    )


if __name__ == "__main__":
    main()
