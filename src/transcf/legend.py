"""What the names of metrics mean, in one place: the notes below tables read it."""

from __future__ import annotations

from collections.abc import Iterable

#: By the part of a metric name before the @, in the order of tables.
MEANINGS = {
    "HitRate": "share of users with a held-out item in the first N of their list",
    "NDCG": "1 if the held-out items come first, less further down, 0 beyond N",
    "MRR": "1 / place of the first held-out item, 0 beyond N",
    "Recall": "share of a user's held-out items in the first N",
    "Precision": "held-out items in the first N, divided by N",
    "MAP": "mean average precision of the first N",
    "novelty": "mean of -log2(share of users who have the item) over the first N, in bits",
    "ILD": "intra-list diversity, mean of 1 - cosine over the pairs of the first N",
    "AUC": "share of the other candidates that come after a held-out item, equal scores half",
    "coverage": "share of the items that are in the first N of any user",
    "popularity": "mean training events of the first N",
    "gini": "0 if all items are recommended equally often, towards 1 if always the same few",
    "future": "share of the first N that did not exist yet when the held-out event happened",
}
#: Metrics without an N.
_WITHOUT_LENGTH = ("AUC",)
#: Meaning of the ± behind a value.
ERROR = "± = standard error over users, what another sample of users would change"


def legend(names: Iterable[str], *more: str) -> str:
    """Explain the metrics of a table in one line, each once.

    Args:
        names: Metrics, such as "NDCG@10" or "AUC".
        more: Further explanations.

    Example:
        >>> legend(["MAP@5", "MAP@10"], "* = the best")
        'MAP@N = mean average precision of the first N; * = the best.'
    """
    kinds = dict.fromkeys(name.partition("@")[0] for name in names)
    return "; ".join([*(f"{_title(kind)} = {MEANINGS[kind]}" for kind in kinds), *more]) + "."


def _title(kind: str) -> str:
    return kind if kind in _WITHOUT_LENGTH else f"{kind}@N"
