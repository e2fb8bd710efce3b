"""Named protocols: what is ranked against what, and which warning belongs to it.

strict              full ranking over all items that can be ranked and that the user has not seen;
                    at test time the validation item counts as seen.
paper               the stored candidates of the split, as in the paper.
paper-as-published  as paper, but for models that train in epochs the best test value over all
                    epochs is taken for every metric by itself, as in the published tables.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias, get_args

import numpy as np
import polars as pl

from transcf.data.split import Split
from transcf.errors import EvaluationError, ParameterError
from transcf.evaluation.metrics import METRICS, metric_names, per_user_table
from transcf.evaluation.ranks import Ranking, Ties, candidate_ranks, check_ties, full_ranks
from transcf.evaluation.results import Evaluation
from transcf.retrieval.scorer import Scorer, name_of

Protocol: TypeAlias = Literal["strict", "paper", "paper-as-published"]
Part: TypeAlias = Literal["validation", "test"]

OPTIMISTIC_NOTE = "optimistic: the best epoch was chosen on the test set, for every metric apart"


def check_protocol(protocol: str) -> None:
    """Raise unless it is a known protocol."""
    if protocol not in get_args(Protocol):
        raise ParameterError(
            f"protocol={protocol!r} is not allowed; it must be one of "
            f"{', '.join(get_args(Protocol))}."
        )


def evaluate(
    model: Scorer,
    split: Split,
    protocol: Protocol = "strict",
    *,
    part: Part = "test",
    ties: Ties = "pessimistic",
    at: Sequence[int] = (10, 20),
) -> Evaluation:
    """Judge a fitted model by how it ranks the held-out items of a split.

    Args:
        model: A model fitted on `split.train`.
        split: The split.
        protocol: What is ranked against what; see the module.
        part: Which held-out part to rank.
        ties: How equal scores count: against the target, half, or not at all.
        at: Lengths of the lists that metrics look at.

    Example:
        >>> evaluate(Popularity().fit(split.train), split).users  # doctest: +SKIP
        758
    """
    check_protocol(protocol)
    check_ties(ties)
    _check_lengths(at)
    if part not in get_args(Part):
        raise ParameterError(f"part={part!r} is not allowed; it must be validation or test.")
    ranking = _rank(model, split, protocol, part, ties, at)
    users = split.train.users.ids(ranking.ranks.users).rename("user_id")
    table = per_user_table(ranking.ranks, metric_names(at))
    return Evaluation(
        model=name_of(model),
        protocol=protocol,
        ties=ties,
        part=part,
        per_user=pl.DataFrame([users]).hstack(table),
        skipped=ranking.skipped,
        catalogue=_catalogue(ranking, split, at),
    )


class EpochRecorder:
    """Evaluates a model after every epoch and keeps the best value of every metric.

    For `paper-as-published`: give it to `FitOptions(on_epoch=...)`, then ask for `result`.

    Args:
        model: The model in training.
        split: The split, with candidates.
        ties: How equal scores count.
        at: Lengths of the lists that metrics look at.
    """

    def __init__(
        self,
        model: Scorer,
        split: Split,
        *,
        ties: Ties = "pessimistic",
        at: Sequence[int] = (10, 20),
    ) -> None:
        """Start with nothing recorded."""
        self._model, self._split, self._ties, self._at = model, split, ties, at
        self._best: dict[str, Evaluation] = {}

    def __call__(self, epoch: int) -> None:
        """Evaluate the model as it is now."""
        found = evaluate(
            self._model, self._split, "paper-as-published", ties=self._ties, at=self._at
        )
        for name, estimate in found.metrics.items():
            if name not in self._best or estimate.mean > self._best[name].metrics[name].mean:
                self._best[name] = found

    def result(self) -> Evaluation:
        """Return the best test value of every metric, labelled as optimistic."""
        if not self._best:
            raise EvaluationError("No epoch was recorded: the model does not train in epochs.")
        some = next(iter(self._best.values()))
        columns = {name: found.per_user[name] for name, found in self._best.items()}
        return Evaluation(
            model=some.model,
            protocol=some.protocol,
            ties=some.ties,
            part=some.part,
            per_user=pl.DataFrame({"user_id": some.per_user["user_id"], **columns}),
            skipped=some.skipped,
            note=OPTIMISTIC_NOTE,
        )


def _rank(
    model: Scorer, split: Split, protocol: Protocol, part: Part, ties: Ties, at: Sequence[int]
) -> Ranking:
    targets = split.validation if part == "validation" else split.test
    known = split.known_items(part)
    if protocol == "strict":
        return full_ranks(model, targets, known, ties, list_length=max(at))
    if split.candidates is None:
        raise EvaluationError(
            f"The protocol {protocol!r} ranks against stored candidates and this split has none: "
            "draw them with draw_candidates(split), or use the protocol 'strict'."
        )
    return candidate_ranks(model, targets, split.candidates, split.train.by_user, ties)


def _catalogue(ranking: Ranking, split: Split, at: Sequence[int]) -> dict[str, float]:
    """Coverage and mean popularity of the recommended lists, where they are known."""
    if ranking.lists is None:
        return {}
    counts = np.bincount(split.train.item_rows, minlength=split.train.n_items)
    figures: dict[str, float] = {}
    for n in at:
        shown = ranking.lists[:, :n]
        shown = shown[shown >= 0]
        figures[f"coverage@{n}"] = len(np.unique(shown)) / np.count_nonzero(counts)
        figures[f"popularity@{n}"] = float(counts[shown].mean()) if len(shown) else 0.0
    return figures


def _check_lengths(at: Sequence[int]) -> None:
    sound = len(at) > 0 and all(isinstance(n, int) and n >= 1 for n in at)
    if not sound:
        raise ParameterError(
            f"at={at!r} is not allowed; it must be list lengths of at least 1 for "
            f"{', '.join(METRICS)}, such as (10, 20)."
        )
