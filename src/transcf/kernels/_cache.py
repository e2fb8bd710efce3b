"""Keeps compiled kernels on disk, from their first use on, and only as long as they fit.

numba looks at the file of a function alone: it would run old code when something that the function
calls has changed in another file, and cannot even read its index once a class in there is gone.

Nothing happens when kernels are imported. numba announces that it takes the compiler's lock, which
it does before it reads or compiles anything: that is when folders are looked through.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from numba.core import event

STAMP = "sources.txt"


class Source(NamedTuple):
    """A file that compiled code was made from, and the name of its module."""

    module: str
    path: Path

    def line(self) -> str:
        """What the stamp says about it: another one as soon as it has changed."""
        state = self.path.stat()
        return f"{state.st_mtime_ns} {state.st_size} {self.module} {self.path}"


def sources_in(folder: Path, package: str) -> list[Source]:
    """All modules of a package."""
    return [Source(f"{package}.{path.stem}", path) for path in sorted(folder.glob("*.py"))]


def forget_stale(cache: Path, own: list[Source], others: list[Source]) -> None:
    """Delete what numba has kept in a folder if any source of it has changed or is gone.

    Args:
        cache: The folder.
        own: Sources that everything depends on.
        others: Sources that some of it may depend on. Other processes know of other ones: those
            that they have noted have to hold, too.
    """
    stamp = cache / STAMP
    needed, more = ([source.line() for source in sources] for sources in (own, others))
    try:
        noted = stamp.read_text(encoding="utf-8").splitlines() if stamp.is_file() else []
        is_fresh = set(needed) <= set(noted) and all(map(_holds, noted))
        lines = sorted({*needed, *more, *(noted if is_fresh else ())})
        if lines == noted:
            return
        cache.mkdir(parents=True, exist_ok=True)
        if not is_fresh:
            for stale in (*cache.glob("*.nbi"), *cache.glob("*.nbc")):
                stale.unlink(missing_ok=True)
        written = stamp.with_name(f"{stamp.name}.{os.getpid()}")
        written.write_text("\n".join(lines) + "\n", encoding="utf-8")
        written.replace(stamp)
    except OSError:
        return  # a folder that cannot be written to: numba keeps nothing in it either


def _holds(line: str) -> bool:
    """Whether a source is as noted, and can still be imported by what refers to it."""
    _, _, module, path = line.split(" ", 3)
    source = Source(module, Path(path))
    if not source.path.is_file() or source.line() != line:
        return False
    package = module.partition(".")[0]
    return package in sys.modules or find_spec(package) is not None


class Keeper(event.Listener):  # type: ignore[misc]
    """Lets numba keep functions on disk as soon as it is about to read or compile one.

    Args:
        own: Finds the sources that all of them depend on.
    """

    def __init__(self, own: Callable[[], list[Source]]) -> None:
        """Wait for the first use."""
        self._own, self._others = own, set[Source]()
        self._waiting: list[Any] = []
        self._folders, self._checked = set[Path](), set[Path]()
        self._lock = threading.Lock()
        event.register("numba:compiler_lock", self)

    def keep(self, dispatcher: Any) -> Any:
        """Keep what is compiled of a function; returns it."""
        self._waiting.append(dispatcher)
        return dispatcher

    def watch(self, *sources: Source) -> None:
        """Some of what is compiled from now on depends on these, too."""
        self._others.update(sources)
        self._checked.clear()

    def on_start(self, event: Any) -> None:
        """Get ready, once."""
        if not self._waiting and self._checked == self._folders:
            return
        with self._lock:
            while self._waiting:
                dispatcher = self._waiting.pop()
                try:
                    dispatcher.enable_caching()
                except RuntimeError:
                    continue  # no folder can be written to: it is compiled anew in every process
                self._folders.add(Path(dispatcher.stats.cache_path))
            for folder in self._folders - self._checked:
                forget_stale(folder, self._own(), sorted(self._others))
                self._checked.add(folder)

    def on_end(self, event: Any) -> None:
        """Nothing to do."""
