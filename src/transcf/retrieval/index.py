"""An approximate index over item vectors, for catalogues that are too large to scan.

faiss assigns items to lists by distance and keeps codes of a few bytes. A search looks through the
lists with the best inner products and scores its candidates again, so that scores and order are
those of `top_k`. Before that, a projection weighs items by how much users differ along each axis
and drops axes that hardly change scores (257 become about 65), which `index_factory` cannot do. On
200,000 vectors like those of TransCF (one thread, recall@10 .963), faiss answers 3,100 queries/s
and is built in 19 s; hnswlib 2,200 in 70 s; usearch 790 in 95 s (`benchmarks/index.py`).
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field, replace
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
from transcf.errors import (
    EvaluationError,
    MissingExtraError,
    ModelFileError,
    ParameterError,
    shown,
)
from transcf.io import tensors
from transcf.io.tensors import Arrays
from transcf.parallel import parallel_for, thread_count
from transcf.retrieval.scorer import FormView, LinearForm, Scores, StoredForm

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

#: Share of the variance of scores that the kept axes hold.
_KEPT = 0.995
#: Vectors that axes are made from, at most.
_SAMPLE = 50_000
#: Axes along which users differ less than this, relative to the first, count as if they did.
_FLOOR = 1e-6


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


@dataclass(frozen=True, eq=False)
class Projection:
    """Maps both sides of a linear form to few axes that keep the order of a user's items.

    With C the second moments of user vectors, `x . y = (C^-1/2 x) . (C^1/2 y)`; the mean square
    of what an error in y does to a score is then its plain length. Principal axes of the mapped
    items, around their mean (a user's items all lose the same by it), are the ones that matter.

    The maps are (d, width), the mean is (d,).
    """

    user_map: Scores
    item_map: Scores
    item_mean: Scores

    @classmethod
    def of(cls, form: LinearForm, rows: Rows) -> Projection:
        """Make it from a model's users and some item rows."""
        users = _sample(form.user_vectors, np.arange(len(form.user_vectors), dtype=np.int32))
        size, axes = np.linalg.eigh(users.T @ users / max(1, len(users)))
        spread = np.sqrt(np.maximum(size, max(_FLOOR * size[-1], 1e-30)))
        items = _sample(form.item_vectors, rows)
        mean = items.mean(axis=0) if len(items) else np.zeros(form.item_vectors.shape[1])
        weighed = (items - mean) @ (axes * spread)
        energy, turn = np.linalg.eigh(weighed.T @ weighed)
        held = np.cumsum(np.maximum(energy[::-1], 0.0))
        kept = turn[:, ::-1][:, : 1 + int(np.searchsorted(held, _KEPT * held[-1]))]
        maps = ((axes / spread) @ kept, (axes * spread) @ kept, mean)
        return cls(*(np.ascontiguousarray(part, dtype=np.float32) for part in maps))

    def users(self, vectors: Scores) -> Scores:
        """Map user vectors: (n, width)."""
        return np.ascontiguousarray(vectors @ self.user_map)

    def items(self, vectors: Scores, rows: Rows) -> Scores:
        """Map the vectors of some item rows: (n, width)."""
        points = np.empty((len(rows), self.item_map.shape[1]), dtype=np.float32)
        for start in range(0, len(rows), _SAMPLE):
            part = slice(start, start + _SAMPLE)
            points[part] = (vectors[rows[part]] - self.item_mean) @ self.item_map
        return points


def _sample(vectors: Scores, rows: Rows) -> npt.NDArray[np.float64]:
    """Return vectors spread evenly over the rows, in float64."""
    return vectors[rows[:: -(-max(1, len(rows)) // _SAMPLE)]].astype(np.float64)


def fill_lists(points: Scores, random_state: int) -> Any:
    """Assign points to lists by distance; searches choose lists by inner product."""
    faiss = faiss_library()
    n, width = points.shape
    n_lists = int(4 * np.sqrt(n))
    sample = points[np.random.default_rng(random_state).permutation(n)[: 64 * n_lists]]
    # Limits for warnings and sampling; the sample is drawn here.
    limits = {"min_points_per_centroid": 1, "max_points_per_centroid": 64}
    means = faiss.Kmeans(width, n_lists, niter=10, seed=random_state, **limits)
    means.train(sample)
    by_distance, by_product = faiss.IndexFlatL2(width), faiss.IndexFlatIP(width)
    by_distance.add(means.centroids)
    by_product.add(means.centroids)
    # Half a byte for every axis: tables of 16 entries stay in registers, and twice as many
    # candidates as are wanted hold the true ones.
    metric = faiss.METRIC_INNER_PRODUCT
    lists = faiss.IndexIVFPQFastScan(by_distance, width, n_lists, width, 4, metric)
    lists.by_residual = True
    lists.train(sample)
    lists.add(points)
    lists.quantizer = by_product
    # A copy owns all of its parts; this one borrows them from here.
    return faiss.deserialize_index(faiss.serialize_index(lists))


def faiss_library() -> ModuleType:
    """Return faiss, with as many threads as kernels use."""
    try:
        import faiss
    except ImportError as error:
        raise MissingExtraError("An approximate index", "index") from error
    faiss.omp_set_num_threads(thread_count())
    return faiss  # type: ignore[no-any-return, unused-ignore]


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
        if not (np.isfinite(form.item_norms[rows]).all() and np.isfinite(form.user_vectors).all()):
            raise EvaluationError(
                "A vector has NaN or infinite entries and cannot be indexed: check that the "
                "training of the model converged."
            )
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
        items = np.full((n, k), UNKNOWN, dtype=np.int32)
        scores = np.full((n, k), np.nan, dtype=np.float32)
        left = len(self.rows) - self._seen_counts(n, seen)
        open_users = np.arange(n, dtype=np.int32)
        if self.lists is not None and k:
            queries, unanswered = self.projection.users(user_vectors), [open_users[:0]]
            depth = k + len(self.rows) - left
            order = np.argsort(depth, kind="stable").astype(np.int32)
            for some in (order[start : start + _BLOCK] for start in range(0, n, _BLOCK)):
                found, values = self._candidates(queries, form, some, int(depth[some[-1]]), seen)
                # Complete lists have k items, or all that are left.
                complete = (found != UNKNOWN).sum(axis=1) >= np.minimum(k, left[some])
                done, length = some[complete], min(k, found.shape[1])
                items[done, :length] = found[complete, :length]
                scores[done, :length] = values[complete, :length]
                unanswered.append(some[~complete])
            open_users = np.concatenate(unanswered)
        if len(open_users):
            scorer = FormView("index", self._mask(), form)
            items[open_users], scores[open_users] = scorer.top_k(open_users, k, seen=seen)
        return SearchResult(items, scores, len(open_users))

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
        stored, faiss = arrays.pop("lists"), faiss_library()
        return cls(
            arrays["item_vectors"],
            arrays["rows"],
            Projection(arrays["user_map"], arrays["item_map"], arrays["item_mean"]),
            about["recall"],
            tuple(about["probes"]),
            faiss.deserialize_index(stored) if len(stored) else None,
        )

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

    def _probes_for(self, depth: int) -> int:
        """Interpolate how many lists to look through to reach a depth."""
        depths = np.array(_DEPTHS[: len(self.probes)])
        probes = np.exp(np.interp(np.log(depth), np.log(depths), np.log(self.probes)))
        return int(np.ceil(probes * max(1.0, depth / depths[-1])))

    def _candidates(
        self,
        queries: Scores,
        form: LinearForm,
        users: Rows,
        depth: int,
        seen: Csr | None,
    ) -> tuple[Rows, Scores]:
        """Search for some users; returns unseen items, best first, and scores: (n, m) each."""
        fetch = min(2 * depth + 40, len(self.rows))
        probes = min(self._probes_for(depth), self.lists.nlist)
        parameters = faiss_library().SearchParametersIVF(nprobe=probes)
        _, places = self.lists.search(queries[users], fetch, params=parameters)
        items = self.rows[places]  # -1 means not found: any item, ranked last
        absent = places < 0
        if seen is not None:
            absent |= _contains(seen, users, items)
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
