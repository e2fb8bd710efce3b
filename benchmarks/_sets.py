"""Data that several benchmarks run on, as sparse matrices and as interactions."""

from __future__ import annotations

import numpy as np
import polars as pl
import scipy.sparse as sp

from transcf.data.datasets import load_split
from transcf.data.ids import IdMap
from transcf.data.interactions import Interactions


def ciao() -> sp.csr_matrix:
    """The authors' training part."""
    # A copy: implicit wants arrays that it could write to.
    return sp.csr_matrix(load_split("ciao").train.by_user.to_scipy(np.float32), copy=True)


def long_tail(n_users: int, n_items: int, nnz: int) -> sp.csr_matrix:
    """Random interactions: popular items by a power law, active users by a log-normal."""
    generator = np.random.default_rng(0)
    popularity = np.arange(1, n_items + 1) ** -0.8
    activity = generator.lognormal(0, 0.6, n_users)
    drawn = np.empty(0, np.int64)
    while len(drawn) < nnz:
        users = generator.choice(n_users, nnz, p=activity / activity.sum())
        items = generator.choice(n_items, nnz, p=popularity / popularity.sum())
        drawn = np.union1d(drawn, users * n_items + items)
    kept = generator.choice(drawn, nnz, replace=False)
    shape = (n_users, n_items)
    return sp.csr_matrix((np.ones(nnz, np.float32), (kept // n_items, kept % n_items)), shape=shape)


def interactions(data: sp.csr_matrix) -> Interactions:
    """The same matrix as a log, rows and columns numbered."""
    users, items = (IdMap.encode(pl.Series(np.arange(n)))[0] for n in data.shape)
    pairs = data.tocoo()
    return Interactions.from_rows(
        users, items, pairs.row.astype(np.int32), pairs.col.astype(np.int32)
    )
