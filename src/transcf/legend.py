"""What the names of figures mean, in one place: `--help` and the lines under tables read it.

Imports nothing, since `transcf evaluate --help` answers at once.
"""

from __future__ import annotations

from collections.abc import Iterable

#: By the part of a name before the @: in the order of tables.
MEANINGS = {
    "H": "hit rate, the share of users with a held-out item among the first N of their list",
    "N": "NDCG, 1 if the held-out items come first, less the further down they are, 0 beyond N",
    "MRR": "1 divided by the place of the first held-out item, 0 beyond N",
    "R": "recall, the share of a user's held-out items among the first N",
    "P": "precision, the share of the first N that are held-out items",
    "MAP": "mean average precision of the first N",
    "novelty": "bits of surprise, -log2 of the share of users who have an item, mean of the first "
    "N",
    "ILD": "intra-list diversity, how seldom the first N are found with the same users: 1 minus "
    "the cosine, mean of all pairs",
    "AUC": "share of the other candidates that come after a held-out item, equal scores half",
    "coverage": "share of the items that is among anybody's first N",
    "popularity": "mean training events of the first N",
    "gini": "how unevenly items are recommended among the first N, 0 evenly, towards 1 always the "
    "same few",
}
#: Of the figures that come in pairs.
ERROR = "± standard error over users: another sample of users would move the mean by about so much"
SPREAD = "± spread (standard deviation) of the seeds' means"


def legend(names: Iterable[str], *more: str) -> str:
    """Explain the metrics of a table in one line, each kind once.

    Args:
        names: Metrics, such as "N@10" or "AUC".
        more: What else is in the table.

    Example:
        >>> legend(["P@5", "P@10", "AUC"], "* the best")[:60]
        'P@N: precision, the share of the first N that are held-out i'
    """
    kinds = dict.fromkeys(name.partition("@")[::2] for name in names)
    texts = {kind: f"{kind}{'@N' if n else ''}: {MEANINGS[kind]}" for kind, n in kinds}
    return "; ".join([*texts.values(), *more]) + "."
