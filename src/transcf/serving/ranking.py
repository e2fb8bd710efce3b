"""Lists for many requests at once: one matrix product for all that can share it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from transcf.data.csr import Csr
from transcf.data.histories import Histories
from transcf.data.ids import UNKNOWN, Id, Rows
from transcf.data.interactions import Mask
from transcf.retrieval.scorer import Scorer, Scores
from transcf.serving.loaded_model import LoadedModel, usable_rows
from transcf.serving.users import ResolvedUser

#: What all of a group may choose from: categories, and items where they are listed.
_Choice: TypeAlias = tuple[tuple[str, ...], tuple[Id, ...] | None]


@dataclass(frozen=True)
class RecommendOptions:
    """What a list should be like.

    Attributes:
        k: Longest list.
        exclude_seen: Whether the person's own items are left out.
        categories: Only items of any of these; empty for all.
        exclude: Items that are left out.
        items: The only items to choose from; None for all.
    """

    k: int = 10
    exclude_seen: bool = True
    categories: tuple[str, ...] = ()
    exclude: tuple[Id, ...] = ()
    items: tuple[Id, ...] | None = None

    @property
    def choice(self) -> _Choice:
        """What has to be the same in a group."""
        return self.categories, self.items


@dataclass(frozen=True, eq=False)
class Ranked:
    """A list.

    Attributes:
        items: (n,) item rows, best first.
        scores: (n,) float32.
    """

    items: Rows
    scores: Scores


@dataclass
class _Group:
    """Requests that one call of `top_k` answers."""

    places: list[int] = field(default_factory=list)
    rows: set[int] = field(default_factory=set)


def rank(
    served: LoadedModel, people: Sequence[ResolvedUser], wishes: Sequence[RecommendOptions]
) -> list[Ranked]:
    """Find the best items of some people, each by their own wish; lists are in their order.

    A list is the same whoever else is asked for at the moment, as `top_k` promises for inner
    products.
    """
    found: list[Ranked | None] = [None] * len(people)
    for key, group in _grouped(people, wishes).items():
        source, plain, choice, _ = key
        allowed = _allowed(served, choice)
        some = [people[place] for place in group.places]
        asked = [wishes[place] for place in group.places]
        if source == "popular":
            lists = [_popular(served, *pair, allowed) for pair in zip(some, asked, strict=True)]
        elif source == "model":
            lists = _of_users(served, some, asked, allowed, plain)
        else:
            lists = _of_guests(served, some, asked, allowed)
        for place, ranked in zip(group.places, lists, strict=True):
            found[place] = ranked
    return [ranked for ranked in found if ranked is not None]


def _grouped(
    people: Sequence[ResolvedUser], wishes: Sequence[RecommendOptions]
) -> dict[tuple[str, bool | None, _Choice, int], _Group]:
    """Put together who can share a call.

    Users as learned share the table of what everybody has seen where that is all that is hidden
    (or nothing is); others get a table of their own, in which a user can stand only once.
    """
    groups: dict[tuple[str, bool | None, _Choice, int], _Group] = {}
    for place, (person, wish) in enumerate(zip(people, wishes, strict=True)):
        plain: bool | None = None
        if person.source == "model" and not wish.exclude:
            plain = wish.exclude_seen if person.is_as_trained or not wish.exclude_seen else None
        turn = 0
        while True:
            group = groups.setdefault((person.source, plain, wish.choice, turn), _Group())
            if person.source != "model" or plain is not None or person.row not in group.rows:
                break
            turn += 1
        group.places.append(place)
        group.rows.add(person.row)
    return groups


def _allowed(served: LoadedModel, choice: _Choice) -> Mask:
    categories, items = choice
    allowed = served.learned.rankable
    if categories:
        allowed = allowed & served.in_categories(categories)
    if items is not None:
        named = np.zeros(len(allowed), dtype=bool)
        named[usable_rows(served, list(items))] = True
        allowed = allowed & named
    return allowed


def _of_users(
    served: LoadedModel,
    people: Sequence[ResolvedUser],
    wishes: Sequence[RecommendOptions],
    allowed: Mask,
    plain: bool | None,
) -> list[Ranked]:
    """Answer users as they were learned."""
    rows = np.array([person.row for person in people], np.int32)
    seen: Csr | None = served.learned.known.seen if plain else None
    if plain is None:
        seen = _hidden(served, people, wishes, rows, len(served.users))
    return _lists(served.learned, rows, wishes, seen, allowed)


def _of_guests(
    served: LoadedModel,
    people: Sequence[ResolvedUser],
    wishes: Sequence[RecommendOptions],
    allowed: Mask,
) -> list[Ranked]:
    """Answer people who are placed by their histories."""
    n_items = len(served.items)
    scorer = served.learned.fold_in(Histories.of([person.history for person in people], n_items))
    rows = np.arange(len(people), dtype=np.int32)
    seen = _hidden(served, people, wishes, rows, len(people))
    return _lists(scorer, rows, wishes, seen, allowed)


def _lists(
    scorer: Scorer, rows: Rows, wishes: Sequence[RecommendOptions], seen: Csr | None, allowed: Mask
) -> list[Ranked]:
    longest = min(max(wish.k for wish in wishes), int(np.count_nonzero(allowed)))
    items, scores = scorer.top_k(rows, longest, seen=seen, allowed=allowed)
    lengths = (items != UNKNOWN).sum(axis=1)
    ends = np.minimum(lengths, [wish.k for wish in wishes])
    return [Ranked(items[n, :end], scores[n, :end]) for n, end in enumerate(ends)]


def _popular(
    served: LoadedModel, person: ResolvedUser, wish: RecommendOptions, allowed: Mask
) -> Ranked:
    """Give the items with most users that are left; scores are the numbers of these users."""
    hidden = _own(served, person, wish)
    order = served.popular
    if len(hidden) or allowed is not served.learned.rankable:
        left = allowed.copy()
        left[hidden] = False
        order = order[left[order]]
    rows = order[: wish.k]
    return Ranked(rows, served.learned.known.item_counts[rows].astype(np.float32))


def _own(served: LoadedModel, person: ResolvedUser, wish: RecommendOptions) -> Rows:
    """Return the item rows that are hidden from somebody, ascending."""
    parts = [person.history] if wish.exclude_seen else []
    if wish.exclude:
        parts.append(usable_rows(served, list(wish.exclude)))
    return _distinct(parts)


def _distinct(parts: Iterable[Rows]) -> Rows:
    return np.unique(np.concatenate([np.empty(0, np.int32), *parts]))


def _hidden(
    served: LoadedModel,
    people: Sequence[ResolvedUser],
    wishes: Sequence[RecommendOptions],
    rows: Rows,
    n_rows: int,
) -> Csr:
    """Table of hidden items with so many rows, of which these are filled; no row comes twice."""
    lists = [_own(served, *pair) for pair in zip(people, wishes, strict=True)]
    counts = np.zeros(n_rows + 1, np.int64)
    counts[rows + 1] = [len(own) for own in lists]
    in_order = [lists[place] for place in np.argsort(rows, kind="stable")]
    columns = np.concatenate([np.empty(0, np.int32), *in_order]).astype(np.int32)
    return Csr(np.cumsum(counts), columns, len(served.items))
