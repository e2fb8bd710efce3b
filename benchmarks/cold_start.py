"""New items that nobody has touched, placed by their categories: do their users find them?

MovieTweetings by default (5-core). In each round a fifth of the items is left out of training with
all events, and then added by `TransCF.add_items`. Everybody ranks the new items alone: AUC is how
often one that they have comes before one that they do not have, H@10 how often one that they have
is among the first ten. "dealt at random" gives the new items the categories of other new items;
"categories alone" needs no model: it ranks by how much of somebody's history is in the categories
of the item.

Run: python benchmarks/cold_start.py [--data NAME] [--rounds N] [--forms FORM ...] [--json]
"""

from __future__ import annotations

import argparse
import copy
import json
from collections.abc import Iterator

import numpy as np
import polars as pl

from _turns import use_one_thread
from transcf import TransCF, k_core, open_data
from transcf.data.interactions import Interactions
from transcf.kernels import Array

FIFTHS, K = 5, 10


def judge(scores: Array, has: Array) -> tuple[Array, Array]:
    """AUC of each user with some of the items, and hits of each pair.

    Args:
        scores: (n_users, n_new).
        has: The same, bool.
    """
    some = has.any(axis=1) & ~has.all(axis=1)
    # Ties are broken at random: nobody has a reason to prefer one of two equal places.
    noise = np.random.default_rng(0).random(scores.shape)
    order = np.lexsort((noise[some], -scores[some]), axis=-1)
    ranks = np.argsort(order, axis=1)
    own, wanted = has[some], has[some].sum(axis=1)
    below = ranks.shape[1] - wanted
    auc = 1 - ((ranks * own).sum(axis=1) - wanted * (wanted - 1) / 2) / (wanted * below)
    return auc, (ranks < K)[own].astype(float)


def by_category(train: Interactions) -> Array:
    """How much of each history is in the categories of each item, (n_users, n_items)."""
    shelves = train.item_categories.to_scipy()
    tastes = train.by_user.to_scipy() @ shelves
    counts = np.maximum(1, shelves.sum(axis=1))
    scores: Array = (tastes @ shelves.T).toarray() / counts[None, :]
    return scores


def scores_of(model: TransCF, table: pl.DataFrame) -> Array:
    """Place the items of a table without events, and score all items for everybody."""
    larger = copy.deepcopy(model).add_items(table)
    return larger.score_block(np.arange(len(larger.users_), dtype=np.int32))


def rounds_of(log: Interactions, rounds: int) -> Iterator[tuple[Interactions, Array]]:
    """Return what is trained on, and which items are new, (n_items,) bool."""
    shelved = log.item_categories.counts > 0
    part = np.random.default_rng(1).permutation(log.n_items) % FIFTHS
    for number in range(rounds):
        new = (part == number) & shelved
        yield log.select(~new[log.item_rows]), new


def measure(log: Interactions, rounds: int, forms: list[str]) -> list[dict[str, object]]:
    found: dict[str, list[tuple[Array, Array]]] = {}
    has = log.by_user.to_scipy().toarray() > 0
    for train, new in rounds_of(log, rounds):
        seen = train.by_user.counts > 0
        table = log.categories
        assert table is not None, "the data has no categories"
        names = log.items.ids(np.flatnonzero(new))
        other = dict(zip(names, names.shuffle(seed=1), strict=True))
        dealt = pl.concat(
            [
                table.filter(~pl.col("item_id").is_in(names.implode())),
                table.filter(pl.col("item_id").is_in(names.implode())).with_columns(
                    pl.col("item_id").replace_strict(other)
                ),
            ]
        )
        cases = {"categories alone": by_category(train)}
        for form in forms:
            model = TransCF(form=form).fit(train)
            cases[f"{form}, placed by category"] = scores_of(model, table)
            cases[f"{form}, dealt at random"] = scores_of(model, dealt)
        for case, scores in cases.items():
            figures = judge(scores[seen][:, new], has[seen][:, new])
            found.setdefault(case, []).append(figures)
    return [
        {
            "case": case,
            "AUC": round(float(np.concatenate([auc for auc, _ in parts]).mean()), 4),
            f"H@{K}": round(float(np.concatenate([hits for _, hits in parts]).mean()), 4),
        }
        for case, parts in found.items()
    ]


def main() -> None:
    use_one_thread()
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", default="movietweetings", help="any data with categories")
    parser.add_argument("--rounds", type=int, default=1, choices=range(1, FIFTHS + 1))
    parser.add_argument("--forms", nargs="+", default=["translation", "mixture"], metavar="FORM")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    log = k_core(open_data(options.data), 5, 5)
    cases = measure(log, options.rounds, options.forms)
    if options.json:
        print(json.dumps(cases, indent=2))
        return
    for case in cases:
        print(f"{case['case']:<34} AUC {case['AUC']:.4f}   H@{K} {case[f'H@{K}']:.4f}")


if __name__ == "__main__":
    main()
