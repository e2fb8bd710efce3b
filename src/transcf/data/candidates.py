"""Candidates for sampled protocols: drawn once, stored with the split."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from transcf.data.split import Candidates, Split
from transcf.data.validate import check_seed
from transcf.errors import ParameterError, shown


def draw_candidates(split: Split, n: int = 99, seed: int = 0) -> Split:
    """Draw items that each user's held-out item is ranked against.

    They are drawn once for each user with a held-out event, without repeats, from the items
    with training interactions that the user never touched in any part. The draw depends on the
    seed and on ids only. Users for whom fewer than `n` items are left get all of them, and the
    report counts them.

    Args:
        split: Any split.
        n: Candidates for each user.
        seed: Seed of the draw.

    Example:
        >>> from transcf import leave_one_out, synthesize
        >>> draw_candidates(leave_one_out(synthesize()), n=99).candidates.of(0).shape
        (99,)
    """
    from transcf.kernels.splitting import draw_unseen

    if isinstance(n, bool) or not isinstance(n, int) or not 1 <= n < 2**63:
        raise ParameterError(f"n={shown(n)} is not allowed; it must be an integer of at least 1.")
    held_out = (split.validation.by_user.counts + split.test.by_user.counts) > 0
    pool = np.unique(split.train.item_rows)
    touched = split.touched_items()
    lengths, items = draw_unseen(
        np.flatnonzero(held_out).astype(np.int32),
        touched.indptr,
        touched.indices,
        pool,
        split.train.n_items,
        n,
        check_seed(seed),
    )
    indptr = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(lengths)])
    report = split.report.then(
        "draw candidates",
        users=int(held_out.sum()),
        candidates=len(items),
        users_with_fewer=int((held_out & (lengths < n)).sum()),
    )
    recipe = {**split.recipe, "candidates": n, "candidates_seed": seed}
    candidates = Candidates(indptr, items, f"{n} drawn, seed {seed}")
    return replace(split, candidates=candidates, recipe=recipe, report=report)
