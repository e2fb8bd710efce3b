"""Every model with its default parameters on six datasets, with the same method of other libraries.

    python benchmarks/defaults.py [--models NAME ...] [--datasets NAME ...] [--limit SECONDS]
                                  [--show] [--json]

The log is split by `leave_one_out`: the newest event of each user is the test, the one before it
validation; at random where a log has no times. A model is fitted as in the README and by
`transcf compare`: `fit(split.train, split.validation)` chooses the epoch and nothing else, and
`refit(split.before_test)` learns from both parts. Other libraries are fitted on both parts with
their own defaults. All are judged by full ranking among the items that a user has not touched
(protocol `leave-last-out`), on the same users. Seconds are those of both fits.

Each figure is stored when it is known (`docs/results/defaults.json`), and a second run computes
what is missing; `--again` replaces what is stored. A fit that takes longer than `--limit` seconds
is stored as not finished. `--show` prints what is stored and computes nothing.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from transcf import available, create, evaluate, leave_one_out, open_data
from transcf.data.atomic import atomic_write
from transcf.data.split import Split
from transcf.errors import TransCFError
from transcf.retrieval.scorer import BlockView, FormView, Scorer, StoredForm

Cell = dict[str, Any]

FILE = Path(__file__).parents[1] / "docs" / "results" / "defaults.json"
DATASETS = ("delicious", "ciao", "ml-latest-small", "movietweetings", "beauty", "amazon")
#: The model that each peer is compared with.
PEERS = {
    "implicit-cosine": "itemknn",
    "implicit-bm25": "itemknn",
    "implicit-als": "ials",
    "implicit-bpr": "bpr",
}
#: Models that are below popularity on purpose, or popularity itself.
FLOORS = ("popularity", "recent-popularity", "inverse-popularity", "random")


def peer(name: str, split: Split) -> Scorer:
    """Fit a model of implicit with its defaults."""
    from implicit.als import AlternatingLeastSquares
    from implicit.bpr import BayesianPersonalizedRanking
    from implicit.nearest_neighbours import BM25Recommender, CosineRecommender

    kinds: dict[str, Callable[..., Any]] = {
        "implicit-cosine": CosineRecommender,
        "implicit-bm25": BM25Recommender,
        "implicit-als": AlternatingLeastSquares,
        "implicit-bpr": BayesianPersonalizedRanking,
    }
    seed = {"random_state": 0} if name in ("implicit-als", "implicit-bpr") else {}
    model = kinds[name](**seed, num_threads=1)
    users = sp.csr_matrix(split.before_test.by_user.to_scipy(np.float32), copy=True)
    model.fit(users, show_progress=False)
    rankable = split.before_test.by_item.counts > 0
    if hasattr(model, "similarity"):
        weights = sp.csr_matrix(model.similarity)
        return BlockView(name, rankable, lambda rows: (users[rows] @ weights).toarray())
    factors = [np.ascontiguousarray(side) for side in (model.user_factors, model.item_factors)]
    return FormView(name, rankable, StoredForm(*factors, np.zeros(len(factors[0]), np.float32)))


def cell(name: str, dataset: str) -> Cell:
    """Fit and judge one model on one dataset."""
    split = leave_one_out(open_data(dataset))
    started = time.perf_counter()
    if name in PEERS:
        model: Any = peer(name, split)
    else:
        try:
            model = create(name).fit(split.train, split.validation).refit(split.before_test)
        except TransCFError as error:
            return {"not_run": str(error)}
    seconds = time.perf_counter() - started
    found = evaluate(model, split, "leave-last-out", k=10)
    best = getattr(model, "best_epoch_", None)
    return {
        "NDCG@10": round(found.metrics["NDCG@10"].mean, 5),
        "HitRate@10": round(found.metrics["HitRate@10"].mean, 5),
        "seconds": round(seconds, 1),
        "users": len(found.per_user),
        **({} if best is None else {"best_epoch": best}),
    }


def in_process(name: str, dataset: str, limit: float) -> Cell:
    """Compute a cell in a process of its own, which is stopped at the limit."""
    words = [sys.executable, __file__, "--cell", name, dataset]
    try:
        done = subprocess.run(words, stdout=subprocess.PIPE, timeout=limit, check=True, text=True)
    except subprocess.TimeoutExpired:
        return {"not_run": f"not finished after {limit:g} s"}
    except subprocess.CalledProcessError as error:
        return {"not_run": f"ended with code {error.returncode}"}
    found: Cell = json.loads(done.stdout.splitlines()[-1])
    return found


def stored() -> dict[str, dict[str, Cell]]:
    """Return the stored cells: by dataset, then by model."""
    return json.loads(FILE.read_text()) if FILE.exists() else {}


def table(found: dict[str, dict[str, Cell]], datasets: list[str], models: list[str]) -> str:
    """Write the cells as Markdown: NDCG@10 / HitRate@10 (seconds)."""
    lines = [
        f"| model | {' | '.join(datasets)} |",
        f"|---|{'---:|' * len(datasets)}",
    ]
    for name in models:
        cells = []
        for dataset in datasets:
            here = found.get(dataset, {})
            floor = here.get("popularity", {}).get("NDCG@10", 0.0)
            cells.append(_shown(here.get(name), 0.0 if name in FLOORS else floor))
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _shown(entry: Cell | None, floor: float) -> str:
    if entry is None:
        return ""
    if "not_run" in entry:
        return "not run"
    mark = " **below popularity**" if entry["NDCG@10"] < floor else ""
    return f"{entry['NDCG@10']:.4f} / {entry['HitRate@10']:.4f} ({entry['seconds']:.0f} s){mark}"


def rows(models: list[str]) -> list[str]:
    """Return models and their peers in the order of the table."""
    found = []
    for name in models:
        found += [name, *(other for other, method in PEERS.items() if method == name)]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--models", nargs="+", default=rows(list(available())), metavar="NAME")
    parser.add_argument("--datasets", nargs="+", default=list(DATASETS), metavar="NAME")
    parser.add_argument("--limit", type=float, default=600, help="seconds for a cell")
    parser.add_argument("--again", action="store_true", help="replace what is stored")
    parser.add_argument("--show", action="store_true", help="print what is stored")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--cell", nargs=2, metavar=("NAME", "DATASET"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.cell:
        print(json.dumps(cell(*options.cell)))
        return
    for dataset in () if options.show else options.datasets:
        for name in options.models:
            if options.again or name not in stored().get(dataset, {}):
                entry = in_process(name, dataset, options.limit)
                print(dataset, name, entry, file=sys.stderr, flush=True)
                found = stored()
                found.setdefault(dataset, {})[name] = entry
                with atomic_write(FILE) as file:
                    file.write_text(json.dumps(found, indent=1) + "\n")
    if options.json:
        print(json.dumps(stored(), indent=1))
    else:
        print(table(stored(), options.datasets, options.models))


if __name__ == "__main__":
    main()
