"""Which version is served: looked up twice a second, changed over in one step."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from transcf.errors import ModelFileError, TransCFError
from transcf.serving.events.cache import EventCache
from transcf.serving.events.store import StoreError
from transcf.serving.item_metadata import ItemMetadata
from transcf.serving.loaded_model import LoadedModel
from transcf.serving.projection import Projection2D
from transcf.serving.query_handlers import QueryHandlers
from transcf.serving.search import Search
from transcf.serving.versions import Versions

log = logging.getLogger("transcf.serving")

#: How many refused versions are remembered.
_REMEMBERED = 100


@dataclass(frozen=True, eq=False)
class ModelVersion:
    """An immutable, loaded model version and its query handlers."""

    served: LoadedModel
    looking: QueryHandlers
    search: Search
    plane: Projection2D

    @classmethod
    def of(cls, served: LoadedModel) -> ModelVersion:
        """Put it together."""
        return cls(served, QueryHandlers(served), Search(served), Projection2D(served))


class VersionManager:
    """The versions of a model, and the one that is served.

    Args:
        versions: Where they are.
        facts: What is known of items.
        recent: Events, which are kept as long as the served version has not learned from them.

    Attributes:
        desk: What answers.
        refused: Versions that were not served, and why; oldest first.

    Raises:
        ModelFileError: There is no version that can be served.
    """

    def __init__(
        self, versions: Versions, facts: Mapping[str, ItemMetadata], recent: EventCache
    ) -> None:
        """Load the current version, or the newest one before it that is whole."""
        self.versions, self._facts, self._recent = versions, facts, recent
        self.refused: list[dict[str, Any]] = []
        self._complaint = ""
        self._aged = False
        current = versions.current()
        self._seen = versions.mark(current)
        before = [version for version in versions.all() if version < current]
        for version in (current, *reversed(before)):
            self._seen = versions.mark(current)
            try:
                self.desk = self._load(version)
            except TransCFError as error:
                if version == 1:
                    raise
                self._refuse(version, str(error))
            else:
                return
        raise ModelFileError(f"{versions.base} has no version that can be served.")

    def look(self) -> None:
        """Change over to another version, if there is one and it is sound."""
        if self._aged:  # nobody asks the older version any more
            self._recent.forget(self.desk.served.after)
            self._aged = False
        try:
            version = self.versions.current()
        except ModelFileError as error:
            if str(error) != self._complaint:
                self._complaint = str(error)
                log.error("%s The service goes on with version %d.", error, self._number)
            return
        mark = self.versions.mark(version)
        if mark == self._seen:
            return
        self._seen = mark
        if mark == self._mark:
            return
        try:
            desk = self._load(version)
        except (TransCFError, AssertionError, OSError, ValueError) as error:
            self._refuse(version, str(error))
            return
        self.desk, self._aged = desk, True
        log.info("Version %d is served from now on.", version)

    @property
    def _number(self) -> int:
        return self.desk.served.version

    def _load(self, version: int) -> ModelVersion:
        mark = self.versions.mark(version)
        served = LoadedModel.load(version, self.versions.folder(version), self._facts)
        try:
            if served.after < self._recent.first:
                self._recent.begin(served.after)
        except StoreError as error:
            raise ModelFileError(f"Version {version} needs older events. {error}") from error
        self._mark = mark
        return ModelVersion.of(served)

    def _refuse(self, version: int, reason: str) -> None:
        self.refused.append({"version": version, "reason": reason, "when": time.time()})
        del self.refused[:-_REMEMBERED]
        log.error("Version %d is refused, and the one before goes on: %s", version, reason)

    def describe(self) -> dict[str, Any]:
        """Return what is served, which versions there are, and which were refused."""
        served, recent = self.desk.served, self._recent
        versions = [
            {"version": n, "made": self.versions.made(n), "current": n == served.version}
            for n in self.versions.all()
        ]
        events = {"after": served.after, "last": recent.last, "users": len(recent.by_user)}
        return served.about | {
            "events": events,
            "versions": versions,
            "refused": list(self.refused),
        }
