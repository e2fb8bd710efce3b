"""Full-ranking evaluation: memory at Flixster's size, and time against recommending to everybody.

Memory: a scorer that makes dense blocks of scores, as EASE does, for 25,687 items; how far the
peak of the process rises above what it had before. 69,482 users go block by block, so a few
blocks of them show the same peak. Time: a linear form of Ciao's shape, evaluation with lists
against `top_k` of the same users. One thread, in turn, medians.

Run: python benchmarks/evaluate.py [--users N] [--repeats N] [--json]
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys

import numpy as np
import polars as pl

from _turns import in_turn, use_one_thread
from transcf.data.ids import IdMap, Rows
from transcf.data.interactions import Interactions
from transcf.evaluation.ranks import rank, ranking_task
from transcf.retrieval.scorer import BlockView, FormView, Scorer, Scores, StoredForm

MEMORY_BAR_GB, TIME_BAR = 1.0, 1.5
ITEMS, ALL_USERS, SEEN = 25_687, 69_482, 100


def dense_blocks(n_items: int) -> BlockView:
    """Scores out of nowhere, one new array for each call."""

    def score(users: Rows) -> Scores:
        rng = np.random.default_rng(int(users[0]))
        return rng.random((len(users), n_items), dtype=np.float32)

    return BlockView("dense blocks", np.ones(n_items, dtype=bool), score)


def random_vectors(n_users: int, n_items: int, width: int) -> FormView:
    rng = np.random.default_rng(0)
    form = StoredForm(
        rng.standard_normal((n_users, width), dtype=np.float32),
        rng.standard_normal((n_items, width), dtype=np.float32),
        rng.standard_normal(n_users, dtype=np.float32),
    )
    return FormView("random vectors", np.ones(n_items, dtype=bool), form)


def random_log(n_users: int, n_items: int, each: int) -> tuple[Interactions, Interactions]:
    """Seen items and one held-out item for each user."""
    rng = np.random.default_rng(1)
    users = np.repeat(np.arange(n_users, dtype=np.int32), each + 1)
    items = rng.integers(0, n_items, len(users)).astype(np.int32)
    log = Interactions.from_rows(
        IdMap(pl.Series(range(n_users))), IdMap(pl.Series(range(n_items))), users, items
    )
    is_first = np.zeros(len(log), dtype=bool)
    is_first[log.by_user.indptr[:-1]] = True
    return log.select(~is_first), log.select(is_first)


def peak_gb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9


def rank_all(scorer: Scorer, held_out: Interactions, train: Interactions) -> None:
    """Rank held-out items and list the best 20 of each user."""
    known = train.by_user
    task = ranking_task(held_out.by_user, known, scorer.rankable, known.counts > 0)
    rank(scorer, task, "pessimistic", 20)


def memory_worker(n_users: int) -> None:
    """Print how far the peak rises while some users are evaluated."""
    train, held_out = random_log(50, 60, 5)
    rank_all(dense_blocks(60), held_out, train)
    train, held_out = random_log(n_users, ITEMS, SEEN)
    before = peak_gb()
    rank_all(dense_blocks(ITEMS), held_out, train)
    print(json.dumps(peak_gb() - before))


def memory_case(n_users: int) -> dict[str, object]:
    command = [sys.executable, __file__, "--worker", "--users", str(n_users)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    extra = json.loads(done.stdout)
    return {
        "case": f"extra memory, dense blocks, {n_users:,} of {ALL_USERS:,} users x {ITEMS:,} items",
        "ours": round(extra, 3),
        "peer": MEMORY_BAR_GB,
        "unit": "GB",
        "ratio": round(MEMORY_BAR_GB / extra, 2),
    }


def time_case(repeats: int) -> dict[str, object]:
    n_users, n_items = 6760, 11166
    linear = random_vectors(n_users, n_items, 257)
    train, held_out = random_log(n_users, n_items, 20)
    users, known = np.arange(n_users, dtype=np.int32), train.by_user
    found = in_turn(
        {
            "evaluate": lambda: rank_all(linear, held_out, train),
            "recommend": lambda: linear.top_k(users, 10, seen=known),
        },
        repeats,
    )
    return {
        "case": f"full ranking against recommending to all (x {TIME_BAR}), Ciao's shape",
        "ours": round(found["evaluate"], 4),
        "peer": round(found["recommend"], 4),
        "unit": "s",
        "ratio": round(TIME_BAR * found["recommend"] / found["evaluate"], 3),
    }


def main() -> None:
    use_one_thread()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--users", type=int, default=4000)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        memory_worker(options.users)
        return
    cases = [memory_case(options.users), time_case(options.repeats)]
    if options.json:
        print(json.dumps(cases, indent=2))
        return
    for one in cases:
        print(f"{one['case']:<75} ours {one['ours']} {one['unit']}  peer {one['peer']}", end="  ")
        print(f"ratio {one['ratio']}")
    print("ratio: bar / ours (for time 1.5 x recommending / ours), above 1 is better")


if __name__ == "__main__":
    main()
