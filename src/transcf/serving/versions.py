"""Version folders of a model, and the version that is being served.

A version folder never changes once it has its name, and the file that names the current version is
replaced atomically.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transcf.data.atomic import atomic_write
from transcf.errors import (
    ModelFileError,
    ParameterError,
    TransCFError,
    UnknownIdError,
    UnsupportedError,
)
from transcf.io.model_dir import (
    NUMBER,
    current_version,
    pointer_file,
    version_folder,
    versions_folder,
)
from transcf.io.model_json import NAME
from transcf.models.base import Recommender
from transcf.models.registry import load_version
from transcf.serving.events import EventCache, StoreError
from transcf.serving.item_metadata import ItemMetadata
from transcf.serving.model_version import VALIDATION, ModelVersion

log = logging.getLogger("transcf.serving")

#: Number of refused versions that are remembered.
_MAX_REFUSED = 100


@dataclass(frozen=True)
class Versions:
    """The version folders of one model.

    Attributes:
        base: The folder of version 1.

    Example:
        >>> from transcf import EASE, synthesize
        >>> versions = Versions(EASE().fit(synthesize()).save("models/shop").absolute())
        >>> versions.current(), versions.folder(2).name
        (1, '2')
    """

    base: Path

    @property
    def pointer(self) -> Path:
        """The file that names the current version."""
        return pointer_file(self.base)

    def check(self) -> None:
        """Raise a `ModelFileError` if there is no model folder."""
        if not self.base.is_dir():
            raise ModelFileError(f"There is no model folder {self.base}.")

    def folder(self, version: int) -> Path:
        """Return the folder of a version, which need not exist."""
        return version_folder(self.base, version)

    def current(self) -> int:
        """Return the number of the version to serve; see `current_version`."""
        return current_version(self.base)

    def all(self) -> list[int]:
        """Return the numbers of all version folders, complete or not, ascending."""
        found = {1} if self.base.is_dir() else set()
        later = versions_folder(self.base)
        if later.is_dir():
            found |= {int(p.name) for p in later.iterdir() if NUMBER.fullmatch(p.name)}
        return sorted(found)

    def made(self, version: int) -> float | None:
        """Return when a version was written, in seconds since 1970; None if it is incomplete."""
        try:
            return (self.folder(version) / NAME).stat().st_mtime
        except OSError:
            return None

    def fingerprint(self, version: int) -> tuple[int, int, int]:
        """Return a value that changes when the files of a version are replaced."""
        try:
            status = os.stat(self.folder(version) / NAME)
        except OSError:
            return (version, 0, 0)
        return (version, status.st_ino, status.st_mtime_ns)

    def add(self, model: Recommender[object]) -> int:
        """Save a model as the next version, which is not served yet, and return its number."""
        version = self.all()[-1] + 1
        model.save(self.folder(version))
        return version

    def switch(self, version: int) -> None:
        """Make a version the current one.

        Raises:
            ParameterError: There is no such version.
        """
        if self.made(version) is None:
            known = ", ".join(str(number) for number in self.all() if self.made(number))
            raise ParameterError(f"There is no version {version} of {self.base}: there is {known}.")
        with atomic_write(self.pointer) as unfinished:
            unfinished.write_text(f"{version}\n", encoding="ascii")


class VersionManager:
    """Loads the version to serve, and replaces it when another one becomes current.

    Args:
        versions: Version folders of the model.
        metadata: Item metadata by item id as text.
        events: Recent events; kept until the served version has learned from them.

    Attributes:
        current: The version that is served.
        refused: Versions that could not be loaded, and why; oldest first.

    Raises:
        ModelFileError: There is no version that can be served.
    """

    def __init__(
        self, versions: Versions, metadata: Mapping[str, ItemMetadata], events: EventCache
    ) -> None:
        self.versions, self._metadata, self._events = versions, metadata, events
        self.refused: list[dict[str, Any]] = []
        self._pointer_error, self._forget_events = "", False
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

    def check(self) -> None:
        """Load and serve the current version if it has changed; keep the old one if that fails."""
        if self._forget_events:  # no query uses the older version any more
            self._events.forget(self.current.events_after)
            self._forget_events = False
        try:
            version = self.versions.current()
        except ModelFileError as error:
            if str(error) != self._pointer_error:
                self._pointer_error = str(error)
                log.error("%s Version %d stays in service.", error, self.current.number)
            return
        fingerprint = self.versions.fingerprint(version)
        if fingerprint == self._seen:
            return
        self._seen = fingerprint
        if fingerprint == self._loaded:
            return
        try:
            self.current = self._load(version)
        except (TransCFError, AssertionError, OSError, ValueError) as error:
            self._refuse(version, str(error))
            return
        self._forget_events = True
        log.info("Version %d is served from now on.", version)

    def _load(self, number: int) -> ModelVersion:
        fingerprint = self.versions.fingerprint(number)
        version = ModelVersion.load(number, self.versions.folder(number), self._metadata)
        try:
            if version.events_after < self._events.first:
                self._events.restart(version.events_after)
        except StoreError as error:
            raise ModelFileError(f"Version {number} needs older events. {error}") from error
        self._loaded = fingerprint
        return version

    def switch(self, version: int) -> None:
        """Make a version the current one after its files were checked; `check` then serves it.

        Raises:
            UnknownIdError: There is no such version.
            UnsupportedError: It is damaged.
        """
        if self.versions.made(version) is None:
            raise UnknownIdError(f"There is no version {version}.")
        try:
            load_version(self.versions.folder(version))
        except TransCFError as error:
            log.error("Version %d cannot be served: %s", version, error)
            raise UnsupportedError(
                f"Version {version} cannot be served; the log of the service says why."
            ) from error
        self.versions.switch(version)
        log.info("Version %d was made the current one by a request.", version)

    def _refuse(self, version: int, reason: str) -> None:
        self.refused.append({"version": version, "reason": reason, "when": time.time()})
        del self.refused[:-_MAX_REFUSED]
        log.error("Version %d is refused, the previous one stays in service: %s", version, reason)

    def _trained(self, version: int) -> dict[str, Any]:
        """Return what a version was trained on, and how it was validated."""
        try:
            text = (self.versions.folder(version) / NAME).read_text(encoding="utf-8")
            report = json.loads(text)["report"]
        except (OSError, ValueError, KeyError):
            return {}
        names = ("interactions", "fitted_on", "best_metric", VALIDATION)
        return {name: report[name] for name in names if name in report}

    def describe(self) -> dict[str, Any]:
        """Return the description of the served version, all versions and those refused."""
        current, events = self.current, self._events
        versions = [
            {
                "version": n,
                "made": self.versions.made(n),
                "current": n == current.number,
                **self._trained(n),
            }
            for n in self.versions.all()
        ]
        counts = {"after": current.events_after, "last": events.last, "users": len(events.by_user)}
        return current.description | {
            "events": counts,
            "versions": versions,
            "refused": list(self.refused),
        }
