"""Loaded versions of the model, and the change of the served one to another."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from copy import copy
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from transcf.data.atomic import atomic_write
from transcf.data.ids import UNKNOWN, Id, IdMap, Rows
from transcf.errors import ModelFileError, TransCFError, UnknownIdError, UnsupportedError
from transcf.io.model_dir import NAME, Versions
from transcf.models.base import Recommender
from transcf.models.fitted import FittedScorer
from transcf.models.params import values_of
from transcf.models.registry import load_version
from transcf.serving.events import Event, EventCache
from transcf.serving.items import NO_METADATA, ItemMetadata, TextIndex
from transcf.serving.projection import Projection2D
from transcf.serving.schemas import Item, json_id

log = logging.getLogger("transcf.serving")

#: Key of a model's report: the number of the newest event that it has learned from.
EVENTS_AFTER = "events_after"
#: Key of a model's report: how `transcf refresh` validated it.
VALIDATION = "validation"
#: Environment variable with the folder in which workers share item vectors.
SHARED_FOLDER = "TRANSCF_SHARED"
#: Users of the largest query that warms up a version.
_WARM_UP_USERS = 128
#: Number of refused versions that are remembered.
_MAX_REFUSED = 100
#: A trend is renewed after at least so many times the time that it took before.
_RENEWAL_PAUSE = 20
#: What the description of a version has of its report.
_TRAINED = ("interactions", "fitted_on", "best_metric", VALIDATION)


class ModelVersion:
    """A loaded model version and the events since it was trained: all that queries need.

    Arrays of the model are memory-mapped. `can` says which operations it supports, and
    `events_after` is the number of the newest event that it has learned from. Nothing changes but
    the events, which all versions share.
    """

    def __init__(
        self,
        number: int,
        folder: Path,
        model: Recommender[Any],
        metadata: Mapping[str, ItemMetadata],
        can: Mapping[str, bool],
        events: EventCache,
    ) -> None:
        self.number, self.folder, self.model = number, folder, model
        self.metadata, self.can, self.events, self.loaded_at = metadata, can, events, time.time()
        self.scorer: FittedScorer = model.learned_
        self.data = self.scorer.known
        self.users, self.items = self.data.users, self.data.items
        learned = model.report_.get(EVENTS_AFTER, 0)
        self.events_after = learned if isinstance(learned, int) else 0

    @classmethod
    def load(
        cls, number: int, folder: Path, metadata: Mapping[str, ItemMetadata], events: EventCache
    ) -> ModelVersion:
        """Load a version, check its checksums, and warm it up.

        Raises:
            TransCFError: The version is damaged or incomplete, or does not answer queries.
        """
        model = load_version(folder, mapped=True)
        checksum = hashlib.sha256((folder / NAME).read_bytes()).hexdigest()[:16]
        _share_item_vectors(model.learned_, f"{number}-{checksum}")
        version = cls(number, folder, model, metadata, _warm_up(model), events)
        _ = version.popular, version.description, version.item_metadata
        return version

    def with_events(self, events: Sequence[Event]) -> ModelVersion:
        """Return this version with events counted in its automatic trend; itself without a trend.

        Of each pair of a user and an item the first event counts, and none that the model has
        learned from. Events are all those since then, not only the newest.
        """
        learned, seen = self.model.learned_, self.data.seen
        pairs = {
            (event.user, event.item): event.time
            for event in reversed(events)
            if event.rating is None or event.rating > 0
        }
        users = find_rows(self.users, [user for user, _ in pairs]).tolist()
        items = find_rows(self.items, [item for _, item in pairs])
        is_new = [
            UNKNOWN in (user, item) or item not in seen.row(user)
            for user, item in zip(users, items.tolist(), strict=True)
        ]
        kept = np.array(is_new, dtype=bool)
        times = np.array([*pairs.values()])[kept]
        renewed = copy(self)
        renewed.scorer = learned.with_recent_events(items[kept], times)
        return self if renewed.scorer is learned else renewed

    def new_events(self, user: Id) -> list[Event]:
        """Return the events of a user that the version has not learned from, oldest first."""
        return self.events.of(str(user), self.events_after)

    @cached_property
    def popular(self) -> Rows:
        """Item rows by number of users, descending; ties by id."""
        counts = np.where(self.scorer.rankable, self.data.item_counts, -1)
        order = np.argsort(-counts, kind="stable").astype(np.int32)
        return order[: np.count_nonzero(self.scorer.rankable)]

    @cached_property
    def item_ids(self) -> list[Id]:
        """Item ids by row, as they are in JSON; see `json_id`."""
        return [json_id(item) for item in self.items.series.to_list()]

    @cached_property
    def item_metadata(self) -> list[ItemMetadata]:
        """Metadata by item row."""
        return [self.metadata.get(str(item), NO_METADATA) for item in self.item_ids]

    @cached_property
    def items_by_category(self) -> dict[str, Rows]:
        """Item rows of each category, by category name."""
        found: dict[str, list[int]] = {}
        for row, metadata in enumerate(self.item_metadata):
            for name in metadata.categories:
                found.setdefault(name, []).append(row)
        return {name: np.array(found[name], np.int32) for name in sorted(found)}

    @cached_property
    def attributes(self) -> list[str]:
        """Names of numeric columns of the table of items."""
        kinds: dict[str, set[type]] = {}
        for metadata in self.item_metadata:
            for name, value in metadata.others.items():
                kinds.setdefault(name, set()).add(type(value))
        return sorted(name for name, found in kinds.items() if found <= {int, float})

    def item_fields(self, row: int) -> Item:
        """Return id, title and categories of an item row for answers."""
        metadata = self.item_metadata[row]
        categories = list(metadata.categories)
        return {"item": self.item_ids[row], "title": metadata.title, "categories": categories}

    def describe_item(self, item: Id) -> Item:
        """Return id, title and categories of any item, also of one unknown to the model."""
        metadata = self.metadata.get(str(item), NO_METADATA)
        return {"item": item, "title": metadata.title, "categories": list(metadata.categories)}

    def title(self, item: Id) -> str | None:
        """Return the title of an item, if it has one."""
        return self.describe_item(item)["title"]

    def rankable_rows(self, items: Sequence[Id]) -> Rows:
        """Return the rows of those items that the model can rank, in the given order."""
        rows = find_rows(self.items, items)
        rankable: Rows = rows[(rows != UNKNOWN) & self.scorer.rankable[rows]]
        return rankable

    @cached_property
    def item_similarity(self) -> Any:
        """Similarity of items, for `transcf.models.tables.similar`."""
        return self.scorer.item_similarity()

    @cached_property
    def user_similarity(self) -> Any:
        """Similarity of users, for `transcf.models.tables.similar`."""
        return self.scorer.user_similarity()

    @cached_property
    def item_index(self) -> TextIndex:
        """Search in ids and titles of items."""
        titles = [entry.title or "" for entry in self.item_metadata]
        return TextIndex(self.items.series, self.data.item_counts, titles)

    @cached_property
    def user_index(self) -> TextIndex:
        """Search in ids of users."""
        return TextIndex(self.users.series, self.data.seen.counts, [""] * len(self.users))

    @cached_property
    def category_index(self) -> TextIndex:
        """Search in names of categories."""
        names = list(self.items_by_category)
        sizes = np.array([len(rows) for rows in self.items_by_category.values()], np.int64)
        return TextIndex(pl.Series(names, dtype=pl.String), sizes, names)

    @cached_property
    def projection(self) -> Projection2D:
        """Items and users in two dimensions."""
        return Projection2D(self)

    @cached_property
    def description(self) -> dict[str, Any]:
        """Settings, report, checksums and model card, for `GET /v1/models`."""
        described = json.loads((self.folder / NAME).read_text(encoding="utf-8"))
        card, parent = self.folder / "README.md", self.folder.parent.name
        return {
            "version": self.number,
            "since": self.loaded_at,
            "folder": self.folder.name if self.number == 1 else f"{parent}/{self.folder.name}",
            "model": self.model.name,
            "class": type(self.model).__name__,
            "library": described["library"],
            "parameters": values_of(self.model.settings),
            "report": self.model.report_,
            "files": described["files"],
            "card": card.read_text(encoding="utf-8") if card.is_file() else "",
            "can": dict(self.can),
        }


class VersionManager:
    """Loads the version to serve, and replaces it when another one becomes current.

    `refused` has the versions that could not be loaded, and why; oldest first.
    """

    def __init__(
        self, versions: Versions, metadata: Mapping[str, ItemMetadata], events: EventCache
    ) -> None:
        self.versions, self._metadata, self._events = versions, metadata, events
        self.refused: deque[dict[str, Any]] = deque(maxlen=_MAX_REFUSED)
        self._pointer_error, self._forget_events = "", False
        self._other: tuple[tuple[int, int, int], ModelVersion] | None = None
        #: Version and newest event of the trend that is served, and when it may be renewed.
        self._renewed, self._renew_at = (0, 0), 0.0
        self._loading = threading.Lock()
        newest = versions.current()
        before = [version for version in versions.all() if version < newest]
        for version in (newest, *reversed(before)):
            self._seen = versions.fingerprint(newest)
            try:
                self.current = self._load(version)
            except TransCFError as error:
                if version == 1:
                    raise
                self._refuse(version, str(error))
            else:
                return
        raise ModelFileError(f"{versions.base} has no version that can be served.")

    def check(self) -> bool:
        """Serve the current version if it has changed; return False if it cannot be served.

        The old one then stays in service. Two checks at once wait for each other, so that the
        current version is served when a check returns.
        """
        with self._loading:
            if self._forget_events:  # no query uses the older version any more
                self._events.forget(self.current.events_after)
                self._forget_events = False
            try:
                version = self.versions.current()
            except ModelFileError as error:
                if str(error) != self._pointer_error:
                    self._pointer_error = str(error)
                    log.error("%s Version %d stays in service.", error, self.current.number)
                return True
            fingerprint = self.versions.fingerprint(version)
            is_known, self._seen = fingerprint in (self._seen, self._loaded), fingerprint
            if is_known:
                return True
            try:
                self.current = self._load(version)
            except (TransCFError, AssertionError, OSError, ValueError) as error:
                self._refuse(version, str(error))
                return False
            self._forget_events = True
            log.info("Version %d is served from now on.", version)
            return True

    def renew_trend(self) -> None:
        """Count the events since the served version was trained in its automatic trend."""
        current, state = self.current, (self.current.number, self._events.last)
        started = time.monotonic()
        if state == self._renewed or started < self._renew_at:
            return
        renewed = current.with_events(self._events.since(current.events_after))
        with self._loading:
            if self.current is current:
                self.current, self._renewed = renewed, state
        self._renew_at = time.monotonic() + _RENEWAL_PAUSE * (time.monotonic() - started)

    def _load(self, number: int) -> ModelVersion:
        fingerprint = self.versions.fingerprint(number)
        folder = self.versions.folder(number)
        version = ModelVersion.load(number, folder, self._metadata, self._events)
        if version.events_after < self._events.first:
            self._events.restart(version.events_after)
        if self._other is not None and self._other[0] == fingerprint:
            self._other = None  # it is not needed twice
        self._loaded = fingerprint
        return version

    def load(self, number: int) -> ModelVersion:
        """Return a version that need not be the served one; one such version stays in memory."""
        current = self.current
        if number == current.number:
            return current
        if self.versions.made(number) is None:
            raise UnknownIdError(f"There is no version {number}.")
        fingerprint, folder = self.versions.fingerprint(number), self.versions.folder(number)
        with self._loading:
            if self._other is None or self._other[0] != fingerprint:
                try:
                    version = ModelVersion.load(number, folder, self._metadata, self._events)
                    self._other = fingerprint, version
                except TransCFError as error:
                    log.error("Version %d cannot be served: %s", number, error)
                    raise UnsupportedError(
                        f"Version {number} cannot be served; the log of the service says why."
                    ) from error
            return self._other[1]

    def switch(self, version: int) -> None:
        """Make a version the current one if it can be loaded; `check` then serves it."""
        self.load(version)
        self.versions.switch(version)
        log.info("Version %d was made the current one by a request.", version)

    def _refuse(self, version: int, reason: str) -> None:
        shown = reason.replace(f"{self.versions.base.parent}{os.sep}", "")  # no paths for clients
        self.refused.append({"version": version, "reason": shown, "when": time.time()})
        log.error("Version %d is refused, the previous one stays in service: %s", version, reason)

    def _trained(self, version: int) -> dict[str, Any]:
        """Return what a version was trained on, and how it was validated."""
        try:
            text = (self.versions.folder(version) / NAME).read_text(encoding="utf-8")
            described = json.loads(text)
            report, trained = described["report"], {"class": described["class"]}
        except (OSError, ValueError, KeyError):
            return {}
        return trained | {name: report[name] for name in _TRAINED if name in report}

    def describe(self) -> dict[str, Any]:
        """Return the description of the served version, all versions and those refused."""
        current, events, made = self.current, self._events, self.versions.made
        versions = [
            {"version": n, "made": made(n), "current": n == current.number, **self._trained(n)}
            for n in self.versions.all()
        ]
        counts = {"after": current.events_after, "last": events.last, "users": len(events.by_user)}
        others = {"events": counts, "versions": versions, "refused": list(self.refused)}
        return current.description | others


def convert_id(ids: IdMap, value: Id) -> Id:
    """Return an id in the type that the model uses: integers may come as text and vice versa."""
    if ids.is_text:
        return str(value)
    return ids.parse(value) if isinstance(value, str) else value


def find_rows(ids: IdMap, values: Sequence[Id]) -> Rows:
    """Return the row of each id, `UNKNOWN` where there is none."""
    return ids.rows([convert_id(ids, value) for value in values])


def _warm_up(model: Recommender[Any]) -> dict[str, bool]:
    """Compile kernels by a query of each kind; return which ones the model supports."""
    scorer = model.learned_
    rankable = np.flatnonzero(scorer.rankable)[:1].astype(np.int32)
    # Some models have one kernel for a single user and another for many.
    users = scorer.known.users.ids(np.flatnonzero(scorer.known.active)[:_WARM_UP_USERS]).to_list()
    items = scorer.known.items.ids(rankable).to_list()
    model.recommend(users[:1], k=10)
    model.recommend(users, k=10)
    operations: dict[str, Callable[[], Any]] = {
        "fold_in": lambda: model.recommend_for(items, k=10, exclude_seen=False),
        "explain": lambda: model.explain(users[0], items[0], include_seen=True),
        "similar_items": lambda: model.similar_items(items, k=1),
        "similar_users": scorer.user_similarity,
    }
    can = dict.fromkeys(operations, False)
    for name, run in operations.items():
        with suppress(UnsupportedError):
            run()
            can[name] = True
    moved = scorer.translated_position(None, rankable, rankable) if can["fold_in"] else None
    return can | {"translations": moved is not None}


def _share_item_vectors(scorer: FittedScorer, name: str) -> None:
    """Map the item vectors of a linear form, which are computed, from a file of all workers.

    The first worker writes it. The same name must mean the same vectors.
    """
    folder, form = os.environ.get(SHARED_FOLDER), scorer.linear_form()
    if folder is None or form is None:
        return
    path = Path(folder, f"{name}.npy")
    if not path.exists():
        with atomic_write(path) as unfinished, unfinished.open("wb") as file:
            np.save(file, form.item_vectors)
        for older in Path(folder).glob("*.npy"):
            if older != path:  # workers that have mapped it keep it
                older.unlink(missing_ok=True)
    with suppress(FileNotFoundError):  # replaced by a later version meanwhile: keep our own copy
        form.item_vectors = np.asarray(np.load(path, mmap_mode="r"))
