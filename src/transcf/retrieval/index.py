"""An approximate index over item vectors, for catalogues that are too large to scan.

faiss assigns items to lists and keeps codes of half a byte for each axis. A search looks through
the lists with the best inner products and scores its candidates again, so that scores and order are
those of `top_k`. Before that, a projection weighs items by how much users differ along each axis
and drops axes that hardly change scores (257 become about 65). faiss has PCA of the items alone,
which finds .89 of the best of 60,000 items even in all lists (`benchmarks/index.py`).
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

from transcf.data.atomic import atomic_write
from transcf.data.csr import Csr
from transcf.data.files import path_of
from transcf.data.ids import UNKNOWN, Rows
from transcf.data.interactions import Mask
from transcf.data.report import counted
from transcf.errors import EvaluationError, ModelFileError, ParameterError, needs_extra, shown
from transcf.io import tensors
from transcf.io.tensors import Arrays
from transcf.parallel import parallel_for, thread_count
from transcf.retrieval.scorer import FormView, LinearForm, Scores, StoredForm

_FORMAT, _VERSION = "transcf-index", 2
#: With fewer items than this the exact engine is as quick, and answers everything.
SMALLEST = 10_000
#: Share of the variance of scores that the kept axes hold.
_KEPT = 0.995
#: Vectors that axes are made from, at most.
_SAMPLE = 50_000
#: Axes along which users differ less than this, relative to the first, count as if they did.
_FLOOR = 1e-6
#: Users whose exact lists tell how many lists of items have to be looked through.
_JUDGES = 256
#: How deep searches are judged, by whether they find the ten items above each depth: a user who
#: has seen the best 90 items needs the items at ranks 90 to 100.
_DEPTHS = (10, 100, 1000)
_JUDGED = 10
#: Users of one search, so that memory stays small.
_BLOCK = 1024


@dataclass(frozen=True, eq=False)
class SearchResult:
    """Result of a search."""

    items: Rows  # (n, k) rows, best first, equal scores by row; -1 where none is left
    scores: Scores  # (n, k) as `top_k` gives them; NaN where no item is left
    exact: int  # how many users the exact engine had to answer


def faiss_library() -> ModuleType:
    """Return faiss, with as many threads as kernels use."""
    with needs_extra("An approximate index", "index"):
        import faiss
    faiss.omp_set_num_threads(thread_count())
    return faiss  # type: ignore[no-any-return, unused-ignore]


@dataclass(frozen=True, eq=False)
class ItemIndex:
    """Finds the items with the largest inner products without looking at all of them.

    Example:
        >>> index = ItemIndex.build(form, model.rankable)  # doctest: +SKIP
        >>> index.search(form.user_vectors[:5], 10).items.shape  # doctest: +SKIP
        (5, 10)
    """

    item_vectors: Scores  # (n_items, d)
    rows: Rows  # (n,) the items that can be found, ascending
    user_map: Scores = field(repr=False)  # (d, width), projects user vectors; empty for few items
    recall: float = 1.0  # share of the true best ten that a sample of users found after the build
    probes: tuple[int, ...] = ()  # lists that a search looks through for depths 10, 100 and 1000
    lists: Any = field(default=None, repr=False)  # the faiss index; None for small catalogues

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
        faiss = faiss_library()  # small catalogues do not need it, nor hide that it is missing
        n_items = len(form.item_vectors)
        mask = np.ones(n_items, dtype=bool) if allowed is None else allowed
        rows = np.flatnonzero(mask).astype(np.int32)
        if not (np.isfinite(form.item_norms[rows]).all() and np.isfinite(form.user_vectors).all()):
            raise EvaluationError(
                "A vector has NaN or infinite entries and cannot be indexed: check that the "
                "training of the model converged."
            )
        if len(rows) < SMALLEST:
            return cls(form.item_vectors, rows, np.empty((0, 0), np.float32))
        user_map, points = _projected(form, rows)
        width, n_lists = points.shape[1], int(4 * np.sqrt(len(rows)))
        described = f"IVF{n_lists},PQ{width}x4fs"
        lists = faiss.index_factory(width, described, faiss.METRIC_INNER_PRODUCT)
        lists.cp.seed, lists.cp.niter = random_state, 10
        lists.cp.min_points_per_centroid, lists.cp.max_points_per_centroid = 1, 64
        lists.train(points)
        lists.add(points)
        untuned = cls(form.item_vectors, rows, user_map, recall=0.0, probes=(4,), lists=lists)
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
        items = np.full((n, k), UNKNOWN, dtype=np.int32)
        scores = np.full((n, k), np.nan, dtype=np.float32)
        n_seen = self._seen_counts(n, seen)
        is_open = np.ones(n, dtype=bool)
        order = np.argsort(n_seen, kind="stable").astype(np.int32)
        for start in range(0, n, _BLOCK) if self.lists is not None and k else ():
            some = order[start : start + _BLOCK]
            found, values = self._candidates(form, some, k + int(n_seen[some[-1]]), seen)
            # Complete lists have k items, or all that are left.
            left = len(self.rows) - n_seen[some]
            complete = (found != UNKNOWN).sum(axis=1) >= np.minimum(k, left)
            done, length = some[complete], min(k, found.shape[1])
            items[done, :length] = found[complete, :length]
            scores[done, :length] = values[complete, :length]
            is_open[done] = False
        rest = np.flatnonzero(is_open).astype(np.int32)
        if len(rest):
            items[rest], scores[rest] = self._exact(form).top_k(rest, k, seen=seen)
        return SearchResult(items, scores, len(rest))

    def save(self, path: str | Path) -> Path:
        """Write the index to one safetensors file, all or nothing; it holds no code."""
        lists = np.empty(0, np.uint8)
        if self.lists is not None:
            lists = faiss_library().serialize_index(self.lists)
        arrays: Arrays = {"item_vectors": self.item_vectors, "rows": self.rows, "lists": lists}
        arrays["user_map"] = self.user_map
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
            ModelFileError: The file is missing, damaged, altered, too old or too new.
        """
        source = path_of(path)
        if not source.is_file():
            raise ModelFileError(f"There is no index file {source}.")
        again = "build it again with `transcf export --to index`"
        try:
            text, found = tensors.read_with_about(source)
            about = json.loads(text)
            version, is_index = about["version"], about["format"] == _FORMAT
            arrays = {name: array.copy() for name, array in found.items()}  # faiss wants its own
            if not is_index or (
                version == _VERSION and about.pop("sha256") != _checksum(about, arrays)
            ):
                raise ValueError("another file, or an altered one")
        except (KeyError, ValueError, TypeError, ModelFileError) as error:
            raise ModelFileError(f"{source} is damaged or not an index: {again}.") from error
        if version != _VERSION:
            raise ModelFileError(
                f"{source} is an index of version {version} and this library reads {_VERSION}: "
                f"update the library, or {again}."
            )
        faiss, stored = faiss_library(), arrays["lists"]
        lists = faiss.deserialize_index(stored) if len(stored) else None
        vectors, rows, user_map = (arrays[name] for name in ("item_vectors", "rows", "user_map"))
        return cls(vectors, rows, user_map, about["recall"], tuple(about["probes"]), lists)

    @cached_property
    def _mask(self) -> Mask:
        """(n_items,) the items that can be found."""
        mask = np.zeros(len(self.item_vectors), dtype=bool)
        mask[self.rows] = True
        return mask

    def _exact(self, form: LinearForm) -> FormView:
        return FormView("index", self._mask, form)

    def _seen_counts(self, n: int, seen: Csr | None) -> npt.NDArray[np.int64]:
        """(n,) how many of the items that can be found each user has seen."""
        if seen is None:
            return np.zeros(n, dtype=np.int64)
        if seen.n_rows != n:
            raise ParameterError(
                f"seen has {counted(seen.n_rows, 'row')} for {counted(n, 'user')}: give one row "
                "for each user."
            )
        before = np.concatenate([[0], np.cumsum(self._mask[seen.indices])])
        return np.diff(before[seen.indptr])

    def _candidates(
        self, form: LinearForm, users: Rows, depth: int, seen: Csr | None
    ) -> tuple[Rows, Scores]:
        """Search for some users; returns unseen items, best first, and scores: (n, m) each."""
        faiss, fetch = faiss_library(), min(2 * depth + 40, len(self.rows))
        # The number of lists to look through is interpolated between the depths.
        depths = np.array(_DEPTHS[: len(self.probes)])
        probes = np.exp(np.interp(np.log(depth), np.log(depths), np.log(self.probes)))
        probes = min(int(np.ceil(probes * max(1.0, depth / depths[-1]))), self.lists.nlist)
        parameters = faiss.SearchParametersIVF(nprobe=probes)
        queries = np.ascontiguousarray(form.user_vectors[users] @ self.user_map)
        _, places = self.lists.search(queries, fetch, params=parameters)
        items = self.rows[places]  # -1 means not found: any item, ranked last
        absent = places < 0
        if seen is not None:
            rows = zip(users, items, strict=True)
            absent |= np.stack([np.isin(some, seen.row(user)) for user, some in rows])
        scores = np.empty(items.shape, dtype=np.float32)

        def score(first: int, end: int) -> None:
            owners = np.repeat(users[first:end], fetch)
            found = form.scores(owners, items[first:end].ravel())
            scores[first:end] = found.reshape(-1, fetch)

        parallel_for(len(users), score, least=32)
        scores[absent] = -np.inf
        order = np.lexsort((items, -scores), axis=-1)
        items, scores = (np.take_along_axis(table, order, axis=1) for table in (items, scores))
        absent = np.isneginf(scores)
        items[absent], scores[absent] = UNKNOWN, np.nan
        return items, scores

    def _tuned(self, form: LinearForm, recall: float, random_state: int) -> ItemIndex:
        """Return the same index with as many probes as it takes to find what is asked for."""
        random, n_users = np.random.default_rng(random_state), len(form.user_vectors)
        judges = random.choice(n_users, min(_JUDGES, n_users), replace=False).astype(np.int32)
        truth, _ = self._exact(form).top_k(judges, min(_DEPTHS[-1], len(self.rows)))
        tuned = self
        for level, depth in enumerate(_DEPTHS):
            best = truth[:, max(0, depth - _JUDGED) : depth]
            if not best.size:
                break
            reached, probes = 0.0, tuned.probes[-1]
            while reached < recall and probes < self.lists.nlist:
                probes = min(-(-5 * probes // 4), self.lists.nlist)
                tuned = replace(tuned, probes=(*tuned.probes[:level], probes))
                found = tuned.search(form.user_vectors[judges], depth).items
                hits = [np.isin(row, some) for row, some in zip(best, found, strict=True)]
                reached = float(np.mean(hits))
            if level == 0:
                tuned = replace(tuned, recall=reached)
        return tuned


def _projected(form: LinearForm, rows: Rows) -> tuple[Scores, Scores]:
    """Return a map of user vectors to few axes, (d, width), and items there, (n, width).

    With C the second moments of user vectors, `x . y = (C^-1/2 x) . (C^1/2 y)`; the mean square
    of what an error in y does to a score is then its plain length. Principal axes of the mapped
    items, around their mean (a user's items all lose the same by it), are the ones that matter.
    """
    users = form.user_vectors[:: -(-len(form.user_vectors) // _SAMPLE)].astype(np.float64)
    size, axes = np.linalg.eigh(users.T @ users / len(users))
    spread = np.sqrt(np.maximum(size, max(_FLOOR * size[-1], 1e-30)))
    items = form.item_vectors[rows[:: -(-len(rows) // _SAMPLE)]].astype(np.float64)
    mean = items.mean(axis=0)
    weighed = (items - mean) @ (axes * spread)
    energy, turn = np.linalg.eigh(weighed.T @ weighed)
    held = np.cumsum(np.maximum(energy[::-1], 0.0))
    kept = turn[:, ::-1][:, : 1 + int(np.searchsorted(held, _KEPT * held[-1]))]
    item_map, points = ((axes * spread) @ kept).astype(np.float32), []
    for first in range(0, len(rows), _SAMPLE):
        some = form.item_vectors[rows[first : first + _SAMPLE]]
        points.append((some - mean.astype(np.float32)) @ item_map)
    return ((axes / spread) @ kept).astype(np.float32), np.concatenate(points)


def _checksum(about: dict[str, Any], arrays: Arrays) -> str:
    digest = hashlib.sha256(json.dumps(about, sort_keys=True).encode())
    for name, array in sorted(arrays.items()):
        digest.update(f"{name} {array.dtype} {array.shape}".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()
