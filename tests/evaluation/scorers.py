"""Scorers whose every score is known, and splits to rank them on."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import polars as pl

from transcf.data.csr import Csr
from transcf.data.ids import IdMap
from transcf.data.interactions import Interactions
from transcf.data.split import Candidates, Split
from transcf.evaluation.metrics import Ranks
from transcf.evaluation.ranks import Ties, rank, ranking_task
from transcf.retrieval.scorer import LinearForm, Scorer


@dataclass
class TableScorer(Scorer):
    """Scores from a table, (n_users, n_items)."""

    table: np.ndarray
    rankable: np.ndarray
    name: str = "table"
    block_sizes: list[int] = field(default_factory=list)

    def _score_block(self, users: np.ndarray) -> np.ndarray:
        self.block_sizes.append(len(users))
        return self.table[users].astype(np.float32)

    def _score_pairs(self, users: np.ndarray, items: np.ndarray) -> np.ndarray:
        return self.table[users, items].astype(np.float32)


@dataclass
class ProductScorer(Scorer):
    """Scores as inner products."""

    form: LinearForm
    rankable: np.ndarray
    name: str = "product"

    def linear_form(self) -> LinearForm:
        return self.form


def random_split(seed: int, n_users: int = 12, n_items: int = 30, density: float = 0.4) -> Split:
    """A split with one to several held-out items per user; some users and items are cold."""
    rng = np.random.default_rng(seed)
    part = rng.choice(
        4, size=(n_users, n_items), p=[1 - density, density * 0.6] + [density * 0.2] * 2
    )
    part[0, 0] = 1  # never empty
    part[1, 1] = 3
    part[1, 0] = 1
    part[2, 1] = 1
    users, items = np.nonzero(part)
    log = Interactions.from_rows(
        IdMap(pl.Series(range(n_users))),
        IdMap(pl.Series(range(n_items))),
        users.astype(np.int32),
        items.astype(np.int32),
    )
    kind = part[log.user_rows, log.item_rows]
    return Split(log.select(kind == 1), log.select(kind == 2), log.select(kind == 3))


def held_out_ranks(
    scorer: Scorer,
    held_out: Interactions,
    known: Csr,
    ties: Ties,
    *,
    candidates: Candidates | None = None,
    trained: np.ndarray | None = None,
    list_length: int = 0,
) -> Ranks:
    """Rank held-out items; without `trained`, `known` are the training items."""
    trained = known.counts > 0 if trained is None else trained
    task = ranking_task(held_out.by_user, known, scorer.rankable, trained, candidates)
    return rank(scorer, task, ties, list_length)
