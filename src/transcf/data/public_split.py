"""Gowalla as graph recommenders are compared on it: a file of lists for train, one for test."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl

from transcf.data.interactions import Interactions, Mask
from transcf.data.parsers import find_file, item_lists, parse_gowalla, require_file
from transcf.data.seeds import check_seed
from transcf.data.split import Recipe, Split

#: The dataset that comes so, and its folder.
PUBLIC = "gowalla"
#: Share of the training events that validation holds out: there is no such part.
_VALIDATION = 0.1


def is_public_split(folder: Path) -> bool:
    """Whether a folder, which has to be called gowalla, holds the two files."""
    files = (find_file(folder, f"{part}.txt") for part in ("train", "test"))
    return folder.name == PUBLIC and None not in files


def read_public_split(folder: Path, *, seed: int = 0) -> Split:
    """Read the public parts; some of the training events, drawn at random, are for validation.

    Args:
        folder: Where the files are.
        seed: Of the draw, which depends on ids only.
    """
    from transcf.kernels.splitting import event_keys

    log = parse_gowalla(folder)
    is_test = _is_in(log, require_file(folder, "test.txt"))
    keys = event_keys(log.by_user.indptr, log.item_rows, check_seed(seed), 0)
    order = np.argsort(keys, kind="stable")
    order = order[~is_test[order]]
    is_validation = np.zeros(len(log), np.bool_)
    is_validation[order[: round(_VALIDATION * len(order))]] = True
    recipe: Recipe = {
        "rule": "public split",
        "seed": seed,
        "how": f"the public test part for test, {100 * _VALIDATION:g} % of the public training "
        f"part at random for validation, seed {seed}",
    }
    return Split(
        train=log.select(~is_test & ~is_validation),
        validation=log.select(is_validation),
        test=log.select(is_test),
        recipe=recipe,
        report=log.report,
    )


def _is_in(log: Interactions, path: Path) -> Mask:
    """Which events of a log a file lists: (n_events,)."""
    pairs = item_lists(path).cast(pl.Int64)
    users, items = log.users.rows(pairs["user"]), log.items.rows(pairs["item"])
    wide = np.int64(log.n_items)
    return np.isin(log.user_rows * wide + log.item_rows, users * wide + items)
