"""Keeps compiled kernels on disk, in a folder whose name says what they were compiled from.

By default numba checks only the source file of a function and stores compiled code next to it: it
would run old code when a callee in another file has changed, and a new installation would have to
compile everything. Here the folder is in the user's cache, and its name is a digest of the
sources of all kernels, of the versions of numba, LLVM and Python, and of the processor.

Nothing happens when kernels are imported. numba announces that it takes the compiler's lock, which
it does before it reads or compiles anything: that is when the folder is chosen.
"""

from __future__ import annotations

import hashlib
import os
import stat
import sys
import tempfile
import threading
import warnings
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from time import monotonic, sleep
from typing import IO, Any
from uuid import uuid4

import filelock
import llvmlite
import numba
from llvmlite import binding
from numba.core import caching, event
from numba.core.compiler_lock import global_compiler_lock

from transcf import __version__
from transcf.interrupts import remove_folder, temporary
from transcf.user_cache import user_cache

from . import compiling

#: Folders that are kept; those that were not used for the longest time are removed.
MOST_FOLDERS = 8


def digest_of(sources: Iterable[Path]) -> str:
    """Return a name for all that compiled code depends on."""
    config = numba.config
    about = [
        __version__,
        numba.__version__,
        llvmlite.__version__,
        sys.implementation.cache_tag,
        binding.get_default_triple(),
        binding.get_host_cpu_name(),
        binding.get_host_cpu_features().flatten(),
        [config.CPU_NAME, config.CPU_FEATURES, config.OPT, config.BOUNDSCHECK],
    ]
    digest = hashlib.sha256(repr(about).encode())
    for path in sorted(sources, key=lambda path: path.name):
        content = path.read_bytes()
        digest.update(f"{path.name} {len(content)} ".encode())
        digest.update(content)
    return digest.hexdigest()[:20]


def cache_folder(digest: str) -> Path | None:
    """Return a folder for compiled code that can be written to, None if there is none.

    It is in $NUMBA_CACHE_DIR, else in the user's cache, else in a folder for temporary files, with
    a warning.
    """
    try:
        root = Path(numba.config.CACHE_DIR, "transcf") if numba.config.CACHE_DIR else user_cache()
        return _ready(root / "kernels", digest)
    except OSError as error:
        reason = error.strerror or str(error)
    words = f"Compiled kernels cannot be kept in the user's cache ({reason})"
    advice = "set NUMBA_CACHE_DIR to a folder that can be written to"
    try:
        folder = _ready(_temporary_root(), digest)
    except OSError:
        warnings.warn(f"{words}: every process compiles them again; {advice}.", stacklevel=2)
        return None
    warnings.warn(f"{words} and are kept in {folder.parent}: {advice}.", stacklevel=2)
    return folder


def _ready(root: Path, digest: str) -> Path:
    """Make a folder, check that it can be written to, and remove those not used for long.

    Raises:
        OSError: It cannot be written to.
    """
    folder = root / digest
    folder.mkdir(parents=True, exist_ok=True)
    tempfile.TemporaryFile(dir=folder).close()
    os.utime(folder)
    with suppress(OSError):  # another process removes them, too
        by_use = sorted(root.iterdir(), key=lambda path: path.stat().st_mtime, reverse=True)
        for unused in by_use[MOST_FOLDERS:]:
            remove_folder(unused)
    return folder


def _temporary_root() -> Path:
    """Return a folder for temporary files that no other user can write to.

    Raises:
        OSError: There is none.
    """
    user = os.getuid() if hasattr(os, "getuid") else ""
    root = Path(tempfile.gettempdir()) / f"transcf-kernels-{user}"
    with suppress(FileExistsError):
        root.mkdir(mode=0o700)
    facts = root.lstat()
    is_private = stat.S_ISDIR(facts.st_mode) and not facts.st_mode & 0o022
    if hasattr(os, "getuid") and not (is_private and facts.st_uid == user):
        raise PermissionError(f"{root} belongs to another user.")
    return root


class _Locator(caching._CacheLocator):  # type: ignore[misc]
    """Passes the folder to numba; its name is a digest of all sources."""

    def __init__(self, folder: Path, function: Any) -> None:
        self._folder, self._py_file = str(folder), function.__code__.co_filename
        self._line = function.__code__.co_firstlineno

    def get_cache_path(self) -> str:
        return self._folder

    def get_source_stamp(self) -> str:
        return ""

    def get_disambiguator(self) -> str:
        return str(self._line)


class _CacheFile(caching.IndexDataCacheFile):  # type: ignore[misc]
    """Replaces damaged files, and removes unfinished ones also if Ctrl-C ends the process."""

    def _load_index(self) -> dict[Any, str]:
        try:
            return dict(super()._load_index())
        except Exception:  # damaged pickles raise anything
            return {}

    @contextmanager
    def _open_for_write(self, filepath: str) -> Iterator[IO[bytes]]:
        target = Path(filepath)
        unfinished = target.with_name(f"{target.name}.tmp.{uuid4().hex[:16]}")
        with temporary(lambda: unfinished, partial(Path.unlink, missing_ok=True)):
            with unfinished.open("wb") as file:
                yield file
            unfinished.replace(target)


