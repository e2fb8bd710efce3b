"""`evaluate`: one model, one split, one named protocol.

- `forward` (the default where there are times): a log that is cut at one moment for everybody. The
  model has learned from all that came before, and full ranking looks for what each user takes
  afterwards. Nobody learns from the future.
- `strict` (the default elsewhere): each user's newest event is held out. The model has learned from
  all others; full ranking over the items that the user has not touched.
- `forward-no-refit`, `strict-no-refit`: the same of a model that has learned from the training part
  alone, though validation items count as touched. Literature mostly means the latter.
- `paper`: ranking among the candidates stored with the split; see `tasks` for the rules.
- `paper-as-published`: as `paper`, but for every metric the best test value over all epochs.
  That selects on the test set: good for comparing with printed tables, optimistic for all else.
  An `EpochRecorder` collects the epochs; without one the model as it stands is the only epoch.

What they consist of stands in `transcf.protocols.PROTOCOLS`.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import polars as pl

from transcf.data.csr import Csr
from transcf.data.interactions import Interactions
from transcf.data.split import Candidates, Split
from transcf.data.splitters import ENOUGH_USERS, check_split, split_log
from transcf.errors import EvaluationError, FewUsersWarning, ParameterError, is_word, shown
from transcf.evaluation.lists import coverage, diversity, gini, mean_popularity, not_yet, novelty
from transcf.evaluation.metrics import Floats, auc, check_lengths, compute, metric_names
from transcf.evaluation.ranks import Ranking, Ties, candidate_ranks, check_ties, full_ranks
from transcf.evaluation.results import Evaluation
from transcf.protocols import Protocol, full_ranking, protocol_named
from transcf.retrieval.scorer import KnowsIds, Scorer

Part: TypeAlias = Literal["validation", "test"]


def evaluate(
    model: Scorer,
    split: Any,
    protocol: str | None = None,
    *,
    part: Part = "test",
    ties: Ties = "pessimistic",
    at: int | Sequence[int] = (10, 20),
    beyond: bool = False,
) -> Evaluation:
    """Judge a fitted model on held-out interactions.

    Args:
        model: Fitted on `split.before_test` once all is chosen, or on `split.train`, which is what
            the validation part asks for.
        split: Where the held-out interactions are. A log, a table, a matrix, a path or a name is
            split as `open_split` does it: `temporal_cut(log)` where there are times, else
            `leave_one_out(log)`. The model has to be fitted on a part of just that.
        protocol: "forward", "strict", "forward-no-refit", "strict-no-refit", "paper" or
            "paper-as-published". None is one of the first four: by how the log is split, and by
            whether the model has learned from the validation part. One that is named is refused
            unless the model has learned from what it asks for.
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
            NaN or infinite scores, or a model with other ids, fitted on what it is judged by, or
            not on what the protocol asks for.

    Example:
        >>> from transcf import Popularity, open_split
        >>> split = open_split("synthetic")
        >>> found = evaluate(Popularity().fit(split.before_test), split, at=[10])
        >>> found.protocol, list(found.metrics)
        ('forward', ['H@10', 'N@10', 'MRR@10', 'R@10', 'P@10', 'MAP@10'])
    """
    if protocol is not None:
        protocol_named(protocol)
    check_ties(ties)
    if not is_word(part, get_args(Part)):
        raise ParameterError(
            f"part={shown(part)} is not allowed; it must be 'validation' or 'test'."
        )
    lengths = check_lengths(at)
    check_scorer(model)
    if not isinstance(split, Split):
        split = split_log(split, protocol)
    elif protocol is not None:
        check_split(split, protocol)
    check_ids(model, split)
    held_out = split.test if part == "test" else split.validation
    known = split.known_items(part)
    check_unseen(model, held_out.by_user, known, split, part)
    named = _protocol_for(model, split, protocol, part)
    train = split.before_test if named.refit and part == "test" else split.train
    trained = train.by_user.counts > 0
    if named.sampled:
        candidates = stored_candidates(split, named.name)
        ranking = candidate_ranks(model, held_out, candidates, known, ties, trained=trained)
    else:
        ranking = full_ranks(
            model, held_out, known, ties, trained=trained, list_length=max(lengths)
        )
    _warn_of_few(len(ranking.ranks.users), int(trained.sum()), split)
    columns = {name: compute(ranking.ranks, name) for name in metric_names(lengths)}
    if beyond:
        columns |= _beyond(train, ranking, lengths)
    catalogue = _catalogue(model, train, ranking, lengths, beyond=beyond)
    return Evaluation(
        model=model.name,
        protocol=named.name,
        ties=ties,
        part=part,
        per_user=pl.DataFrame({"user_id": split.train.users.ids(ranking.ranks.users), **columns}),
        skipped=ranking.skipped,
        catalogue=catalogue | _not_yet(split, held_out, ranking, lengths),
        split=split.how,
    )


def _warn_of_few(judged: int, users: int, split: Split) -> None:
    """Warn if fewer users are judged than reliable figures need, though there are more."""
    if judged >= ENOUGH_USERS or users < ENOUGH_USERS:
        return
    advice = "split by leave_one_out(log), or cut it earlier" if split.is_cut else "use more data"
    warnings.warn(
        f"Only {judged:,} of {users:,} users have held-out events that can be judged, too few for "
        f"reliable figures: {advice}.",
        FewUsersWarning,
        stacklevel=3,
    )


def _protocol_for(model: Scorer, split: Split, protocol: str | None, part: Part) -> Protocol:
    """Return the protocol by which a model is judged, from what it has learned from.

    Scorers that do not tell count as fitted on whatever the protocol asks for.
    """
    named = None if protocol is None else protocol_named(protocol)
    if part == "validation" or not isinstance(model, KnowsIds) or (named and named.sampled):
        return named or full_ranking(cut=split.is_cut, refit=True)
    total = len(split.validation)
    both = split.validation.by_user.to_scipy().multiply(model.seen_.to_scipy())
    learned = int(both.count_nonzero())
    if named is None and learned in (0, total):
        return full_ranking(cut=split.is_cut, refit=learned == total)
    if named is None or learned != (total if named.refit else 0):
        other = full_ranking(cut=split.is_cut, refit=learned == total).name
        instead = "" if learned not in (0, total) else f", or use the {other} protocol"
        asked = full_ranking(cut=split.is_cut, refit=True) if named is None else named
        mend = "refit it on split.before_test" if asked.refit else "fit it on split.train"
        raise EvaluationError(
            f"{model.name} was fitted on {learned:,} of the {total:,} validation interactions, and "
            f"the {asked.name} protocol judges models that have learned from "
            f"{'all' if asked.refit else 'none'} of them: {mend}{instead}."
        )
    return named


def check_scorer(model: object) -> None:
    """Raise a `ParameterError` for what is no model object."""
    if isinstance(model, type) or not hasattr(model, "score_block"):
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


def check_unseen(model: Scorer, held_out: Csr, known: Csr, split: Split, part: Part) -> None:
    """Raise an `EvaluationError` if a model was fitted on pairs that it is to be judged by.

    Pairs that are known all the same are nobody's fault: they are skipped and counted.
    """
    if not isinstance(model, KnowsIds):
        return
    leaked = held_out.to_scipy().multiply(model.seen_.to_scipy())
    leaked -= leaked.multiply(known.to_scipy())
    count = leaked.count_nonzero()
    if count:
        before = "split.before_test" if part == "test" else "split.train"
        maker = "temporal_cut(log)" if split.is_cut else "leave_one_out(log)"
        raise EvaluationError(
            f"{model.name} was fitted on {count:,} of the {part} interactions that it is to "
            f"be judged by: fit it on {before}, with split = {maker}, and evaluate that."
        )


def _beyond(train: Interactions, ranking: Ranking, lengths: Sequence[int]) -> dict[str, Floats]:
    """What each user has a value of beside accuracy; that of lists only where there are some."""
    ranks, lists = ranking.ranks, ranking.lists
    found: dict[str, Floats] = {}
    if lists is not None:
        counts, n_users = train.by_item.counts, int((train.by_user.counts > 0).sum())
        found |= {f"novelty@{n}": novelty(lists, n, counts, n_users) for n in lengths}
        found |= {f"ILD@{n}": diversity(lists, n, train.by_item) for n in lengths}
    return found | {"AUC": auc(ranks.indptr, ranking.beaten_by, ranking.against)}


def _catalogue(
    model: Scorer, train: Interactions, ranking: Ranking, lengths: Sequence[int], *, beyond: bool
) -> dict[str, float]:
    """Coverage, popularity and evenness of what is recommended, where there are lists."""
    if ranking.lists is None:
        return {}
    counts = np.bincount(train.item_rows, minlength=train.n_items)
    n_rankable = int(model.rankable.sum())
    figures = {f"coverage@{n}": coverage(ranking.lists, n, n_rankable) for n in lengths}
    for n in lengths:
        figures[f"popularity@{n}"] = mean_popularity(ranking.lists, n, counts)
    for n in lengths if beyond else ():
        figures[f"gini@{n}"] = gini(ranking.lists, n, model.rankable)
    return figures


def _not_yet(
    split: Split, held_out: Interactions, ranking: Ranking, lengths: Sequence[int]
) -> dict[str, float]:
    """Share of the lists that did not exist yet, where there are lists and times."""
    parts, lists = (split.train, split.validation, split.test), ranking.lists
    if lists is None or held_out.timestamps is None:
        return {}
    latest = np.iinfo(np.int64).max
    born = np.full(held_out.n_items, latest, dtype=np.int64)
    for part in parts:
        if part.timestamps is not None:
            np.minimum.at(born, part.item_rows, part.timestamps)
    moments = np.full(held_out.n_users, latest, dtype=np.int64)
    np.minimum.at(moments, held_out.user_rows, held_out.timestamps)
    moments = moments[ranking.ranks.users]
    return {f"future@{n}": not_yet(lists, n, born, moments) for n in lengths}
