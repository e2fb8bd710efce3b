"""`Validation`: the metric that early stopping and tuning maximize."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from copy import copy
from typing import Self, get_args

import numpy as np

from transcf.data.csr import Csr
from transcf.data.interactions import Interactions, Mask
from transcf.data.partitioned import PartitionedLog
from transcf.data.split import Candidates, Split
from transcf.errors import EvaluationError, ParameterError, check_word, shown
from transcf.evaluation.evaluator import stored_candidates
from transcf.evaluation.metrics import Floats, check_metric, compute
from transcf.evaluation.ranks import Task, Ties, rank, ranking_task
from transcf.protocols import protocol_named
from transcf.retrieval.scorer import Scorer


class Validation:
    """Mean of one metric over the users with held-out interactions.

    Args:
        targets: Held-out interactions.
        known: Training items of each user row.
        candidates: Stored candidates for sampled ranking; None for full ranking.
        metric: Which mean over users to return, such as "NDCG@10" or "HitRate@10".
        ties: How to count equal scores.
        users: Size of a fixed random sample of the users; None uses all users.

    Example:
        >>> from transcf import EASE, Popularity, open_split
        >>> split = open_split("synthetic")
        >>> judge = Validation(split.validation, known=split.train.by_user)
        >>> judge(EASE().fit(split.train)) > judge(Popularity().fit(split.train))
        True
    """

    def __init__(
        self,
        targets: Interactions,
        *,
        known: Csr,
        candidates: Candidates | None = None,
        metric: str = "NDCG@10",
        ties: Ties = "pessimistic",
        users: int | None = None,
    ) -> None:
        check_metric(metric)
        check_word("ties", ties, get_args(Ties))
        self.metric = metric
        self.ties: Ties = ties
        self._held_out = targets.by_user
        self._known = known
        self._candidates = candidates
        self._users = users
        self._made: tuple[Mask, Task] | None = None
        #: Called before each evaluation; what it raises ends the fit that validates.
        self.check: Callable[[], None] | None = None

    @classmethod
    def of(
        cls,
        split: Split,
        protocol: str | None = None,
        ties: Ties = "pessimistic",
        k: Sequence[int] = (10,),
        metric: str | None = None,
    ) -> Self:
        """Validate as a protocol does: NDCG@10 in full ranking, HitRate@10 with candidates.

        The default protocol is full ranking. If 10 is not in `k`, the first value of `k` is used;
        `metric` overrides both.
        """
        if not isinstance(split, Split):
            raise ParameterError(
                f"{shown(split)} is not a split: make one of a log, as by transcf.open_split or "
                "transcf.temporal_cut."
            )
        sampled = protocol is not None and protocol_named(protocol).sampled
        return cls(
            split.validation,
            known=split.train.by_user,
            candidates=stored_candidates(split, str(protocol)) if sampled else None,
            metric=metric or validation_metric(protocol, k),
            ties=ties,
        )

    def sampled(self, users: int | None) -> Self:
        """Return a validation on a sample of users, to compare epochs.

        Epochs are compared on the same users, so a thousand users suffice. Sampled candidates
        are cheap to rank, so all users are kept; an existing sample is kept, too.
        """
        if self._candidates is not None or self._users is not None or users is None:
            return self
        fewer = copy(self)
        fewer._users, fewer._made = users, None
        return fewer

    @property
    def fingerprint(self) -> str:
        """Metric, ties, users, targets, training items and candidates in one string."""
        digest = hashlib.sha256(f"{self.metric} {self.ties} {self._users}".encode())
        for rows in (self._held_out, self._known):
            digest.update(rows.indptr.tobytes())
            digest.update(rows.indices.tobytes())
        if self._candidates is not None:
            digest.update(self._candidates.indptr.tobytes())
            digest.update(self._candidates.items.tobytes())
        return digest.hexdigest()

    def __call__(self, scorer: Scorer) -> float:
        """Return the mean of the metric over the users that can be evaluated."""
        return float(self.per_user(scorer).mean())

    def per_user(self, scorer: Scorer) -> Floats:
        """Return the metric of each user that can be evaluated: (n_users,)."""
        if self.check is not None:
            self.check()
        ranks = rank(scorer, self._task_for(scorer.rankable), self.ties)
        return compute(ranks, self.metric)

    def _task_for(self, rankable: Mask) -> Task:
        """Return the ranking task, cached while the same items can be ranked."""
        if self._made is None or not np.array_equal(self._made[0], rankable):
            known, trained = self._known, self._known.counts > 0
            task = ranking_task(self._held_out, known, rankable, trained, self._candidates)
            if self._users is not None:
                task = task.of_sample(self._users)
            self._made = (rankable.copy(), task)
        return self._made[1]


def validation_metric(protocol: str | None, k: Sequence[int] = (10,)) -> str:
    """Return the metric by which a protocol chooses epochs and settings; None is full ranking."""
    sampled = protocol is not None and protocol_named(protocol).sampled
    return f"{'HitRate' if sampled else 'NDCG'}@{10 if 10 in k else k[0]}"


def as_validation(
    train: Interactions | PartitionedLog, validation: Interactions | PartitionedLog | Validation
) -> Validation:
    """Turn held-out interactions into a full-ranking `Validation`; a `Validation` stays as it is.

    Interactions with other ids are an `EvaluationError`.
    """
    if isinstance(validation, Validation):
        return validation
    if isinstance(validation, PartitionedLog):
        validation = validation.read()
    if validation.users != train.users or validation.items != train.items:
        raise EvaluationError(
            "Validation interactions have other users or items than the training data: take both "
            "from one split."
        )
    return Validation(validation, known=train.by_user)