#: Whether this process compiles for another one (`ahead`).
is_helping = False
#: Seconds to wait for a kernel that another process compiles.
_PATIENCE = 120.0


class BusyError(BaseException):
    """Another process compiles what this one, which only helps, was about to compile."""


class _FunctionCache(caching.FunctionCache):  # type: ignore[misc]
    """What is kept of one function. A file that cannot be read or written is not an error.

    What is missing is compiled by one process at a time, which holds a lock meanwhile.
    """

    def __init__(self, function: Any, folder: Path) -> None:
        locator = type("Locator", (), {"from_function": lambda *_: _Locator(folder, function)})
        implementation = {"_locator_classes": [locator]}
        self._impl_class = type("Files", (caching.CompileResultCacheImpl,), implementation)
        super().__init__(function)
        self._cache_file = _CacheFile(self._cache_path, self._impl.filename_base, "")
        self._claim: ExitStack | None = None

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return what is kept, or None if the caller has to compile it."""
        found = super().load_overload(sig, target_context)
        if found is None and self._claim is None and self._claimed():
            found = super().load_overload(sig, target_context)
            if found is not None:
                self.release()
        return found

    def _claimed(self) -> bool:
        """Wait until no other process compiles the function; whether this one may from now on."""
        claim = filelock.FileLock(f"{self._cache_file._index_path}.lock")
        try:
            self._claim = _take(claim)
            if self._claim is None and is_helping:
                raise BusyError
            if self._claim is None:
                compiling.note_start()
                try:
                    end = monotonic() + _PATIENCE
                    while self._claim is None and monotonic() < end:
                        sleep(0.01)
                        self._claim = _take(claim)
                finally:
                    compiling.note_end()
        except (OSError, NotImplementedError):
            return False  # this file system has no locks
        return self._claim is not None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep what was compiled."""
        try:
            super().save_overload(sig, data)
        finally:
            self.release()

    def release(self) -> None:
        """Let other processes compile the function."""
        claim, self._claim = self._claim, None
        if claim is not None:
            claim.close()

    def has(self, types: tuple[Any, ...] | None, codegen: Any) -> bool:
        """Whether there is machine code for arguments of these types, or of any."""
        kept = self._cache_file._load_index()
        return bool(kept) if types is None else self._index_key(types, codegen) in kept

    @contextmanager
    def _guard_against_spurious_io_errors(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # damaged files raise anything
            warnings.warn(
                f"A compiled kernel in {self._cache_path} cannot be read or written: {error!r}.",
                stacklevel=2,
            )


def _take(claim: filelock.BaseFileLock) -> ExitStack | None:
    """Take a lock until the result is closed; None while another process has it.

    Its file is removed while the lock is held, also if Ctrl-C ends the process, and a process that
    waits for the lock then finds the machine code.
    """

    def remove(_: object) -> None:
        with suppress(OSError):  # Windows keeps files that are open
            Path(claim.lock_file).unlink()

    with ExitStack() as held, suppress(filelock.Timeout):
        held.callback(claim.release)
        held.enter_context(temporary(partial(claim.acquire, timeout=0), remove))
        return held.pop_all()
    return None


def is_missing(kernel: Any, types: tuple[Any, ...] | None = None) -> bool:
    """Whether machine code for arguments of these types, or of any, is not on disk but could be."""
    with global_compiler_lock:  # chooses the folder
        cache = kernel._cache
    return isinstance(cache, _FunctionCache) and not cache.has(types, kernel.targetctx.codegen())


class _Listener(event.Listener):  # type: ignore[misc]
    """Measures the time of compilation, and unlocks functions that could not be compiled."""

    def on_start(self, event: Any) -> None:
        compiling.note_start()

    def on_end(self, event: Any) -> None:
        compiling.note_end()
        dispatcher, types = event.data["dispatcher"], tuple(event.data["args"])
        if types not in dispatcher.overloads and isinstance(dispatcher._cache, _FunctionCache):
            dispatcher._cache.release()


event.register("numba:compile", _Listener())


class Keeper(event.Listener):  # type: ignore[misc]
    """Lets numba keep functions on disk as soon as it is about to read or compile one.

    Args:
        sources: Files that all of them depend on.
    """

    def __init__(self, sources: Iterable[Path]) -> None:
        self._sources, self._waiting = list(sources), list[Any]()
        self._lock = threading.Lock()
        event.register("numba:compiler_lock", self)

    def keep(self, dispatcher: Any) -> Any:
        """Keep what is compiled of a function; returns it."""
        self._waiting.append(dispatcher)
        return dispatcher

    def on_start(self, event: Any) -> None:
        """Choose the folder of functions that have none."""
        if not self._waiting:
            return
        with self._lock:
            folder = cache_folder(digest_of(self._sources)) if self._waiting else None
            while self._waiting:
                dispatcher = self._waiting.pop()
                if folder is not None:
                    dispatcher._cache = _FunctionCache(dispatcher.py_func, folder)

    def on_end(self, event: Any) -> None:
        pass
