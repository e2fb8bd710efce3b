"""Event storage in SQLite or PostgreSQL, and an in-memory cache of recent events.

An event is durable before `EventStore.add` returns. Event numbers ascend in commit order, so a
reader that has seen a number never misses an event with a smaller one.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from transcf.errors import MissingExtraError, ParameterError, TransCFError, shown

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from transcf.data.ids import IdMap

log = logging.getLogger("transcf.serving")

#: Seconds that a SQLite writer waits for another one, and that PostgreSQL may take to connect.
_LOCK_TIMEOUT, _CONNECT_TIMEOUT = 5.0, 3
#: Seconds after an error before the next attempt to connect.
_RECONNECT_DELAY = 0.5
#: Keys or numbers in one statement.
_VALUES_PER_QUERY = 1000
#: Seconds that the time of an event may be ahead of the clock.
_MAX_AHEAD = 86_400
_COLUMNS = ("user", "item", "time", "rating", "key", "number")
_values = attrgetter(*_COLUMNS[:-1])


class StoreError(TransCFError, OSError):
    """Events cannot be written or read at the moment."""


@dataclass(frozen=True, slots=True)
class Event:
    """An interaction.

    Attributes:
        user: User id as text.
        item: Item id as text.
        time: Seconds since 1970.
        rating: Optional rating.
        key: Idempotency key; of events with the same key only the first is stored.
        number: Position in the store, from 1; 0 for an event that is not stored yet.
    """

    user: str
    item: str
    time: float
    rating: float | None = None
    key: str | None = None
    number: int = field(default=0, compare=False)


def invalid_reason(event: Event, users: IdMap, items: IdMap, now: float) -> str | None:
    """Return why no model can learn from an event; None if one can.

    Args:
        event: The event.
        users: User ids of the model: where they are integers, those of events must be, too.
        items: Item ids of the model.
        now: Seconds since 1970.

    Example:
        >>> import polars as pl
        >>> from transcf.data.ids import IdMap
        >>> ids = IdMap(pl.Series([7, 9]))
        >>> invalid_reason(Event("7", "x", 0.0), ids, ids, 0.0)
        "item ids of this model are integers of 64 bits, and 'x' is none."
    """
    for kind, ids, text in (("user", users, event.user), ("item", items, event.item)):
        if not text or text != text.strip():
            return f"{kind} {shown(text)} is not allowed: ids have no blanks around them."
        value = ids.parse(text)
        if not ids.is_text and not (isinstance(value, int) and -(2**63) <= value < 2**63):
            return f"{kind} ids of this model are integers of 64 bits, and {shown(text)} is none."
    if not 0 <= event.time <= now + _MAX_AHEAD:
        return (
            f"time {event.time:.16g} is not allowed: give seconds since 1970 (not milliseconds), "
            "at most one day ahead."
        )
    return None


class Added(NamedTuple):
    """Numbers of new and of repeated events, and the number of the newest event in the store."""

    stored: int
    repeated: int
    last: int


@dataclass(frozen=True)
class _Dialect:
    """SQL that differs between the databases."""

    table: str
    user: str
    item: str
    setup: tuple[str, ...]  # for a new connection
    begin: str  # begins a write transaction
    last: str  # reads the newest number, and locks it where `begin` does not lock
    keep: str  # writes the newest number
    mark: str  # returns another value after another connection has committed a change
    deletions: str  # reads how often events were deleted
    count_deletion: str  # writes it


_SQLITE = _Dialect(
    table="events",
    user="user",
    item="item",
    setup=(
        "PRAGMA journal_mode = WAL",
        "PRAGMA synchronous = FULL",
        "CREATE TABLE IF NOT EXISTS events (number INTEGER PRIMARY KEY AUTOINCREMENT, "
        "key TEXT UNIQUE, user TEXT NOT NULL, item TEXT NOT NULL, time REAL NOT NULL, rating REAL)",
        "INSERT INTO sqlite_sequence (name, seq) SELECT 'events', 0 "
        "WHERE NOT EXISTS (SELECT 1 FROM sqlite_sequence WHERE name = 'events')",
    ),
    begin="BEGIN IMMEDIATE",
    last="SELECT seq FROM sqlite_sequence WHERE name = 'events'",
    keep="UPDATE sqlite_sequence SET seq = :last WHERE name = 'events'",
    mark="PRAGMA data_version",
    deletions="PRAGMA user_version",
    count_deletion="PRAGMA user_version = {count}",
)
_POSTGRES = _Dialect(
    table="transcf_events",
    user="user_id",
    item="item_id",
    setup=(
        "SET synchronous_commit = on",
        "BEGIN",
        "SELECT pg_advisory_xact_lock(7263427)",  # workers that start at once create tables once
        "CREATE TABLE IF NOT EXISTS transcf_events (number BIGINT PRIMARY KEY, key TEXT UNIQUE, "
        "user_id TEXT NOT NULL, item_id TEXT NOT NULL, time DOUBLE PRECISION NOT NULL, "
        "rating DOUBLE PRECISION)",
        "CREATE TABLE IF NOT EXISTS transcf_events_last ("
        "single BOOLEAN PRIMARY KEY DEFAULT TRUE CHECK (single), number BIGINT NOT NULL)",
        "INSERT INTO transcf_events_last (number) VALUES (0) ON CONFLICT DO NOTHING",
        "CREATE TABLE IF NOT EXISTS transcf_events_deletions ("
        "single BOOLEAN PRIMARY KEY DEFAULT TRUE CHECK (single), number BIGINT NOT NULL)",
        "INSERT INTO transcf_events_deletions (number) VALUES (0) ON CONFLICT DO NOTHING",
        "COMMIT",
    ),
    begin="BEGIN",
    last="SELECT number FROM transcf_events_last FOR UPDATE",
    keep="UPDATE transcf_events_last SET number = :last",
    mark="SELECT l.number + d.number FROM transcf_events_last l, transcf_events_deletions d",
    deletions="SELECT number FROM transcf_events_deletions",
    count_deletion="UPDATE transcf_events_deletions SET number = {count}",
)


class EventStore:
    """Events in a database; each thread has a store object of its own.

    Args:
        url: A path or `sqlite:///path` for SQLite, `postgresql://user@host/name` for PostgreSQL.
            Files and tables are created if they are missing.

    Raises:
        StoreError: The database cannot be opened.
        MissingExtraError: SQLAlchemy or psycopg is not installed.

    Example:
        >>> store = EventStore("events.db")
        >>> store.add([[Event("ann", "tea", 0.0, key="1")], [Event("ann", "tea", 0.0, key="1")]])
        [Added(stored=1, repeated=0, last=1), Added(stored=0, repeated=1, last=1)]
        >>> [event.item for event in store.after(0)]
        ['tea']
    """

    def __init__(self, url: str) -> None:
        try:
            import sqlalchemy as sql
        except ImportError as error:
            raise MissingExtraError("Storing events", "serve") from error
        scheme, separator, rest = url.partition("://")
        options: dict[str, Any] = {"isolation_level": "AUTOCOMMIT", "poolclass": sql.NullPool}
        if separator and scheme in ("postgresql", "postgres"):
            self._dialect, self._name, self._path = _POSTGRES, "PostgreSQL", None
            self._password = urlsplit(url).password
            options["creator"] = _postgres_connector(url)
            self._engine = sql.create_engine("postgresql+psycopg://", **options)
        elif not separator or scheme == "sqlite":
            path = rest.removeprefix("/") if separator else url
            self._dialect, self._name, self._path, self._password = _SQLITE, path, path, None
            options["connect_args"] = {"timeout": _LOCK_TIMEOUT, "check_same_thread": False}
            self._engine = sql.create_engine(sql.URL.create("sqlite", database=path), **options)
        else:
            raise ParameterError(
                f"{scheme}:// is no store of events: name a file, or postgresql://user@host/name."
            )
        table, user, item = self._dialect.table, self._dialect.user, self._dialect.item
        self._insert = sql.text(
            f"INSERT INTO {table} (number, {user}, {item}, time, rating, key) "
            "VALUES (:number, :user, :item, :time, :rating, :key)"
        )
        self._known = sql.text(f"SELECT key FROM {table} WHERE key IN :keys").bindparams(
            sql.bindparam("keys", expanding=True)
        )
        self._after = sql.text(
            f"SELECT {user}, {item}, time, rating, key, number FROM {table} "
            "WHERE number > :number ORDER BY number"
        )
        self._keep = sql.text(self._dialect.keep)
        self._delete = sql.text(f"DELETE FROM {table} WHERE number IN :numbers").bindparams(
            sql.bindparam("numbers", expanding=True)
        )
        self._connection: Connection | None = None
        self._file: tuple[int, int] | None = None  # identifies the file of the connection
        self._connections = 0
        self._seen, self._failed_at = -1, float("-inf")
        with self._connected():
            pass

    def add(self, batches: Sequence[Sequence[Event]]) -> list[Added]:
        """Store some batches of events in one transaction.

        Without events the newest number is written again, which shows whether writing works.

        Raises:
            StoreError: Nothing is stored, as far as is known: the batches may be sent again.
        """
        keys = [event.key for batch in batches for event in batch if event.key is not None]
        rows: list[dict[str, Any]] = []
        added: list[Added] = []
        with self._writing() as (connection, last):
            known: set[str] = set()
            for first in range(0, len(keys), _VALUES_PER_QUERY):
                some = {"keys": keys[first : first + _VALUES_PER_QUERY]}
                known.update(connection.scalars(self._known, some))
            for batch in batches:
                before = last
                for event in batch:
                    if event.key is not None:
                        if event.key in known:
                            continue
                        known.add(event.key)
                    last += 1
                    rows.append(dict(zip(_COLUMNS, (*_values(event), last), strict=True)))
                added.append(Added(last - before, len(batch) - (last - before), last))
            if rows:
                connection.execute(self._insert, rows)
            connection.execute(self._keep, {"last": last})
        return added

    def continue_after(self, number: int) -> None:
        """Give the next event a number above this one, such as the newest that a model has seen."""
        with self._writing() as (connection, last):
            connection.execute(self._keep, {"last": max(last, number)})

    def delete(self, numbers: Sequence[int]) -> int:
        """Delete events by number; running services forget them. Return how many there were."""
        deleted = 0
        with self._writing() as (connection, _):
            for first in range(0, len(numbers), _VALUES_PER_QUERY):
                some = {"numbers": list(numbers[first : first + _VALUES_PER_QUERY])}
                deleted += connection.execute(self._delete, some).rowcount
            count = int(connection.exec_driver_sql(self._dialect.deletions).scalar_one()) + 1
            connection.exec_driver_sql(self._dialect.count_deletion.format(count=count))
        return deleted

    def delete_learned(self, learned: int, older_than: float) -> int:
        """Delete the events up to a number with a time before `older_than`; return how many."""
        old = [e.number for e in self.after(0) if e.number <= learned and e.time < older_than]
        return self.delete(old) if old else 0

    def changed(self) -> bool:
        """Return whether there may be events that `after` has not returned yet."""
        with self._connected() as connection:
            return self._mark(connection) != self._seen

    def epoch(self) -> tuple[int, int]:
        """Return a value that differs once events that were read may be gone.

        That is after a deletion, and after a new connection, which may be to a restored file.
        """
        with self._connected() as connection:
            deletions = int(connection.exec_driver_sql(self._dialect.deletions).scalar_one())
            return self._connections, deletions

    def after(self, number: int) -> list[Event]:
        """Return the events with larger numbers, ascending."""
        with self._connected() as connection:
            mark = self._mark(connection)  # before the events: later ones are noticed next time
            rows = connection.execute(self._after, {"number": number}).all()
            self._seen = mark
        return [Event(*row) for row in rows]

    def close(self) -> None:
        """Close the connection; an open transaction is rolled back."""
        if self._connection is not None:
            self._connection.invalidate()
            self._connection.close()
            self._connection = None

    def _mark(self, connection: Connection) -> int:
        return int(connection.exec_driver_sql(self._dialect.mark).scalar_one())

    @contextmanager
    def _writing(self) -> Iterator[tuple[Connection, int]]:
        """Yield the connection in a write transaction, and the number of the newest event."""
        with self._connected() as connection:
            connection.exec_driver_sql(self._dialect.begin)
            yield connection, int(connection.exec_driver_sql(self._dialect.last).scalar_one())
            connection.exec_driver_sql("COMMIT")

    @contextmanager
    def _connected(self) -> Iterator[Connection]:
        """Yield the connection; after an error it is closed, and opened again at the next call."""
        from sqlalchemy.exc import SQLAlchemyError

        self._check_file()
        if self._connection is None and time.monotonic() - self._failed_at < _RECONNECT_DELAY:
            raise StoreError(f"{self._name} cannot be reached: trying again in a moment.")
        try:
            if self._connection is None:
                self._connection, self._seen = self._engine.connect(), -1
                for statement in self._dialect.setup:
                    self._connection.exec_driver_sql(statement)
                self._file = _file_identity(self._path)
                self._connections += 1
            yield self._connection
        except SQLAlchemyError as error:
            self.close()
            self._failed_at = time.monotonic()
            reason = (str(getattr(error, "orig", error)).splitlines() or ["no reason given"])[0]
            if self._password:
                reason = reason.replace(self._password, "...")
            sentence = f"{self._name} cannot be used for events: {reason.rstrip('.')}."
            raise StoreError(sentence) from error
        except BaseException:
            self.close()
            raise

    def _check_file(self) -> None:
        """Raise if the file was deleted; connect again if it was replaced.

        SQLite would write on to a deleted file, and a new one would count from 1 again.
        """
        if self._file is None or self._path is None:
            return
        found = _file_identity(self._path)
        if found is None:
            self.close()
            raise StoreError(f"{self._name} was deleted: restore it, or restart the service.")
        if found != self._file:
            self.close()


def _file_identity(path: str | None) -> tuple[int, int] | None:
    try:
        status = os.stat(path) if path is not None else None
    except OSError:
        return None
    return None if status is None else (status.st_dev, status.st_ino)


def _postgres_connector(url: str) -> Any:
    try:
        import psycopg
    except ImportError as error:
        raise MissingExtraError("Storing events in PostgreSQL", "serve") from error
    return lambda: psycopg.connect(url, connect_timeout=_CONNECT_TIMEOUT)


def events_url(model: Path, url: str | None) -> str:
    """Return where the events of a model are stored: `url`, or a file next to the model.

    Example:
        >>> events_url(Path("/models/shop"), None)
        '/models/shop.events.db'
    """
    base = model.absolute()
    return url or str(base.with_name(f"{base.name}.events.db"))


@dataclass
class EventCache:
    """Events after some number, by user, read from a store as they are added to it.

    Attributes:
        store: The store.
        first: Events up to this number are not kept: the served model has learned from them.
        last: Number of the newest event that was read.
        by_user: Events of each user, oldest first.
        error: Why the last read failed; None if it did not.
        failures: How often reading failed.

    Example:
        >>> cache = EventCache(EventStore("recent.db"))
        >>> _ = EventStore("recent.db").add([[Event("ann", "tea", 0.0)]])
        >>> cache.update()
        >>> [event.item for event in cache.of("ann")]
        ['tea']
    """

    store: EventStore
    first: int = 0
    last: int = 0
    by_user: dict[str, list[Event]] = field(default_factory=dict)
    error: str | None = None
    failures: int = 0
    _epoch: tuple[int, int] | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def update(self) -> None:
        """Read new events: all that were committed before the call are known afterwards.

        If the store cannot be read, the cache stays as it is and `error` says why.
        """
        with self._lock:
            try:
                if self.store.changed():
                    self._read()
                if self.error is not None:
                    log.info("Events can be read again.")
                self.error = None
            except StoreError as error:
                self.failures += 1
                if self.error is None:
                    log.error("Events cannot be read: %s", error)
                self.error = str(error)

    def _read(self) -> None:
        epoch = self.store.epoch()
        if epoch == self._epoch:
            self.extend(self.store.after(self.last))
        else:
            self._restart(self.first, epoch)

    def _restart(self, first: int, epoch: tuple[int, int]) -> None:
        fresh = EventCache(self.store, last=first)
        fresh.extend(self.store.after(first))
        self.by_user, self.first, self.last = fresh.by_user, first, fresh.last
        self._epoch = epoch

    def extend(self, events: Iterable[Event]) -> None:
        """Add events that are newer than all in the cache."""
        for event in events:
            self.by_user.setdefault(event.user, []).append(event)
            self.last = event.number

    def of(self, user: str, after: int = 0) -> list[Event]:
        """Return the events of a user with numbers above `after`, oldest first."""
        return [event for event in self.by_user.get(user, ()) if event.number > after]

    def forget(self, number: int) -> None:
        """Drop the events up to a number, once no older model version is served."""
        with self._lock:
            kept = {
                user: [event for event in events if event.number > number]
                for user, events in self.by_user.items()
            }
            self.first = number
            self.by_user = {user: events for user, events in kept.items() if events}

    def restart(self, first: int) -> None:
        """Read all events after a number: at the start, and before an older version is served.

        Raises:
            StoreError: The store cannot be read; the cache is unchanged.
        """
        with self._lock:
            self._restart(first, self.store.epoch())
