"""Other libraries, timed by their own callbacks, iteration by iteration."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median

import scipy.sparse as sp
from implicit.als import AlternatingLeastSquares
from implicit.bpr import BayesianPersonalizedRanking

#: Returns seconds for one unit of work.
Timed = Callable[[], float]


def implicit_bpr(data: sp.csr_matrix, dim: int, iterations: int) -> Timed:
    """Seconds per sample; an iteration draws as many as there are interactions."""
    peer = BayesianPersonalizedRanking(
        factors=dim, iterations=iterations, num_threads=1, random_state=0
    )
    return lambda: _per_iteration(peer, data) / data.nnz


def implicit_als(data: sp.csr_matrix, dim: int, iterations: int) -> Timed:
    """Seconds per iteration with conjugate gradient."""
    peer = AlternatingLeastSquares(
        factors=dim, iterations=iterations, num_threads=1, random_state=0, use_cg=True
    )
    return lambda: _per_iteration(peer, data)


def _per_iteration(
    peer: BayesianPersonalizedRanking | AlternatingLeastSquares, data: sp.csr_matrix
) -> float:
    seconds: list[float] = []
    # A second fit would go on from the vectors of the first.
    peer.user_factors = peer.item_factors = None
    peer.fit(data, show_progress=False, callback=lambda _, took, *rest: seconds.append(took))
    return median(seconds[1:])
