"""Events in PostgreSQL: numbered under a lock, so that numbers ascend as transactions commit."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from transcf.errors import MissingExtraError
from transcf.serving.events.store import Added, Event, EventStore, Stored, StoreError

if TYPE_CHECKING:
    from psycopg import Connection

#: Seconds to wait for the database to take a connection, and before it is tried again.
_PATIENCE, _PAUSE = 3, 0.5
_TABLES = """
CREATE TABLE IF NOT EXISTS transcf_events (
    number BIGINT PRIMARY KEY,
    key TEXT UNIQUE,
    user_id TEXT NOT NULL,
    item_id TEXT NOT NULL,
    time DOUBLE PRECISION NOT NULL,
    rating DOUBLE PRECISION
);
CREATE TABLE IF NOT EXISTS transcf_events_last (
    single BOOLEAN PRIMARY KEY DEFAULT TRUE CHECK (single),
    number BIGINT NOT NULL
);
INSERT INTO transcf_events_last (number) VALUES (0) ON CONFLICT DO NOTHING;
"""
#: One writer after the other: a number that is seen has no smaller one still to come.
_LOCK = "SELECT number FROM transcf_events_last FOR UPDATE"
_INSERT = """
INSERT INTO transcf_events (number, key, user_id, item_id, time, rating)
VALUES (%s, %s, %s, %s, %s, %s) ON CONFLICT (key) DO NOTHING
"""
_KEEP = "UPDATE transcf_events_last SET number = %s"
_LAST = "SELECT number FROM transcf_events_last"
_AFTER = """
SELECT number, user_id, item_id, time, rating, key FROM transcf_events
WHERE number > %s ORDER BY number
"""
#: Two workers that start at once must not both make the tables.
_MAKING = "SELECT pg_advisory_xact_lock(7263427)"


class PostgresStore(EventStore):
    """Events in a database.

    A connection that is lost is made anew at the next call.

    Args:
        url: `postgresql://user@host/name`.
    """

    def __init__(self, url: str) -> None:
        """Connect, and make the tables."""
        self._url, self._seen, self._failed = url, -1, 0.0
        self._link: Connection[Any] | None = None
        with self._connected() as link, link.transaction():
            link.execute(_MAKING)
            link.execute(_TABLES)

    def add(self, posts: Sequence[Sequence[Event]]) -> list[Added]:
        """Store some posts in one transaction."""
        added: list[Added] = []
        with self._connected() as link, link.transaction():
            row = link.execute(_LOCK).fetchone()
            last = int(row[0]) if row else 0
            for post in posts:
                before = last
                for event in post:
                    values = (event.key, event.user, event.item, event.time, event.rating)
                    last += link.execute(_INSERT, (last + 1, *values)).rowcount
                added.append(Added(last - before, len(post) - (last - before), last))
            link.execute(_KEEP, (last,))
        return added

    def changed(self) -> bool:
        """Whether the newest number is another than it was when `after` was called."""
        with self._connected() as link:
            return self._last(link) != self._seen

    def after(self, number: int) -> list[Stored]:
        """Return the events with larger numbers, ascending."""
        with self._connected() as link:
            last = self._last(link)
            rows = link.execute(_AFTER, (number,)).fetchall()
        self._seen = last
        return [Stored(row[0], Event(*row[1:])) for row in rows]

    def close(self) -> None:
        """Let go of the connection."""
        if self._link is not None:
            self._link.close()

    def _last(self, link: Connection[Any]) -> int:
        row = link.execute(_LAST).fetchone()
        return int(row[0]) if row else 0

    @contextmanager
    def _connected(self) -> Iterator[Connection[Any]]:
        """Give the connection; one on which anything fails is not used again."""
        try:
            import psycopg
        except ImportError as error:
            raise MissingExtraError("Keeping events in PostgreSQL", "serve") from error
        if self._link is None and time.monotonic() - self._failed < _PAUSE:
            raise StoreError("PostgreSQL cannot be reached: trying again in a moment.")
        try:
            if self._link is None:
                self._link = psycopg.connect(self._url, autocommit=True, connect_timeout=_PATIENCE)
                self._link.execute("SET synchronous_commit = on")
            yield self._link
        except psycopg.Error as error:
            if self._link is not None:
                self._link.close()
            self._link, self._failed = None, time.monotonic()
            raise StoreError(
                f"PostgreSQL cannot be used for events: {self._said(error)}."
            ) from error

    def _said(self, error: Exception) -> str:
        """Return the first line of what the driver says, without the password."""
        line = (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
        password = urlsplit(self._url).password
        return line.replace(password, "...") if password else line
