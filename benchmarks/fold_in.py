"""People folded in from their history, against the same people trained normally.

MovieTweetings by default (5-core, newest event of each user held out). In each of five rounds a
fifth of the users is left out of training and then known by their training history alone; the
figure is NDCG@10 in full ranking over all users, each folded in once. "recommend_for" leaves
the model as it is; "partial_fit" also renews the neighbourhoods of items. Then, in as many rounds,
a tenth of the items is left out of training and added by "partial_fit".

Run: python benchmarks/fold_in.py [--data NAME] [--model transcf-mixture] [--rounds N] [--json]
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace

import numpy as np

from _turns import use_one_thread
from transcf import EventWeights, Split, k_core, leave_one_out, open_data
from transcf.data.csr import Histories
from transcf.data.ids import Rows
from transcf.data.interactions import Interactions
from transcf.evaluation.metrics import compute
from transcf.evaluation.ranks import rank, ranking_task
from transcf.models.registry import create
from transcf.models.transcf.fitted import Translated
from transcf.retrieval.scorer import Scorer

FIFTHS, TENTHS, BAR, METRIC = 5, 10, 0.9, "NDCG@10"


def open_split(data: str) -> Split:
    return leave_one_out(k_core(open_data(data), 5, 5), "time")


class Guests:
    """The scorer of a batch of guests, under the rows that they have in the split."""

    def __init__(self, learned: Translated, train: Interactions, users: Rows, steps: int) -> None:
        """Fold everybody in."""
        self.name, self.rankable = learned.name, learned.rankable
        histories = Histories.of([train.histories[user] for user in users], train.n_items)
        self._scorer = learned.fold_in_with_sgd(histories, steps)
        self._place = np.zeros(train.n_users, dtype=np.int32)
        self._place[users] = np.arange(len(users), dtype=np.int32)

    def linear_form(self) -> None:
        """Scores come in blocks."""

    def _score_block(self, users: Rows) -> np.ndarray:
        """Score all items: (n, n_items)."""
        return self._scorer.scores(self._place[users])

    def _score_pairs(self, users: Rows, items: Rows) -> np.ndarray:
        """Score pairs: (n,)."""
        return self._scorer.scores(self._place[users], items)


def figures(scorer: Scorer, split: Split, chosen: np.ndarray) -> np.ndarray:
    """NDCG@10 of the chosen users; 0 where the held-out item is unknown to the model."""
    held_out = split.test.select(chosen[split.test.user_rows])
    known = split.known_items("test")
    task = ranking_task(held_out.by_user, known, scorer.rankable, known.counts > 0)
    ranks = rank(scorer, task, "pessimistic")
    result = np.zeros(len(chosen))
    result[ranks.users] = compute(ranks, METRIC)
    return result[chosen]


def measure(split: Split, rounds: int, name: str) -> list[dict[str, object]]:
    train = split.train
    normal = create(name).fit(train)
    part = np.random.default_rng(0).permutation(train.n_users) % FIFTHS
    names = (
        "trained normally",
        "recommend_for, without order",
        "recommend_for",
        "recommend_for, 10 steps",
        "partial_fit",
    )
    found: dict[str, list[np.ndarray]] = {case: [] for case in names}
    for number in range(rounds):
        out = part == number
        rest = train.select(~out[train.user_rows])
        users = np.flatnonzero(out).astype(np.int32)
        model = create(name).fit(rest)
        learned = model.learned_
        found[names[0]].append(figures(normal, split, out))
        found[names[2]].append(figures(Guests(learned, train, users, 0), split, out))
        if isinstance(learned, Translated):  # the mixture has no steps, and its order is its own
            settings = replace(model.settings, event_weights=EventWeights())
            flat = Translated(learned.known, settings, learned.users, learned.items, learned.bias)
            found[names[1]].append(figures(Guests(flat, train, users, 0), split, out))
            found[names[3]].append(figures(Guests(learned, train, users, 10), split, out))
        model.partial_fit(train.select(out[train.user_rows]))
        found[names[4]].append(figures(model, split, out))
    means = {name: float(np.concatenate(values).mean()) for name, values in found.items() if values}
    base = means[names[0]]
    return [
        {"case": name, METRIC: round(mean, 4), "share": round(mean / base, 3)}
        for name, mean in means.items()
    ]


def measure_items(split: Split, rounds: int, name: str) -> list[dict[str, object]]:
    train = split.train
    normal = create(name).fit(train)
    part = np.random.default_rng(1).permutation(train.n_items) % TENTHS
    held_out = np.full(train.n_users, -1)
    held_out[split.test.user_rows] = split.test.item_rows
    wanted = {"held-out item is new": True, "held-out item is old": False}
    found: dict[str, list[tuple[np.ndarray, np.ndarray]]] = {name: [] for name in wanted}
    for number in range(rounds):
        new = part == number
        model = create(name).fit(train.select(~new[train.item_rows]))
        model.partial_fit(train.select(new[train.item_rows]))
        for case, is_new in wanted.items():
            users = np.isin(held_out, np.flatnonzero(new)) == is_new
            found[case].append((figures(normal, split, users), figures(model, split, users)))
    cases = []
    for name, pairs in found.items():
        base, grown = (float(np.concatenate(side).mean()) for side in zip(*pairs, strict=True))
        case = f"partial_fit, {name}"
        cases.append({"case": case, METRIC: round(grown, 4), "share": round(grown / base, 3)})
    return cases


def main() -> None:
    use_one_thread()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=FIFTHS, choices=range(1, FIFTHS + 1))
    parser.add_argument("--data", default="movietweetings", help="any data with timestamps")
    parser.add_argument("--model", default="transcf-mixture")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    split, asked = open_split(options.data), (options.rounds, options.model)
    cases = measure(split, *asked) + measure_items(split, *asked)
    if options.json:
        print(json.dumps(cases, indent=2))
        return
    for case in cases:
        print(f"{case['case']:<34} {METRIC} {case[METRIC]:.4f}   share {case['share']:.3f}")
    print(f"share: of the figure when trained normally; the aim is {BAR}")


if __name__ == "__main__":
    main()
