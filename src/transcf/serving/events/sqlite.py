"""Events in a file of SQLite: a write-ahead log, on disk before anything is acknowledged."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from transcf.serving.events.store import Added, Event, EventStore, Stored, StoreError

#: How long a writer waits for another one, in seconds.
_PATIENCE = 5.0
_TABLE = """
CREATE TABLE IF NOT EXISTS events (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    key TEXT UNIQUE,
    user TEXT NOT NULL,
    item TEXT NOT NULL,
    time REAL NOT NULL,
    rating REAL
)
"""
_INSERT = """
INSERT INTO events (key, user, item, time, rating) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (key) DO NOTHING
"""
_AFTER = "SELECT number, user, item, time, rating, key FROM events WHERE number > ? ORDER BY number"
_LAST = "SELECT coalesce(max(number), 0) FROM events"


class SqliteStore(EventStore):
    """Events in a file.

    Args:
        path: The file; made if it is not there.
    """

    def __init__(self, path: Path) -> None:
        """Open it."""
        self._path, self._seen = path, -1
        with self._in_words():
            # Used by one thread at a time, though not always by the one that opened it.
            self._link = sqlite3.connect(
                path, timeout=_PATIENCE, isolation_level=None, check_same_thread=False
            )
            self._link.execute("PRAGMA journal_mode = WAL")
            self._link.execute("PRAGMA synchronous = FULL")
            self._link.execute(_TABLE)

    def add(self, posts: Sequence[Sequence[Event]]) -> list[Added]:
        """Store some posts in one transaction."""
        added: list[Added] = []
        with self._in_words():
            self._link.execute("BEGIN IMMEDIATE")
            try:
                for post in posts:
                    before = self._link.total_changes
                    self._link.executemany(
                        _INSERT, [(e.key, e.user, e.item, e.time, e.rating) for e in post]
                    )
                    stored = self._link.total_changes - before
                    last = int(self._link.execute(_LAST).fetchone()[0])
                    added.append(Added(stored, len(post) - stored, last))
                self._link.execute("COMMIT")
            except BaseException:
                if self._link.in_transaction:
                    self._link.execute("ROLLBACK")
                raise
        return added

    def changed(self) -> bool:
        """Whether another connection has committed anything since `after` was called."""
        with self._in_words():
            return self._version() != self._seen

    def after(self, number: int) -> list[Stored]:
        """Return the events with larger numbers, ascending."""
        with self._in_words():
            # Asked for before the events: what comes in between is noticed next time.
            self._seen = self._version()
            rows = self._link.execute(_AFTER, (number,)).fetchall()
        return [Stored(row[0], Event(*row[1:])) for row in rows]

    def close(self) -> None:
        """Let go of the file."""
        self._link.close()

    def _version(self) -> int:
        return int(self._link.execute("PRAGMA data_version").fetchone()[0])

    @contextmanager
    def _in_words(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise StoreError(f"{self._path} cannot be used for events: {error}.") from error
