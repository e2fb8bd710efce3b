"""`evaluate`: one model, one split, one protocol.

`transcf.protocols.PROTOCOLS` defines the protocols; concepts/protocols.md explains them. In those
without refit, validation items count as seen at test time. For `paper-as-published`,
`EpochRecorder` collects the epochs; without one the model as given is the only epoch.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import polars as pl

from transcf.data.csr import Csr
from transcf.data.ids import Rows
from transcf.data.interactions import Interactions
from transcf.data.split import Candidates, Split
from transcf.data.splitters import ENOUGH_USERS, check_split, split_log
from transcf.errors import EvaluationError, FewUsersWarning, ParameterError, check_word
from transcf.evaluation.metrics import (
    Floats,
    auc,
    check_lengths,
    compute,
    coverage,
    diversity,
    gini,
    mean_popularity,
    metric_names,
    not_yet,
    novelty,
)
from transcf.evaluation.ranks import Ties, rank, ranking_task
from transcf.evaluation.results import Evaluation
from transcf.protocols import Protocol, full_ranking, protocol_named
from transcf.retrieval.scorer import Scorer

Subset: TypeAlias = Literal["validation", "test"]


def evaluate(
    model: Scorer,
    split: Any,
    protocol: str | None = None,
    *,
    subset: Subset = "test",
    ties: Ties = "pessimistic",
    k: int | Sequence[int] = (10, 20),
    beyond: bool = False,
) -> Evaluation:
    """Evaluate a fitted model on held-out interactions.

    Args:
        model: Fitted on `split.before_test` for a test, on `split.train` for a validation or a
            protocol without refit.
        split: The held-out interactions. A log, a table, a matrix, a path or a name is split as
            `open_split` does it: `temporal_cut(log)` where there are times, else
            `leave_one_out(log)`. The model must be fitted on a part of the same split.
        protocol: "temporal", "leave-last-out", "temporal-no-refit", "leave-last-out-no-refit",
            "sequential", "paper" or "paper-as-published". None chooses one of the first four from
            how the log is split and from whether the model was fitted on the validation part. A
            named protocol is refused unless the model was fitted on the part that it requires.
        subset: The held-out part to evaluate on.
        ties: How to count equal scores: against the target ("pessimistic"), for it
            ("optimistic") or the mean of both ranks ("realistic").
        k: Lengths N of the lists.
        beyond: Whether to compute metrics beyond accuracy: `AUC`, and in full ranking
            `novelty@N`, `ILD@N` (intra-list diversity) and `gini@N`. `transcf.evaluation.metrics`
            has the formulas.

    Raises:
        DataError: `split` holds no event log.
        EvaluationError: No user can be evaluated, the split lacks the candidates that the
            protocol needs, scores are NaN or infinite, or the model has other ids or was fitted
            on the held-out part or not on the part that the protocol requires.

    Example:
        >>> from transcf import Popularity, open_split
        >>> split = open_split("synthetic")
        >>> found = evaluate(Popularity().fit(split.before_test), split, k=[10])
        >>> found.protocol, list(found.metrics)
        ('temporal', ['HitRate@10', 'NDCG@10', 'MRR@10', 'Recall@10', 'Precision@10', 'MAP@10'])
    """
    asked = None if protocol is None else protocol_named(protocol)
    check_word("ties", ties, get_args(Ties))
    check_word("subset", subset, get_args(Subset))
    lengths = check_lengths(k)
    _check_scorer(model)
    if not isinstance(split, Split):
        split = split_log(split, protocol)
    elif asked is not None:
        check_split(split, asked.name)
    held_out = split.test if subset == "test" else split.validation
    known = split.known_items(subset)
    _check_leaks(model, held_out.by_user, known, split, subset)
    named = _protocol_for(model, split, asked, subset)
    train = split.before_test if named.refit and subset == "test" else split.train
    scorer = _continued(model, split) if named.longer_history and subset == "test" else model
    candidates = stored_candidates(split, named.name) if named.sampled else None
    trained = train.by_user.counts > 0
    task = ranking_task(held_out.by_user, known, scorer.rankable, trained, candidates)
    ranks = rank(scorer, task, ties, max(lengths))
    n_trained = int(np.count_nonzero(trained))
    if len(ranks.users) < ENOUGH_USERS <= n_trained:
        advice = "split by leave_one_out(log), or cut it earlier"
        warnings.warn(
            f"Only {len(ranks.users):,} of {n_trained:,} users have held-out events that can be "
            f"judged, too few for reliable figures: {advice if split.is_cut else 'use more data'}.",
            FewUsersWarning,
            stacklevel=2,
        )
    columns = {name: compute(ranks, name) for name in metric_names(lengths)}
    catalogue: dict[str, float] = {}
    if ranks.lists is not None:
        more, catalogue = _list_metrics(model, train, ranks.lists, lengths, beyond)
        columns |= more
        catalogue |= _not_yet(split, held_out, ranks.users, ranks.lists, lengths)
    if beyond:
        columns["AUC"] = auc(ranks)
    return Evaluation(
        model=model.name,
        protocol=named.name,
        ties=ties,
        subset=subset,
        per_user=pl.DataFrame({"user_id": split.train.users.ids(ranks.users), **columns}),
        skipped=ranks.skipped,
        catalogue=catalogue,
        split=split.how,
    )


def _protocol_for(model: Scorer, split: Split, named: Protocol | None, subset: Subset) -> Protocol:
    """Return the protocol that is asked for, or the one that matches what a model was fitted on.

    Scorers without `seen_` count as fitted on what the protocol requires.
    """
    seen: Csr | None = getattr(model, "seen_", None)
    if subset == "validation" or seen is None or (named and named.sampled):
        return named or full_ranking(cut=split.is_cut, refit=True)
    total = len(split.validation)
    both = split.validation.by_user.to_scipy().multiply(seen.to_scipy())
    learned = int(both.count_nonzero())
    fitting = full_ranking(cut=split.is_cut, refit=learned == total)
    if named is None and learned in (0, total):
        return fitting
    if named is None or learned != (total if named.refit else 0):
        instead = "" if learned not in (0, total) else f", or use the {fitting.name} protocol"
        asked = named or full_ranking(cut=split.is_cut, refit=True)
        fix = "refit it on split.before_test" if asked.refit else "fit it on split.train"
        raise EvaluationError(
            f"{model.name} was fitted on {learned:,} of the {total:,} validation interactions, and "
            f"the {asked.name} protocol evaluates models that were fitted on "
            f"{'all' if asked.refit else 'none'} of them: {fix}{instead}."
        )
    return named


def _continued(model: Scorer, split: Split) -> Scorer:
    """Return the model with histories up to the test events, of items that it was fitted on."""
    scorer = getattr(model, "learned_", model)
    if not hasattr(scorer, "with_histories"):
        raise EvaluationError(
            f"{model.name} has no method with_histories, so it cannot use the validation events as "
            "histories: use the leave-last-out-no-refit protocol."
        )
    histories = split.before_test.histories.among(model.rankable)
    continued: Scorer = scorer.with_histories(histories)
    return continued


def _check_scorer(model: object) -> None:
    if isinstance(model, type) or not hasattr(model, "scores"):
        what = f"the class {model.__name__}" if isinstance(model, type) else type(model).__name__
        raise ParameterError(
            f"evaluate takes a fitted model first and then the data, and {what} is no fitted "
            "model: write evaluate(EASE().fit(split.before_test), split), with split = "
            "leave_one_out(log) or temporal_cut(log)."
        )


def stored_candidates(split: Split, protocol: str) -> Candidates:
    """Return the candidates of a split, or raise an `EvaluationError`."""
    if split.candidates is None:
        raise EvaluationError(
            f"The {protocol} protocol ranks among stored candidates and this split has none: "
            "make the split with candidates, or use a protocol of full ranking."
        )
    return split.candidates


def _check_leaks(model: Any, held_out: Csr, known: Csr, split: Split, subset: Subset) -> None:
    """Raise unless a model has the ids of a split and was fitted on none of its held-out pairs.

    Scorers without `seen_` have no ids either.
    """
    train, knows_ids = split.train, hasattr(model, "seen_")
    same = len(model.rankable) == train.n_items
    if knows_ids:
        same = same and model.users_ == train.users and model.items_ == train.items
    if not same:
        raise EvaluationError(
            f"{model.name} has other users or items than this split: evaluate it on the "
            "split that it was fitted on."
        )
    if not knows_ids:
        return
    # Pairs that are also in the known part are skipped and counted instead.
    leaked = held_out.to_scipy().multiply(model.seen_.to_scipy())
    leaked -= leaked.multiply(known.to_scipy())
    count = leaked.count_nonzero()
    if count:
        before = "split.before_test" if subset == "test" else "split.train"
        maker = "temporal_cut(log)" if split.is_cut else "leave_one_out(log)"
        raise EvaluationError(
            f"{model.name} was fitted on {count:,} of the {subset} interactions that it is "
            f"evaluated on: fit it on {before}, with split = {maker}, and evaluate that."
        )


def _list_metrics(
    model: Scorer, train: Interactions, lists: Rows, lengths: Sequence[int], beyond: bool
) -> tuple[dict[str, Floats], dict[str, float]]:
    counts, columns = np.bincount(train.item_rows, minlength=train.n_items), dict[str, Floats]()
    n_rankable, n_users = int(model.rankable.sum()), int((train.by_user.counts > 0).sum())
    catalogue = {f"coverage@{n}": coverage(lists, n, n_rankable) for n in lengths}
    catalogue |= {f"popularity@{n}": mean_popularity(lists, n, counts) for n in lengths}
    if beyond:
        catalogue |= {f"gini@{n}": gini(lists, n, model.rankable) for n in lengths}
        columns |= {f"novelty@{n}": novelty(lists, n, counts, n_users) for n in lengths}
        columns |= {f"ILD@{n}": diversity(lists, n, train.by_item) for n in lengths}
    return columns, catalogue


def _not_yet(
    split: Split, held_out: Interactions, users: Rows, lists: Rows, lengths: Sequence[int]
) -> dict[str, float]:
    """Return the share of recommended items that did not exist yet, where there are times."""
    if held_out.timestamps is None:
        return {}
    latest = np.iinfo(np.int64).max
    born = np.full(held_out.n_items, latest, dtype=np.int64)
    for part in (split.train, split.validation, split.test):
        if part.timestamps is not None:
            np.minimum.at(born, part.item_rows, part.timestamps)
    moments = np.full(held_out.n_users, latest, dtype=np.int64)
    np.minimum.at(moments, held_out.user_rows, held_out.timestamps)
    return {f"future@{n}": not_yet(lists, n, born, moments[users]) for n in lengths}


#: Shown with every result of `paper-as-published`.
OPTIMISTIC_NOTE = "Optimistic: for each metric the best test value over all epochs."


class EpochRecorder:
    """Evaluate every epoch on the test part and keep the best value of each metric.

    It is called at the end of an epoch and returns nothing, so training never sees the values.

    Example:
        >>> from transcf import BPR, open_split
        >>> from transcf.models.training import FitOptions
        >>> model, split = BPR(dim=8, epochs=2), open_split("synthetic", "paper")
        >>> recorder = EpochRecorder(split)
        >>> options = FitOptions(on_epoch=lambda epoch: recorder(epoch.snapshot))
        >>> _ = model.fit(split.train, split.validation, options)
        >>> print(recorder.result().note)
        Optimistic: for each metric the best test value over all epochs.
    """

    def __init__(
        self,
        split: Split,
        *,
        ties: Ties = "pessimistic",
        k: Sequence[int] = (10, 20),
        beyond: bool = False,
    ) -> None:
        self._split, self._options = split, {"ties": ties, "k": tuple(k), "beyond": beyond}
        self._best: Evaluation | None = None

    def __call__(self, snapshot: Scorer) -> None:
        """Evaluate the model after an epoch; of equal values the earlier one stays."""
        options: Any = self._options
        now = evaluate(snapshot, self._split, "paper-as-published", **options)
        best = self._best or now
        before, after = best.metrics, now.metrics
        better = [name for name in after if after[name].mean > before[name].mean]
        per_user = best.per_user.with_columns(now.per_user.select(better))
        self._best = replace(best, per_user=per_user)

    def result(self) -> Evaluation:
        """Return the best value of each metric, labelled as optimistic.

        Values of single users are those of the metric's best epoch.
        """
        if self._best is None:
            raise EvaluationError("No epoch was recorded: fit the model with this recorder first.")
        return replace(self._best, note=OPTIMISTIC_NOTE)
