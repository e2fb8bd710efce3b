"""Ranking tasks: users, their held-out items, and the items to rank them against.

A task is made once for a split and used for every model and epoch. Its rules:

- A held-out item without training interactions cannot be ranked by any model: skipped, counted.
- A held-out item that the user is already known to have touched is skipped and counted.
- A user without training interactions (nothing was learned about them, whatever else is known
  at test time), or with nothing to rank against: skipped, counted.
- Full ranking: against every item with training interactions that the user has not touched
  (at test time validation items count as touched).
- Sampled ranking: against the user's stored candidates, each distinct item once, without the
  items that have no training interactions and without the user's targets. What else the draw
  holds stays: a test target may meet the user's own validation item among its candidates, as it
  does in the authors' files and in the figures that are known for this protocol.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from transcf.data.csr import Csr
from transcf.data.ids import Rows
from transcf.data.interactions import Mask
from transcf.data.report import counted
from transcf.data.split import Candidates
from transcf.errors import EvaluationError

Keys: TypeAlias = npt.NDArray[np.int64]

NO_HISTORY = "users without training interactions"
COLD_TARGET = "targets without training interactions"
KNOWN_TARGET = "targets the user already touched"
NO_CANDIDATES = "users without candidates"

#: Which users a sample has does not depend on the seed of a model.
_SAMPLE_SEED = 0


@dataclass(frozen=True, eq=False)
class Task:
    """Held-out items to rank.

    Attributes:
        users: (n,) evaluated user rows, ascending.
        targets: Held-out items that can be ranked; one row for each entry of `users`.
        known: Items of each user row (all users) that do not take part, in full ranking.
        candidates: Items to rank against, one row for each entry of `users`, in sampled ranking.
        against: (n,) how many items, targets aside, there are to rank against.
        skipped: What was left out, and how many of it.
    """

    users: Rows
    targets: Csr
    known: Csr | None
    candidates: Csr | None
    against: Keys
    skipped: dict[str, int]

    def of_sample(self, count: int) -> Task:
        """Return the task of so many of the users, always the same ones."""
        if count >= len(self.users):
            return self
        some = sample_of(len(self.users), count)
        candidates = None if self.candidates is None else self.candidates.take(some)
        return replace(
            self,
            users=self.users[some],
            targets=self.targets.take(some),
            candidates=candidates,
            against=self.against[some],
        )


def sample_of(size: int, count: int) -> npt.NDArray[np.int64]:
    """Return `count` places among `size`, ascending, always the same ones; all if there are fewer.

    Example:
        >>> sample_of(3, 5).tolist()
        [0, 1, 2]
    """
    return np.sort(np.random.default_rng(_SAMPLE_SEED).permutation(size)[:count])


def full_task(held_out: Csr, known: Csr, rankable: Mask, trained: Mask) -> Task:
    """Rank against everything that the user has not touched.

    Args:
        held_out: Held-out items of each user row.
        known: Items of each user row that count as touched.
        rankable: (n_items,) items with training interactions.
        trained: (n_users,) users with training interactions.
    """
    pairs, skipped = _usable_targets(held_out, known, rankable, trained)
    n_items = max(1, held_out.n_columns)
    known_users = known.entry_rows[rankable[known.indices]]
    taken = np.bincount(known_users, minlength=known.n_rows)
    taken += np.bincount(pairs // n_items, minlength=known.n_rows)
    left = int(rankable.sum()) - taken
    pairs = _with_candidates(pairs, n_items, left > 0, skipped)
    users = _users_of(pairs, n_items)
    return Task(users, _by_user(pairs, users, n_items), known, None, left[users], skipped)


def sampled_task(
    held_out: Csr, candidates: Candidates, known: Csr, rankable: Mask, trained: Mask
) -> Task:
    """Rank against stored candidates.

    Args:
        held_out: Held-out items of each user row.
        candidates: Stored candidates of each user row.
        known: Items of each user row that count as touched.
        rankable: (n_items,) items with training interactions.
        trained: (n_users,) users with training interactions.
    """
    if len(candidates.indptr) != held_out.n_rows + 1:
        raise EvaluationError(
            f"The candidates ({candidates.source}) are for "
            f"{counted(len(candidates.indptr) - 1, 'user')} and the held-out items for "
            f"{held_out.n_rows:,}: use the candidates of the same split."
        )
    pairs, skipped = _usable_targets(held_out, known, rankable, trained)
    n_items = max(1, held_out.n_columns)
    drawn = Csr(candidates.indptr, candidates.items, n_items)
    against = np.unique(_keys(drawn)[rankable[drawn.indices]])
    against = np.setdiff1d(against, pairs, assume_unique=True)
    has_any = np.bincount(against // n_items, minlength=held_out.n_rows) > 0
    pairs = _with_candidates(pairs, n_items, has_any, skipped)
    users = _users_of(pairs, n_items)
    rows = _by_user(against, users, n_items)
    return Task(users, _by_user(pairs, users, n_items), None, rows, rows.counts, skipped)


def _usable_targets(
    held_out: Csr, known: Csr, rankable: Mask, trained: Mask
) -> tuple[Keys, dict[str, int]]:
    """Held-out pairs that can be ranked, as keys, with counts of the others."""
    skipped: dict[str, int] = {}
    _count(skipped, NO_HISTORY, int(((held_out.counts > 0) & ~trained).sum()))
    pairs = _keys(held_out)[trained[held_out.entry_rows]]
    is_warm = rankable[pairs % max(1, held_out.n_columns)]
    _count(skipped, COLD_TARGET, int((~is_warm).sum()))
    pairs = pairs[is_warm]
    fresh = np.setdiff1d(pairs, _keys(known), assume_unique=True)
    _count(skipped, KNOWN_TARGET, len(pairs) - len(fresh))
    return fresh, skipped


def _with_candidates(
    pairs: Keys, n_items: int, has_candidates: Mask, skipped: dict[str, int]
) -> Keys:
    """Leave out users that have nothing to rank against, and count them."""
    kept: Keys = pairs[has_candidates[pairs // n_items]]
    before, after = _users_of(pairs, n_items), _users_of(kept, n_items)
    _count(skipped, NO_CANDIDATES, len(before) - len(after))
    return kept


def _count(skipped: dict[str, int], reason: str, count: int) -> None:
    if count:
        skipped[reason] = count


def _keys(pairs: Csr) -> Keys:
    """One ascending number for each (row, column), if columns ascend."""
    keys: Keys = pairs.entry_rows.astype(np.int64) * pairs.n_columns + pairs.indices
    return keys


def _users_of(pairs: Keys, n_items: int) -> Rows:
    return np.unique(pairs // n_items).astype(np.int32)


def _by_user(pairs: Keys, users: Rows, n_items: int) -> Csr:
    """Entries of some users, one row for each of them."""
    firsts = users.astype(np.int64) * n_items
    starts, stops = np.searchsorted(pairs, firsts), np.searchsorted(pairs, firsts + n_items)
    lengths = stops - starts
    indptr = np.zeros(len(users) + 1, dtype=np.int64)
    np.cumsum(lengths, out=indptr[1:])
    places = np.arange(indptr[-1]) + np.repeat(starts - indptr[:-1], lengths)
    return Csr(indptr, (pairs[places] % n_items).astype(np.int32), n_items)
