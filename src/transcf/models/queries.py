"""`Answers`: queries to a fitted model, with the caller's ids in and tables out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, get_args

import polars as pl

from transcf.data.csr import Histories
from transcf.data.files import path_of
from transcf.data.ids import Id
from transcf.errors import NotFittedError, check_word
from transcf.models.explain import Explanation, explanation
from transcf.models.fitted import FittedScorer
from transcf.models.tables import (
    Fallback,
    Filters,
    OnUnknown,
    history_rows,
    pair_scores,
    recommendation_pieces,
    recommendations,
    session_recommendations,
    similar,
    user_rows,
)


class Answers:
    """Recommendations, explanations, scores and similar items, by id."""

    learned_: FittedScorer

    @property
    def is_fitted(self) -> bool:
        """Whether `fit` or `load` has run."""
        return "learned_" in vars(self)

    def _fitted(self) -> FittedScorer:
        """Return the fitted scorer, or raise a `NotFittedError`."""
        if not self.is_fitted:
            raise NotFittedError(f"This {type(self).__name__} is not fitted yet: call fit first.")
        return self.learned_

    def recommend(
        self,
        users: Any = None,
        k: int = 10,
        *,
        exclude_seen: bool = True,
        items: Any = None,
        exclude: Any = None,
        on_unknown: Fallback = "raise",
    ) -> pl.DataFrame:
        """Recommend items.

        Args:
            users: One id, several ids (each is answered once, in the order of the request), or
                None for every user with training interactions.
            k: Longest list; shorter where fewer items are left.
            exclude_seen: Whether to leave out the user's training items.
            items: The only items to choose from, or None for all: ids for all users, or a
                mapping from user ids to ids. Users that a mapping does not name get nothing.
            exclude: Items never to choose, in the same forms.
            on_unknown: What to do about users without training interactions: "raise" an error,
                "skip" them, or recommend "popular" items to them.

        Unknown ids in `items` and `exclude` are skipped; a warning says how many.

        Returns:
            Table `user_id, item_id, score, rank`, best first. Equal scores are ordered by item
            id, ascending. With "popular" there is a column `source` as well: "model", or
            "popularity" where the score is the number of users who have the item.

        Example:
            >>> import polars as pl
            >>> from transcf import EASE, read_interactions
            >>> log = read_interactions(pl.DataFrame(
            ...     {"user": ["ann", "ann", "bob", "cid"], "item": ["x", "y", "x", "z"]}))
            >>> model = EASE().fit(log)
            >>> model.recommend("bob", k=3, exclude=["z"])["item_id"].to_list()
            ['y']
            >>> model.recommend(["bob", "zoe"], k=1, on_unknown="popular").rows()
            [('bob', 'y', 0.0033112582750618458, 1, 'model'), ('zoe', 'x', 2.0, 1, 'popularity')]
        """
        filters = self._filters(exclude_seen, items, exclude, on_unknown)
        return recommendations(self._fitted(), users, k, filters)

    def recommend_all(
        self,
        path: str | Path,
        k: int = 10,
        *,
        users: Any = None,
        exclude_seen: bool = True,
        items: Any = None,
        exclude: Any = None,
        on_unknown: Fallback = "raise",
    ) -> Path:
        """Write the table of `recommend` to a file, in bounded memory.

        The ending of `path` says what is written: .csv, .tsv or .jsonl (any of them with .gz behind
        it), or .parquet. All other parameters are those of `recommend`. The file appears when it
        is whole; until then a file of that name stays as it was.

        Example:
            >>> from transcf import EASE, synthesize
            >>> print(EASE().fit(synthesize()).recommend_all("recs.parquet", k=20))
            recs.parquet
        """
        from transcf.data.writing import check_file, write_pieces

        target, filters = path_of(path), self._filters(exclude_seen, items, exclude, on_unknown)
        check_file(target)
        write_pieces(recommendation_pieces(self._fitted(), users, k, filters), target)
        return target

    def recommend_for(
        self,
        history: Iterable[Id] | Iterable[Iterable[Id]] | Mapping[Id, Iterable[Id]],
        k: int = 10,
        *,
        steps: int = 0,
        exclude_seen: bool = True,
        items: Any = None,
        exclude: Any = None,
        on_unknown: Fallback = "raise",
    ) -> pl.DataFrame:
        """Recommend items to users that the model was not fitted on, by their item histories.

        Args:
            history: Item ids, oldest first; of an item given twice the last place counts. Several
                sessions at once are a mapping from session ids to such lists, or a list of lists,
                whose session ids are 0, 1 and so on.
            k: Longest list; shorter where fewer items are left.
            steps: Training steps for each session after it is folded in; for models that support
                it (TransCF).
            exclude_seen: Whether to leave out the items of the history.
            items: The only items to choose from, as in `recommend`, but for all sessions.
            exclude: Items never to choose, likewise.
            on_unknown: What to do about items of a history that are unknown or have no training
                interactions: "raise" an error or "skip" them. A history without any usable item
                is an error, unless "popular" asks for popular items in that case.

        Returns:
            The table of `recommend` without users. Several sessions have a column `session_id`.

        Example:
            >>> from transcf import EASE, synthesize
            >>> model = EASE().fit(synthesize())
            >>> first, second, third = model.items_.series[:3].to_list()
            >>> model.recommend_for([first, second], k=3).shape
            (3, 3)
            >>> carts = {"cart-7": [first, second], "cart-9": [third]}
            >>> model.recommend_for(carts, k=2)["session_id"].to_list()
            ['cart-7', 'cart-7', 'cart-9', 'cart-9']
        """
        filters = self._filters(exclude_seen, items, exclude, on_unknown)
        return session_recommendations(self._fitted(), history, k, steps, filters)

    def _filters(
        self, exclude_seen: bool, items: Any, exclude: Any, on_unknown: Fallback
    ) -> Filters:
        return Filters.of(self._fitted().known.items, exclude_seen, items, exclude, on_unknown)

    def explain(
        self, user: Id, item: Id, top: int = 5, *, include_seen: bool = False
    ) -> Explanation:
        """Explain which items of a user drew another one.

        Every past item has an effect on the score and a share: its effect divided by the sum of
        all absolute effects. Positive effects drew the item, negative ones pushed it away. For
        EASE, SLIM, ItemKNN and FISM (where the length of a history scales all terms alike) an
        effect is the item's own term in the score, for iALS and eALS its term in the score of
        a new user with this history: they add up. For other models, which fold the history in, an
        effect is how far the past item lifts the score above that of an average item, compared
        with an average item in its place or (CDAE) with the history without it.

        Args:
            user: Id of a user with training interactions.
            item: Id of an item with training interactions.
            top: Number of past items to show that drew it; half as many are shown that pushed it
                away.
            include_seen: Whether an item of the user may be explained.

        Raises:
            UnknownIdError: An id is unknown or has no training interactions.
            UnsupportedError: The scores of the model do not depend on histories.

        Example:
            >>> import polars as pl
            >>> from transcf import ItemKNN, read_interactions
            >>> users, items = ["ann", "bob", "bob", "cid"], ["cup", "cup", "pot", "tea"]
            >>> log = read_interactions(pl.DataFrame({"user": users, "item": items}))
            >>> print(ItemKNN().fit(log).explain("ann", "pot").sentence)
            pot was drawn most by cup (+100 %).
        """
        learned = self._fitted()
        row = int(user_rows(learned, [user], "raise")[0])
        history = learned.known.histories[row]
        return explanation(
            learned, learned, (row, user), history, item, top, include_seen=include_seen
        )

    def explain_for(
        self,
        history: Iterable[Id],
        item: Id,
        top: int = 5,
        *,
        include_seen: bool = False,
        on_unknown: OnUnknown = "raise",
    ) -> Explanation:
        """Explain which items of a history drew another one, for a new user.

        The history and `on_unknown` are as for `recommend_for`, without "popular"; all else is as
        for `explain`.

        Example:
            >>> from transcf import EASE, synthesize
            >>> model = EASE().fit(synthesize())
            >>> first, second, other = model.items_.series[:3].to_list()
            >>> len(model.explain_for([first, second], other).effects)
            2
        """
        learned = self._fitted()
        check_word("on_unknown", on_unknown, get_args(OnUnknown))
        rows = history_rows(learned, history, on_unknown)
        scorer = learned.fold_in(Histories.of([rows], len(learned.known.items)))
        return explanation(learned, scorer, None, rows, item, top, include_seen=include_seen)

    def score(self, pairs: Any, *, on_unknown: OnUnknown = "raise") -> pl.DataFrame:
        """Score pairs given as a table with user and item columns.

        Args:
            pairs: The table, in any form that `read_interactions` takes; pairs may repeat.
            on_unknown: What to do about pairs with an id that was not in the training data:
                "raise" an error or "skip" them.

        Returns:
            Table `user_id, item_id, score` in the order of the pairs; the score is null where
            the item or the user is known but has no training interactions.
        """
        return pair_scores(self._fitted(), pairs, on_unknown)

    def similar_items(
        self, items: Any, k: int = 10, *, on_unknown: OnUnknown = "raise"
    ) -> pl.DataFrame:
        """Find the items most similar to some items.

        Models in a metric space go by distance (its square, negative), those with inner products
        by the cosine of item vectors, EASE, SLIM and FISM by how much having the item speaks for
        another, and ItemKNN by the similarities that it keeps for the item.

        Args:
            items: One id or several; each is answered once, in the order of the request.
            k: Longest list; shorter where there are fewer similar items.
            on_unknown: What to do about items that are unknown or have no training interactions:
                "raise" an error or "skip" them.

        Returns:
            Table `item_id, neighbor_id, score, rank`, best first; equal scores by id.

        Raises:
            UnsupportedError: The model has neither vectors nor weights of items.
        """
        learned = self._fitted()
        return similar(learned, "item", learned.item_similarity(), items, k, on_unknown)

    def similar_users(
        self, users: Any, k: int = 10, *, on_unknown: OnUnknown = "raise"
    ) -> pl.DataFrame:
        """Find the users most similar to some users, by the distance or cosine of their vectors.

        As `similar_items`, with ids of users; models without such vectors raise an
        `UnsupportedError`.
        """
        learned = self._fitted()
        return similar(learned, "user", learned.user_similarity(), users, k, on_unknown)
