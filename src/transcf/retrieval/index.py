"""An approximate index over item vectors, for catalogues that are too large to scan.

Items are assigned to lists by nearness and kept there as codes of a few bytes. A search looks
through the most promising lists, and the best of what it meets is scored again in full, so that
scores and order of what is returned are those of `top_k`. Before that, vectors are turned such
that nearness means what it means for a score: items are weighed by how much users differ along
each axis, and the axes that hardly move any score are dropped (257 become about 65). That needs
no augmentation to a Euclidean distance: lists are made by distance and chosen by inner product.

The library underneath is faiss. On 200,000 vectors shaped like a trained TransCF model (257 wide,
one thread, recall@10 of .963, candidates scored again): faiss 3,100 queries/s, built in 19 s;
hnswlib 2,200 in 70 s; usearch 790 in 95 s. The graphs had the turned vectors, augmented to L2.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from transcf.data.atomic import atomic_write
from transcf.data.csr import Csr
from transcf.data.files import path_of
from transcf.data.ids import UNKNOWN, Rows
from transcf.data.interactions import Mask
from transcf.data.report import counted
from transcf.errors import EvaluationError, ModelFileError, ParameterError, shown
from transcf.io import tensors
from transcf.io.tensors import Arrays
from transcf.parallel import parallel_for
from transcf.retrieval.index_parts import Projection, faiss_library, fill_lists
from transcf.retrieval.scorer import FormView, LinearForm, Scores, StoredForm
from transcf.retrieval.sums import Queries, best_of_sums

_FORMAT, _VERSION = "transcf-index", 1
_ARRAYS = ("item_vectors", "rows", "user_map", "item_map", "item_mean", "lists")
#: With fewer items than this the exact engine is as quick, and answers everything.
SMALLEST = 10_000
#: Users whose exact lists tell how many lists of items have to be looked through.
_JUDGES = 256
#: How deep searches are judged, by whether they find the ten items above each depth: a user who
#: has seen the best 90 items needs the items at ranks 90 to 100.
_DEPTHS = (10, 100, 1000)
_JUDGED = 10
#: Users of one search, so that memory stays small.
_BLOCK = 1024
#: How much further each attempt looks, for users who have seen most of what was found.
_WIDENINGS = (1, 4, 16)


@dataclass(frozen=True, eq=False)
class SearchResult:
    """Result of a search.

    Attributes:
        items: (n, k) int32 item rows, best first, equal scores by row; -1 where none is left.
        scores: (n, k) float32, as `top_k` gives them; NaN where no item is left.
        exact: How many users the exact engine had to answer.
    """

    items: Rows
    scores: Scores
    exact: int


@dataclass(eq=False)
class _SearchRequest:
    """A search while it is being answered."""

    form: LinearForm
    queries: Scores
    k: int
    seen: Csr | None
    left_over: npt.NDArray[np.int64]
    items: Rows
    scores: Scores


@dataclass(frozen=True, eq=False)
class ItemIndex:
    """Finds the items with the largest inner products without looking at all of them.

    Attributes:
        item_vectors: (n_items, d) float32.
        rows: (n,) the item rows that can be found, ascending.
        recall: Share of the true best ten that was found for a sample of users when it was built.
        probes: How many lists a search looks through to reach the depths 10, 100 and 1000.

    Example:
        >>> index = ItemIndex.build(form, model.rankable)  # doctest: +SKIP
        >>> index.search(form.user_vectors[:5], 10).items.shape  # doctest: +SKIP
        (5, 10)
    """

    item_vectors: Scores
    rows: Rows
    projection: Projection = field(repr=False)
    recall: float = 1.0
    probes: tuple[int, ...] = ()
    lists: Any = field(default=None, repr=False)

    @classmethod
    def build(
        cls,
        form: LinearForm,
        allowed: Mask | None = None,
        *,
        recall: float = 0.96,
        random_state: int = 0,
    ) -> ItemIndex:
        """Build an index of a model's items.

        Args:
            form: The model's scores as inner products; its users show what will be asked.
            allowed: (n_items,) items that may be found, or None for all.
            recall: Share of the true best to be found; a search looks as far as it takes to
                find it for a sample of the users; users unlike all of them may get less.
            random_state: Seed.

        Raises:
            MissingExtraError: faiss is not installed.
            EvaluationError: A vector has NaN or infinite entries.
            ParameterError: `recall` is not between 0 and 1.
        """
        if not 0 < recall <= 1:
            raise ParameterError(f"recall={shown(recall)} is not allowed; it must be in (0, 1].")
        faiss_library()  # small catalogues do without it; they do not hide that it is missing
        n_items = len(form.item_vectors)
        mask = np.ones(n_items, dtype=bool) if allowed is None else allowed
        rows = np.flatnonzero(mask).astype(np.int32)
        _check_finite(form, rows)
        projection = Projection.of(form, rows)
        if len(rows) < SMALLEST:
            return cls(form.item_vectors, rows, projection)
        points = projection.items(form.item_vectors, rows)
        lists = fill_lists(points, random_state)
        untuned = cls(form.item_vectors, rows, projection, recall=0.0, lists=lists)
        return untuned._tuned(form, recall, random_state)

    def search(
        self,
        user_vectors: Scores,
        k: int,
        *,
        constants: Scores | None = None,
        seen: Csr | None = None,
    ) -> SearchResult:
        """Find the best k items of each user, nearly always the true ones.

        Args:
            user_vectors: (n, d) the users' side of the linear form.
            k: Length of the lists.
            constants: (n,) to be added to the scores, or None for zeros.
            seen: Items that are left out, one row for each of the users, or None. Lists are
                filled up to k as long as items are left.
        """
        n, width = user_vectors.shape
        if width != self.item_vectors.shape[1]:
            raise ParameterError(
                f"The user vectors are {width} wide and the indexed items are "
                f"{self.item_vectors.shape[1]}: both must come from the same model."
            )
        if constants is None:
            constants = np.zeros(n, dtype=np.float32)
        form = StoredForm(user_vectors, self.item_vectors, constants)
        request = _SearchRequest(
            form=form,
            queries=self.projection.users(user_vectors),
            k=k,
            seen=seen,
            left_over=np.full(n, len(self.rows)) - self._seen_counts(n, seen),
            items=np.full((n, k), UNKNOWN, dtype=np.int32),
            scores=np.full((n, k), np.nan, dtype=np.float32),
        )
        open_users = np.arange(n, dtype=np.int32)
        if self.lists is not None and k:
            for widening in _WIDENINGS:
                open_users = self._attempt(request, open_users, widening)
        if len(open_users):
            scorer = FormView("index", self._mask(), form)
            best, scores = scorer.top_k(open_users, k, seen=seen)
            request.items[open_users], request.scores[open_users] = best, scores
        return SearchResult(request.items, request.scores, len(open_users))

    def search_sums(self, queries: Queries, k: int, *, seen: Csr | None = None) -> SearchResult:
        """Find the best k items of users with several queries each, which are searched for in turn.

        Scores are those of the sums. With lists that a search knows in full (small catalogues), the
        answer is exact; else it is as good as the searches are.

        Args:
            queries: Of the users.
            k: Length of the lists.
            seen: As for `search`.
        """
        n, answered = len(queries.starts) - 1, 0

        def search(
            vectors: Scores, constants: Scores, length: int, hidden: Csr | None
        ) -> tuple[Rows, Scores]:
            nonlocal answered
            found = self.search(vectors, length, constants=constants, seen=hidden)
            answered += found.exact > 0
            return found.items, found.scores

        items, scores = best_of_sums(search, queries, self.item_vectors, k, seen)
        return SearchResult(items, scores, min(n, answered))

    def save(self, path: str | Path) -> Path:
        """Write the index to one safetensors file, all or nothing; it holds no code."""
        lists = np.empty(0, dtype=np.uint8)
        if self.lists is not None:
            lists = faiss_library().serialize_index(self.lists)
        arrays: Arrays = {
            "item_vectors": self.item_vectors,
            "rows": self.rows,
            "user_map": self.projection.user_map,
            "item_map": self.projection.item_map,
            "item_mean": self.projection.item_mean,
            "lists": lists,
        }
        arrays = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
        about: dict[str, Any] = {"format": _FORMAT, "version": _VERSION}
        about |= {"recall": self.recall, "probes": self.probes}
        about["sha256"] = _checksum(about, arrays)
        with atomic_write(path_of(path)) as unfinished:
            tensors.write(unfinished, arrays, json.dumps(about))
        return path_of(path)

    @classmethod
    def load(cls, path: str | Path) -> ItemIndex:
        """Read an index that `save` wrote, after comparing it with its checksum.

        The checksum finds damage; it does not prove who wrote the file. Its lists are read by
        faiss, which is not made for files of strangers.

        Raises:
            ModelFileError: The file is missing, damaged, altered or too new.
        """
        source = path_of(path)
        if not source.is_file():
            raise ModelFileError(f"There is no index file {source}.")
        try:
            about, arrays = _read(source)
        except (KeyError, ValueError, TypeError) as error:
            raise ModelFileError(
                f"{source} is damaged or not an index: build it again with "
                "`transcf export --to index`."
            ) from error
        faiss = faiss_library()
        lists = faiss.deserialize_index(arrays["lists"]) if len(arrays["lists"]) else None
        projection = Projection(arrays["user_map"], arrays["item_map"], arrays["item_mean"])
        probes = tuple(about["probes"])
        rows = (arrays["item_vectors"], arrays["rows"])
        return cls(*rows, projection, about["recall"], probes, lists)

    def _mask(self) -> Mask:
        mask = np.zeros(len(self.item_vectors), dtype=bool)
        mask[self.rows] = True
        return mask

    def _seen_counts(self, n: int, seen: Csr | None) -> npt.NDArray[np.int64]:
        """(n,) how many of the items that can be found each user has seen."""
        if seen is None:
            return np.zeros(n, dtype=np.int64)
        if seen.n_rows != n:
            raise ParameterError(
                f"seen has {counted(seen.n_rows, 'row')} for {counted(n, 'user')}: give one row "
                "for each user."
            )
        before = np.zeros(len(seen.indices) + 1, dtype=np.int64)
        np.cumsum(self._mask()[seen.indices], out=before[1:])
        return np.diff(before[seen.indptr])

    def _attempt(self, request: _SearchRequest, users: Rows, widening: int) -> Rows:
        """Answer who can be answered by looking so far; return the others."""
        depth = request.k + len(self.rows) - request.left_over[users]
        wanted = widening * (2 * depth + 40)
        # Few different lengths, so that users can be searched for together.
        fetch = np.minimum(2 ** np.ceil(np.log2(wanted)).astype(np.int64), len(self.rows))
        unanswered = []
        for length in np.unique(fetch):
            group = users[fetch == length]
            probes = widening * self._probes_for(int(depth[fetch == length].max()))
            for start in range(0, len(group), _BLOCK):
                some = group[start : start + _BLOCK]
                unanswered.append(self._answer(request, some, int(length), probes))
        return np.concatenate(unanswered) if unanswered else users

    def _probes_for(self, depth: int) -> int:
        """How many lists to look through to reach a depth: on a line through what was measured."""
        depths = np.array(_DEPTHS[: len(self.probes)])
        probes = np.exp(np.interp(np.log(depth), np.log(depths), np.log(self.probes)))
        beyond = max(1.0, depth / depths[-1])
        return int(np.ceil(probes * beyond))

    def _answer(self, request: _SearchRequest, users: Rows, fetch: int, probes: int) -> Rows:
        """Search for some users; write complete lists and return who has none."""
        parameters = faiss_library().SearchParametersIVF(nprobe=min(probes, self.lists.nlist))
        _, places = self.lists.search(request.queries[users], fetch, params=parameters)
        items = self.rows[places]  # -1 means not found: any item, ranked last
        absent = places < 0
        if request.seen is not None:
            absent |= _contains(request.seen, users, items)
        scores = np.empty(items.shape, dtype=np.float32)

        def score(first: int, end: int) -> None:
            owners = np.repeat(users[first:end], fetch)
            found = request.form.scores(owners, items[first:end].ravel())
            scores[first:end] = found.reshape(-1, fetch)

        parallel_for(len(users), score, least=32)
        scores[absent] = -np.inf
        k = min(request.k, fetch)
        order = np.lexsort((items, -scores), axis=-1)[:, :k]
        enough = np.minimum(request.k, request.left_over[users])
        complete: Mask = fetch - absent.sum(axis=1) >= enough
        best, best_scores = (np.take_along_axis(table, order, axis=1) for table in (items, scores))
        nothing = np.isneginf(best_scores)
        best[nothing], best_scores[nothing] = UNKNOWN, np.nan
        done, others = users[complete], users[~complete]
        request.items[done, :k], request.scores[done, :k] = best[complete], best_scores[complete]
        return others

    def _tuned(self, form: LinearForm, recall: float, random_state: int) -> ItemIndex:
        """Return the same index with as many probes as it takes to find what is asked for."""
        random = np.random.default_rng(random_state)
        n_users = len(form.user_vectors)
        judges = random.choice(n_users, min(_JUDGES, n_users), replace=False).astype(np.int32)
        scorer = FormView("index", self._mask(), form)
        truth, _ = scorer.top_k(judges, min(_DEPTHS[-1], len(self.rows)))
        tuned = replace(self, probes=(4,))
        for level, depth in enumerate(_DEPTHS):
            best = truth[:, max(0, depth - _JUDGED) : depth]
            if not best.size:
                break
            reached, probes = 0.0, tuned.probes[-1]
            while reached < recall and probes < self.lists.nlist:
                probes = min(-(-5 * probes // 4), self.lists.nlist)
                tuned = replace(tuned, probes=(*tuned.probes[:level], probes))
                reached = tuned._share_found(form.user_vectors[judges], best, depth)
            if level == 0:
                tuned = replace(tuned, recall=reached)
        return tuned

    def _share_found(self, user_vectors: Scores, wanted: Rows, depth: int) -> float:
        """Share of the wanted item rows, (n, m), that are among the first `depth` found."""
        found = self.search(user_vectors, depth).items
        hits = [np.isin(row, some) for row, some in zip(wanted, found, strict=True)]
        return float(np.mean(hits))


def _contains(listed: Csr, users: Rows, items: Rows) -> Mask:
    """(n, m) which items are in the row of their user."""
    hits = np.zeros(items.shape, dtype=bool)
    for place, user in enumerate(users):
        row = listed.row(user)
        if len(row):
            spots = np.minimum(np.searchsorted(row, items[place]), len(row) - 1)
            hits[place] = row[spots] == items[place]
    return hits


def _check_finite(form: LinearForm, rows: Rows) -> None:
    if not (np.isfinite(form.item_norms[rows]).all() and np.isfinite(form.user_vectors).all()):
        raise EvaluationError(
            "A vector has NaN or infinite entries and cannot be indexed: check that the training "
            "of the model converged."
        )


def _read(path: Path) -> tuple[dict[str, Any], Arrays]:
    try:
        text, stored = tensors.read_with_about(path)
    except ModelFileError as error:
        raise ValueError("not a file of arrays") from error
    about = json.loads(text)
    if about["format"] != _FORMAT:
        raise ValueError("not an index")
    if about["version"] > _VERSION:
        raise ModelFileError(
            f"{path} is an index of version {about['version']} and this library reads "
            f"{_VERSION}: update the library or build the index again."
        )
    arrays = {name: stored[name].copy() for name in _ARRAYS}  # faiss wants arrays of its own
    if about.pop("sha256") != _checksum(about, arrays):
        raise ValueError("the checksum does not fit")
    return about, arrays


def _checksum(about: dict[str, Any], arrays: Arrays) -> str:
    digest = hashlib.sha256(json.dumps(about, sort_keys=True).encode())
    for name, array in sorted(arrays.items()):
        digest.update(f"{name} {array.dtype} {array.shape}".encode())
        digest.update(array.data)
    return digest.hexdigest()
