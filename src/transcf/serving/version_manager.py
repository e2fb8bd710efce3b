"""The version that is being served, and the change to another one."""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from transcf.errors import ModelFileError, TransCFError, UnknownIdError, UnsupportedError
from transcf.io.model_dir import NAME, Versions
from transcf.models.registry import load_version
from transcf.serving.events import EventCache
from transcf.serving.item_metadata import ItemMetadata
from transcf.serving.model_version import VALIDATION, ModelVersion

log = logging.getLogger("transcf.serving")

#: Number of refused versions that are remembered.
_MAX_REFUSED = 100
#: What the description of a version has of its report.
_TRAINED = ("interactions", "fitted_on", "best_metric", VALIDATION)


class VersionManager:
    """Loads the version to serve, and replaces it when another one becomes current.

    `refused` has the versions that could not be loaded, and why; oldest first.
    """

    def __init__(
        self, versions: Versions, metadata: Mapping[str, ItemMetadata], events: EventCache
    ) -> None:
        self.versions, self._metadata, self._events = versions, metadata, events
        self.refused: list[dict[str, Any]] = []
        self._pointer_error, self._forget_events = "", False
        self._other: tuple[tuple[int, int, int], ModelVersion] | None = None
        self._checking, self._loading = threading.Lock(), threading.Lock()
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
        with self._checking:
            return self._check()

    def _check(self) -> bool:
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
        if fingerprint == self._seen:
            return True
        self._seen = fingerprint
        if fingerprint == self._loaded:
            return True
        try:
            self.current = self._load(version)
        except (TransCFError, AssertionError, OSError, ValueError) as error:
            self._refuse(version, str(error))
            return False
        self._forget_events = True
        log.info("Version %d is served from now on.", version)
        return True

    def _load(self, number: int) -> ModelVersion:
        fingerprint = self.versions.fingerprint(number)
        version = ModelVersion.load(number, self.versions.folder(number), self._metadata)
        if version.events_after < self._events.first:
            self._events.restart(version.events_after)
        self._loaded = fingerprint
        return version

    def load(self, number: int) -> ModelVersion:
        """Return a version that need not be the served one; one such version stays in memory."""
        current = self.current
        if number == current.number:
            return current
        fingerprint = self.versions.fingerprint(number)
        with self._loading:
            if self._other is None or self._other[0] != fingerprint:
                with self._usable(number) as folder:
                    self._other = fingerprint, ModelVersion.load(number, folder, self._metadata)
            return self._other[1]

    def switch(self, version: int) -> None:
        """Make a version the current one after its files were checked; `check` then serves it."""
        with self._usable(version) as folder:
            load_version(folder)
        self.versions.switch(version)
        log.info("Version %d was made the current one by a request.", version)

    @contextmanager
    def _usable(self, version: int) -> Iterator[Path]:
        """Yield the folder of a version to load; the reason of a failure is only logged."""
        if self.versions.made(version) is None:
            raise UnknownIdError(f"There is no version {version}.")
        try:
            yield self.versions.folder(version)
        except TransCFError as error:
            log.error("Version %d cannot be served: %s", version, error)
            raise UnsupportedError(
                f"Version {version} cannot be served; the log of the service says why."
            ) from error

    def _refuse(self, version: int, reason: str) -> None:
        shown = reason.replace(f"{self.versions.base.parent}{os.sep}", "")  # no paths for clients
        self.refused.append({"version": version, "reason": shown, "when": time.time()})
        del self.refused[:-_MAX_REFUSED]
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
