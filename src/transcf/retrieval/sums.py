"""Scores that are sums: of several scorers (`SumView`), or logarithms of sums (`SumForm`).

`search_weights` searches for the weights of a sum, and `CachedScorer` keeps scores meanwhile.

A `SumForm` has several queries per user:
`score(u, i) = log sum_q exp(constant_q + vector_q . item_vector_i)` over the queries q of a user.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from transcf.data.ids import Rows
from transcf.data.interactions import Mask
from transcf.parallel import use_threads
from transcf.retrieval.scorer import (
    LinearForm,
    Norms,
    Scorer,
    Scores,
    Source,
    UserSide,
    block_length,
)
from transcf.retrieval.topk import ROUNDING, ProductSource


@dataclass(frozen=True, eq=False)
class Queries:
    """Queries of some users."""

    starts: npt.NDArray[np.int64]  # (n + 1,) where each user's queries start
    items: Rows  # (n_queries,) the past item that each comes from
    vectors: Scores  # (n_queries, d)
    constants: Scores  # (n_queries,)


@dataclass(frozen=True, eq=False)
class SumForm:
    """A score as a logarithm of a sum over queries."""

    item_vectors: Scores  # (n_items, d)
    of_users: Callable[[Rows], Queries]  # from user rows to their queries


Weights: TypeAlias = npt.NDArray[np.float64]

#: Memory that whole blocks may take where they are parts of a sum; other parts gain by many users.
_PART_BYTES = 256 * 2**20


@dataclass(frozen=True, eq=False)
class SumView(Scorer):
    """Adds up the scores of scorers, each times a factor, and offsets of items."""

    name: str  # in errors
    scorers: Sequence[Scorer]  # at least one
    factors: Sequence[float]
    offset: Scores | None = None  # (n_items,) to be added

    @cached_property
    def rankable(self) -> Mask:
        """(n_items,) items that all scorers may rank."""
        rankable: Mask = np.logical_and.reduce([scorer.rankable for scorer in self.scorers])
        return rankable

    def linear_form(self) -> LinearForm | None:
        """Return the vectors of all scorers, one after the other, where all have some."""
        return self._form

    @cached_property
    def _form(self) -> LinearForm | None:
        found = [scorer.linear_form() for scorer in self.scorers]
        forms = [form for form in found if form is not None]
        if len(forms) < len(found):
            return None
        factors, offset = [np.float32(factor) for factor in self.factors], self.offset

        def joined(rows: Rows | slice) -> UserSide:
            sides = [form.of_users(rows) for form in forms]
            vectors = [by * own for by, (own, _) in zip(factors, sides, strict=True)]
            constants = [by * own for by, (_, own) in zip(factors, sides, strict=True)]
            if offset is not None:
                vectors.insert(0, np.ones((len(vectors[0]), 1), np.float32))
            return np.hstack(vectors), np.sum(constants, axis=0, dtype=np.float32)

        items = [form.item_vectors for form in forms]
        return LinearForm(np.hstack(items if offset is None else [offset[:, None], *items]), joined)

    def scores(self, users: Rows, items: Rows | None = None) -> Scores:
        """Score pairs of rows, (n,), or all items for some rows, (n, n_items)."""
        if self._form is not None and self.offset is None:
            return self._form.scores(users, items)
        parts = zip(self.scorers, self.factors, strict=True)
        terms = (np.float32(factor) * scorer.scores(users, items) for scorer, factor in parts)
        total: Scores = next(terms)
        for term in terms:
            total += term
        if self.offset is not None:
            total += self.offset if items is None else self.offset[items]
        return total

    def _block_users(self) -> int | None:
        """Return as many users as all scorers can take; None where none of them has tiles."""
        if all(scorer._block_users() is None for scorer in self.scorers):
            return None
        return min(map(_longest_block, self.scorers))

    def _open_block(self, users: Rows, items: Rows) -> Source:
        """Return the sums for some users, to be read in tiles."""
        if self._block_users() is None:
            return super()._open_block(users, items)
        sources = [_source_of(scorer, users, items) for scorer in self.scorers]
        return SumSource(sources, self.factors, self.offset)


def _longest_block(scorer: Scorer) -> int:
    users = scorer._block_users()
    if users is not None:
        return users
    if scorer.linear_form() is not None:
        return 2**31
    return block_length(len(scorer.rankable), _PART_BYTES)


def _source_of(scorer: Scorer, users: Rows, items: Rows) -> Source:
    form = scorer.linear_form() if scorer._block_users() is None else None
    if form is None:
        return scorer._open_block(users, items)
    return ProductSource(form, users, float(form.item_norms[items].max(initial=0)))


class SumSource:
    """Scores of several sources of the same users; arguments as for `SumView`."""

    def __init__(
        self, sources: Sequence[Source], factors: Sequence[float], offset: Scores | None = None
    ) -> None:
        self._parts = list(zip(sources, map(np.float32, factors), strict=True))
        self._offset = offset
        size, error = (np.zeros(len(sources[0].error)) for _ in range(2))
        for source, factor in self._parts:
            size += abs(factor) * source.size
            error += abs(factor) * source.error
        self.size: Norms = size + (0.0 if offset is None else np.abs(offset).max(initial=0))
        # Both sides of a comparison are rounded at every step.
        steps = 4 * (len(self._parts) + 1)
        self.error: Scores = (1.01 * (error + steps * ROUNDING * self.size)).astype(np.float32)

    def fill(self, items: Rows, tile: Scores) -> None:
        """Write the sums for some item rows: (n, n_items)."""
        part = np.empty_like(tile)
        tile[:] = 0 if self._offset is None else self._offset[items]
        for source, factor in self._parts:
            source.fill(items, part)
            part *= factor
            tile += part

    def pairs(self, rows: Rows, items: Rows) -> Scores:
        """Return sums of pairs: (n,)."""
        total = np.zeros(len(rows)) if self._offset is None else self._offset[items].astype(float)
        for source, factor in self._parts:
            total += np.float64(factor) * source.pairs(rows, items)
        scores: Scores = total.astype(np.float32)
        return scores


class CachedScorer(Scorer):
    """A scorer that caches up to `room` bytes of scores, which every trial of a search repeats."""

    name: str
    rankable: Mask

    def __init__(self, scorer: Scorer, room: int) -> None:
        self._scorer, self._left = scorer, room
        self.name, self.rankable = scorer.name, scorer.rankable
        self._kept: dict[bytes, Scores] = {}

    def scores(self, users: Rows, items: Rows | None = None) -> Scores:
        """Score pairs of rows, (n,), or all items for some rows, (n, n_items)."""
        key = hashlib.sha256(users.tobytes() + b"|" + (b"" if items is None else items.tobytes()))
        if (kept := self._kept.get(key.digest())) is not None:
            return kept
        with use_threads(1):  # the last digits depend on threads, and might change the weights
            scores = self._scorer.scores(users, items)
        if scores.nbytes <= self._left:
            self._kept[key.digest()] = scores
            self._left -= scores.nbytes
        return scores


#: The search tries the weights 0, 1/20, 2/20 and so on, in so many rounds through all parts.
_STEPS, _ROUNDS = 20, 10


def search_weights(metric: Callable[[Weights], float], n_parts: int) -> tuple[Weights, float]:
    """Find the weights with the best metric by coordinate search.

    From equal weights on, each part in turn is given every share from 0 to 1 while the others
    share the rest in proportion. Of equal metrics the share nearest to the current one wins. For
    two parts this tries all weights.
    """
    known: dict[tuple[float, ...], float] = {}

    def metric_of(weights: Weights) -> float:
        key = tuple(weights.round(9).tolist())
        if key not in known:
            known[key] = metric(weights)
        return known[key]

    weights = np.full(n_parts, 1 / n_parts)
    best = metric_of(weights)
    for _ in range(_ROUNDS):
        before = best
        for part in range(n_parts):
            start, shares = weights, np.arange(_STEPS + 1) / _STEPS
            for share in shares[np.argsort(np.abs(shares - start[part]), kind="stable")]:
                trial = _with_share(start, part, float(share))
                if metric_of(trial) > best:
                    weights, best = trial, metric_of(trial)
        if best == before:
            break
    return weights, best


def _with_share(weights: Weights, part: int, share: float) -> Weights:
    """Give one part a share, and the rest to the others in proportion to their weights."""
    others = weights.copy()
    others[part] = 0.0
    if not others.any():
        others[:] = 1.0
        others[part] = 0.0
    changed: Weights = (1 - share) * others / others.sum()
    changed[part] = share
    return changed
