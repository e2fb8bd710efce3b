"""What epochs and settings are chosen by: one number from held-out interactions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from transcf.data.csr import Csr
from transcf.data.interactions import Interactions
from transcf.data.split import Candidates, Split
from transcf.errors import EvaluationError
from transcf.evaluation.metrics import compute
from transcf.evaluation.protocols import Protocol, check_protocol
from transcf.evaluation.ranks import Ties, candidate_ranks, full_ranks
from transcf.retrieval.scorer import Scorer


@dataclass(frozen=True, eq=False)
class Validation:
    """Judges a scorer by one metric on held-out interactions; higher is better.

    Attributes:
        targets: Held-out interactions.
        known: Training items of each user.
        candidates: Rank against these, or None for full ranking.
        metric: Which metric, such as "N@10".
        ties: How equal scores count.

    Example:
        >>> model.fit(split.train, Validation.of(split, "paper"))  # doctest: +SKIP
    """

    targets: Interactions
    known: Csr
    candidates: Candidates | None = None
    metric: str = "N@10"
    ties: Ties = "pessimistic"

    @classmethod
    def of(cls, split: Split, protocol: Protocol = "strict", metric: str | None = None) -> Self:
        """Make the validation that belongs to a protocol.

        `strict` takes N@10 in full ranking; the paper's protocols take H@10 against the stored
        candidates, as the paper does.
        """
        check_protocol(protocol)
        if protocol == "strict":
            return cls(split.validation, split.train.by_user, metric=metric or "N@10")
        if split.candidates is None:
            raise EvaluationError(
                f"The protocol {protocol!r} needs stored candidates: draw them with "
                "draw_candidates(split)."
            )
        return cls(split.validation, split.train.by_user, split.candidates, metric=metric or "H@10")

    def __call__(self, scorer: Scorer) -> float:
        """Return the mean of the metric over users."""
        if self.candidates is None:
            ranking = full_ranks(scorer, self.targets, self.known, self.ties)
        else:
            ranking = candidate_ranks(scorer, self.targets, self.candidates, self.known, self.ties)
        return float(compute(ranking.ranks, self.metric).mean())


def as_validation(train: Interactions, validation: Interactions | Validation) -> Validation:
    """Turn plain held-out interactions into full ranking by N@10."""
    if isinstance(validation, Validation):
        return validation
    if validation.users != train.users or validation.items != train.items:
        raise EvaluationError(
            "The validation interactions speak of other users or items than the training ones: "
            "take both from one split."
        )
    return Validation(validation, train.by_user)
