"""Is one model better than another, or was it luck with the users?"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import polars as pl
from scipy import stats

from transcf.errors import EvaluationError
from transcf.evaluation.results import Evaluation, check_same_users

Floats: TypeAlias = npt.NDArray[np.float64]

#: Bootstrap samples drawn at once: bounds the memory.
_AT_ONCE = 200


def compare(
    results: Sequence[Evaluation], metric: str = "N@10", *, samples: int = 10_000, seed: int = 0
) -> pl.DataFrame:
    """Test every pair of models on the same users.

    Args:
        results: Two or more evaluations of the same users by the same protocol.
        metric: What to compare.
        samples: Bootstrap samples.
        seed: Seed of the bootstrap.

    Returns:
        Table `model_a, model_b, mean_a, mean_b, difference, low, high, p_bootstrap, p_wilcoxon,
        p_holm`: the difference of means with its 95 % bootstrap interval, two-sided p-values of
        the paired bootstrap and of the Wilcoxon signed-rank test, and the latter after Holm's
        correction for the number of pairs.

    Example:
        >>> compare([evaluate(a, split), evaluate(b, split)])  # doctest: +SKIP
    """
    if len(results) < 2:
        raise EvaluationError("A comparison needs at least two evaluations.")
    check_same_users(results)
    if metric not in results[0].metrics:
        known = ", ".join(results[0].metrics)
        raise EvaluationError(f"The evaluations have no metric {metric!r}; they have: {known}.")
    rows: list[dict[str, Any]] = []
    for a, b in combinations(results, 2):
        of_a, of_b = a.per_user[metric].to_numpy(), b.per_user[metric].to_numpy()
        difference = of_a - of_b
        low, high, p_bootstrap = paired_bootstrap(difference, samples, seed)
        rows.append(
            {
                "model_a": a.model,
                "model_b": b.model,
                "mean_a": of_a.mean(),
                "mean_b": of_b.mean(),
                "difference": difference.mean(),
                "low": low,
                "high": high,
                "p_bootstrap": p_bootstrap,
                "p_wilcoxon": _wilcoxon(difference),
            }
        )
    table = pl.DataFrame(rows)
    return table.with_columns(p_holm=pl.Series(holm(table["p_wilcoxon"].to_numpy())))


def paired_bootstrap(difference: Floats, samples: int, seed: int) -> tuple[float, float, float]:
    """Resample users; return the 95 % interval of the mean difference and a two-sided p-value.

    The p-value is twice the share of resampled means on the other side of zero (at least one
    sample is counted there: a bootstrap cannot show a probability of 0).
    """
    generator = np.random.default_rng(seed)
    n = len(difference)
    means = np.empty(samples)
    for start in range(0, samples, _AT_ONCE):
        drawn = generator.integers(n, size=(min(_AT_ONCE, samples - start), n))
        means[start : start + len(drawn)] = difference[drawn].mean(axis=1)
    low, high = np.quantile(means, (0.025, 0.975))
    across = min(np.count_nonzero(means <= 0), np.count_nonzero(means >= 0))
    return float(low), float(high), min(1.0, 2 * (across + 1) / (samples + 1))


def holm(p_values: Floats) -> Floats:
    """Return p-values corrected for their number by Holm's step-down rule.

    Example:
        >>> holm(np.array([0.01, 0.04, 0.03])).tolist()
        [0.03, 0.06, 0.06]
    """
    order = np.argsort(p_values)
    factors = len(p_values) - np.arange(len(p_values))
    stepped = np.minimum(1.0, np.maximum.accumulate(p_values[order] * factors))
    corrected = np.empty_like(p_values)
    corrected[order] = stepped
    return corrected


def _wilcoxon(difference: Floats) -> float:
    """Two-sided p-value; 1 where no user differs."""
    if not difference.any():
        return 1.0
    return float(stats.wilcoxon(difference).pvalue)
