"""`evaluate`: one model, one split, one named protocol.

- `strict` (default): full ranking over all items with training interactions that the user has not
  touched; at test time validation items count as touched.
- `paper`: ranking among the candidates stored with the split; see `tasks` for the rules.
- `paper-as-published`: as `paper`, but for every metric the best test value over all epochs.
  That selects on the test set: good for comparing with printed tables, optimistic for all else.
  An `EpochRecorder` collects the epochs; without one the model as it stands is the only epoch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import polars as pl

from transcf.data.csr import Csr
from transcf.data.sources import Protocol as Protocol
from transcf.data.sources import as_split
from transcf.data.sources import check_protocol as check_protocol
from transcf.data.split import Candidates, Split
from transcf.errors import EvaluationError, ParameterError, is_word, shown
from transcf.evaluation.lists import coverage, diversity, gini, mean_popularity, novelty
from transcf.evaluation.metrics import Floats, auc, check_lengths, compute, metric_names
from transcf.evaluation.ranks import Ranking, Ties, candidate_ranks, check_ties, full_ranks
from transcf.evaluation.results import Evaluation
from transcf.retrieval.scorer import KnowsIds, Scorer

Part: TypeAlias = Literal["validation", "test"]


def evaluate(
    model: Scorer,
    split: Any,
    protocol: Protocol = "strict",
    *,
    part: Part = "test",
    ties: Ties = "pessimistic",
    at: int | Sequence[int] = (10, 20),
    beyond: bool = False,
) -> Evaluation:
    """Judge a fitted model on held-out interactions.

    Args:
        model: Fitted on `split.train`, or for the test part on train and validation.
        split: Where the held-out interactions are. A log, a table, a matrix, a path or a name is
            split as `open_split` does it, each user's newest event for test: the model has to be
            fitted on the training part of just that, `leave_one_out(log).train`.
        protocol: "strict", "paper" or "paper-as-published".
        part: Which held-out part to judge on.
        ties: How to count equal scores: against the target ("pessimistic"), for it
            ("optimistic") or the mean of both ranks ("realistic").
        at: Lengths N of the lists.
        beyond: Whether to go beyond accuracy: `AUC` (over the candidates of the protocol), and of
            the lists of full ranking `novelty@N`, `ILD@N` (intra-list diversity) and `gini@N`;
            `transcf.evaluation.lists` has the formulas.

    Raises:
        DataError: There is no event log in what is given as `split`.
        EvaluationError: Nobody to evaluate, no candidates in the split where they are needed,
            NaN or infinite scores, or a model with other ids or fitted on what it is judged by.

    Example:
        >>> from transcf import Popularity, open_split
        >>> split = open_split("synthetic")
        >>> found = evaluate(Popularity().fit(split.train), split, at=[10])
        >>> list(found.metrics)
        ['H@10', 'N@10', 'MRR@10', 'R@10', 'P@10', 'MAP@10']
    """
    check_protocol(protocol)
    check_ties(ties)
    if not is_word(part, get_args(Part)):
        raise ParameterError(
            f"part={shown(part)} is not allowed; it must be 'validation' or 'test'."
        )
    lengths = check_lengths(at)
    check_scorer(model)
    split = split if isinstance(split, Split) else as_split(split, protocol)
    check_ids(model, split)
    held_out = split.test if part == "test" else split.validation
    known = split.known_items(part)
    check_unseen(model, held_out.by_user, known, part)
    trained = split.train.by_user.counts > 0
    if protocol == "strict":
        ranking = full_ranks(
            model, held_out, known, ties, trained=trained, list_length=max(lengths)
        )
    else:
        candidates = stored_candidates(split, protocol)
        ranking = candidate_ranks(model, held_out, candidates, known, ties, trained=trained)
    columns = {name: compute(ranking.ranks, name) for name in metric_names(lengths)}
    if beyond:
        columns |= _beyond(split, ranking, lengths)
    users = split.train.users.ids(ranking.ranks.users)
    return Evaluation(
        model=model.name,
        protocol=protocol,
        ties=ties,
        part=part,
        per_user=pl.DataFrame({"user_id": users, **columns}),
        skipped=ranking.skipped,
        catalogue=_catalogue(model, split, ranking, lengths, beyond=beyond),
        split=split.how,
    )


def check_scorer(model: object) -> None:
    """Raise a `ParameterError` for what is no model object."""
    if isinstance(model, type) or not hasattr(model, "score_block"):
        what = f"the class {model.__name__}" if isinstance(model, type) else type(model).__name__
        raise ParameterError(
            f"evaluate takes a fitted model first and then the data, and {what} is no fitted "
            "model: write evaluate(EASE().fit(split.train), split), with split = "
            "leave_one_out(log)."
        )


def stored_candidates(split: Split, protocol: str) -> Candidates:
    """Return the candidates of a split, or raise an `EvaluationError`."""
    if split.candidates is None:
        raise EvaluationError(
            f"The {protocol} protocol ranks among stored candidates and this split has none: "
            "make the split with candidates, or use the strict protocol."
        )
    return split.candidates


def check_ids(model: Scorer, split: Split) -> None:
    """Raise an `EvaluationError` if a model's rows stand for other users or items."""
    train = split.train
    same = len(model.rankable) == train.n_items
    if isinstance(model, KnowsIds):
        same = same and model.users_ == train.users and model.items_ == train.items
    if not same:
        raise EvaluationError(
            f"{model.name} knows other users or items than this split: evaluate it on the "
            "split that it was fitted on."
        )


def check_unseen(model: Scorer, held_out: Csr, known: Csr, part: Part) -> None:
    """Raise an `EvaluationError` if a model was fitted on pairs that it is to be judged by.

    Pairs that are known all the same are nobody's fault: they are skipped and counted.
    """
    if not isinstance(model, KnowsIds):
        return
    leaked = held_out.to_scipy().multiply(model.seen_.to_scipy())
    leaked -= leaked.multiply(known.to_scipy())
    count = leaked.count_nonzero()
    if count:
        raise EvaluationError(
            f"{model.name} was fitted on {count:,} of the {part} interactions that it is to "
            "be judged by: fit it on split.train, with split = leave_one_out(log), and evaluate "
            "that."
        )


def _beyond(split: Split, ranking: Ranking, lengths: Sequence[int]) -> dict[str, Floats]:
    """What each user has a value of beside accuracy; that of lists only where there are some."""
    ranks, lists, train = ranking.ranks, ranking.lists, split.train
    found: dict[str, Floats] = {}
    if lists is not None:
        counts, n_users = train.by_item.counts, int((train.by_user.counts > 0).sum())
        found |= {f"novelty@{n}": novelty(lists, n, counts, n_users) for n in lengths}
        found |= {f"ILD@{n}": diversity(lists, n, train.by_item) for n in lengths}
    return found | {"AUC": auc(ranks.indptr, ranking.beaten_by, ranking.against)}


def _catalogue(
    model: Scorer, split: Split, ranking: Ranking, lengths: Sequence[int], *, beyond: bool
) -> dict[str, float]:
    """Coverage, popularity and evenness of what is recommended, where there are lists."""
    if ranking.lists is None:
        return {}
    counts = np.bincount(split.train.item_rows, minlength=split.train.n_items)
    n_rankable = int(model.rankable.sum())
    figures = {f"coverage@{n}": coverage(ranking.lists, n, n_rankable) for n in lengths}
    for n in lengths:
        figures[f"popularity@{n}"] = mean_popularity(ranking.lists, n, counts)
    for n in lengths if beyond else ():
        figures[f"gini@{n}"] = gini(ranking.lists, n, model.rankable)
    return figures
