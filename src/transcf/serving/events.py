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
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import sqlalchemy as sql

from transcf.errors import ParameterError, TransCFError, needs_extra, shown
from transcf.serving.schemas import Stored

if TYPE_CHECKING:
    from transcf.data.ids import IdMap

log = logging.getLogger("transcf.serving")

#: Seconds that a SQLite writer waits for another one, and that PostgreSQL may take to connect.
_LOCK_TIMEOUT, _CONNECT_TIMEOUT = 5.0, 3
#: Seconds after an error before the next attempt to connect.
_RECONNECT_DELAY = 0.5
#: Keys in one statement.
_KEYS_PER_QUERY = 1000
#: Seconds that the time of an event may be ahead of the clock.
_MAX_AHEAD = 86_400


class StoreError(TransCFError, OSError):
    """Events cannot be written or read at the moment."""


@dataclass(frozen=True, slots=True)
class Event:
    """An interaction, with ids as text and its time in seconds since 1970.

    Of events with the same `key` only the first is stored. `number` is the position in the store,
    from 1; 0 for an event that is not stored yet.
    """

    user: str
    item: str
    time: float
    rating: float | None = None
    key: str | None = None
    number: int = field(default=0, compare=False)


_COLUMNS = tuple(column.name for column in fields(Event))


def invalid_reason(event: Event, users: IdMap, items: IdMap, now: float) -> str | None:
    """Return why a model with these ids cannot learn from an event; None if it can."""
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


class EventStore:
    """Events in a database; each thread has a store object of its own.

    Args:
        url: A path or `sqlite:///path` for SQLite, `postgresql://user@host/name` for PostgreSQL.
            Files and tables are created if they are missing.
    """

    def __init__(self, url: str) -> None:
        scheme, separator, rest = url.partition("://")
        self._path = self._password = None
        if scheme in ("postgresql", "postgres") and separator:
            # libpq reads the address: it may name several hosts, and says what is wrong with it.
            with needs_extra("Storing events in PostgreSQL", "serve"):
                import psycopg
            connect = partial(psycopg.connect, url, connect_timeout=_CONNECT_TIMEOUT)
            options: dict[str, Any] = {"creator": connect}
            address = sql.URL.create("postgresql+psycopg")
            with suppress(ValueError):
                self._password = urlsplit(url).password
            self._name, self._begin, table = "PostgreSQL", "BEGIN", "transcf_events"
            user, item = "user_id", "item_id"
            # Workers that start at once create tables once.
            lock = "SELECT pg_advisory_xact_lock(7263427)"
            self._setup = ["SET synchronous_commit = on", self._begin, lock]
        elif not separator or scheme == "sqlite":
            self._path = self._name = rest.removeprefix("/") if separator else url
            address = sql.URL.create("sqlite", database=self._path)
            options = {"connect_args": {"timeout": _LOCK_TIMEOUT, "check_same_thread": False}}
            self._begin, table, user, item = "BEGIN IMMEDIATE", "events", "user", "item"
            self._setup = ["PRAGMA journal_mode = WAL", "PRAGMA synchronous = FULL", self._begin]
        else:
            raise ParameterError(
                f"{scheme}:// is no store of events: name a file, or postgresql://user@host/name."
            )
        self._engine = sql.create_engine(
            address, isolation_level="AUTOCOMMIT", poolclass=sql.NullPool, **options
        )
        number = sql.BigInteger().with_variant(sql.Integer(), "sqlite")
        self._events = sql.Table(
            table,
            sql.MetaData(),
            sql.Column("number", number, primary_key=True, autoincrement=False),
            sql.Column("key", sql.Text, unique=True),
            sql.Column(user, sql.Text, key="user", nullable=False),
            sql.Column(item, sql.Text, key="item", nullable=False),
            sql.Column("time", sql.Double, nullable=False),
            sql.Column("rating", sql.Double),
        )
        counts = [sql.Column(name, number, nullable=False) for name in ("last", "deletions")]
        self._state = sql.Table(f"{table}_state", self._events.metadata, *counts)
        self._read_state = f"SELECT deletions, last FROM {self._state.name}"
        self._connection: sql.Connection | None = None
        self._file: tuple[int, int] | None = None  # identifies the file of the connection
        self._connections, self._failed_at = 0, float("-inf")
        with self._connected():
            pass

    def add(self, batches: Sequence[Sequence[Event]]) -> list[Stored]:
        """Store some batches of events in one transaction.

        Without events the newest number is written again, which shows whether writing works.

        Raises:
            StoreError: Nothing is stored, as far as is known: the batches may be sent again.
        """
        keys = [event.key for batch in batches for event in batch if event.key is not None]
        new: list[Event] = []
        added: list[Stored] = []
        column = self._events.c.key
        with self._writing() as (connection, last):
            known = set[str | None]()
            for first in range(0, len(keys), _KEYS_PER_QUERY):
                some = keys[first : first + _KEYS_PER_QUERY]
                known.update(connection.scalars(sql.select(column).where(column.in_(some))))
            for batch in batches:
                before = last
                for event in batch:
                    if event.key is None or event.key not in known:
                        last += 1
                        new.append(replace(event, number=last))
                        known.add(event.key)
                stored = last - before
                repeated = len(batch) - stored
                added.append({"stored": stored, "repeated": repeated, "last": last})
            if new:
                rows = [{name: getattr(event, name) for name in _COLUMNS} for event in new]
                connection.execute(sql.insert(self._events), rows)
            connection.execute(sql.update(self._state).values(last=last))
        return added

    def continue_after(self, number: int) -> None:
        """Give the next event a number above this one, such as the newest that a model has seen."""
        with self._writing() as (connection, last):
            connection.execute(sql.update(self._state).values(last=max(last, number)))

    def delete(self, numbers: Sequence[int]) -> int:
        """Delete events by number; running services forget them. Return how many there were."""
        # Written into the statement: databases limit the number of parameters.
        written: Any = sql.bindparam("numbers", numbers, expanding=True, literal_execute=True)
        return self._delete(self._events.c.number.in_(written))

    def delete_learned(self, learned: int, older_than: float) -> int:
        """Delete the events up to a number with a time before `older_than`; return how many."""
        events = self._events.c
        return self._delete((events.number <= learned) & (events.time < older_than))

    def _delete(self, condition: sql.ColumnElement[bool]) -> int:
        with self._writing() as (connection, _):
            deleted = connection.execute(sql.delete(self._events).where(condition)).rowcount
            once_more = self._state.c.deletions + 1
            connection.execute(sql.update(self._state).values(deletions=once_more))
            return deleted

    def state(self) -> tuple[int, int, int]:
        """Return the numbers of connections and deletions by now, and that of the newest event.

        Events may be gone after a deletion, or with a new connection: it may be to a restored file.
        """
        with self._connected() as connection:
            deletions, last = connection.exec_driver_sql(self._read_state).one()
            return self._connections, deletions, last

    def after(self, number: int) -> list[Event]:
        """Return the events with larger numbers, ascending."""
        events = self._events.c
        query = sql.select(*(events[name] for name in _COLUMNS)).order_by(events.number)
        with self._connected() as connection:
            return [Event(*row) for row in connection.execute(query.where(events.number > number))]

    def close(self) -> None:
        """Close the connection; an open transaction is rolled back."""
        if self._connection is not None:
            self._connection.invalidate()
            self._connection.close()
            self._connection = None

    @contextmanager
    def _writing(self) -> Iterator[tuple[sql.Connection, int]]:
        """Yield the connection in a write transaction, and the newest number."""
        with self._connected() as connection:
            connection.exec_driver_sql(self._begin)
            last = sql.select(self._state.c.last).with_for_update()  # `BEGIN IMMEDIATE` locks, too
            yield connection, connection.execute(last).scalar_one()
            connection.exec_driver_sql("COMMIT")

    @contextmanager
    def _connected(self) -> Iterator[sql.Connection]:
        """Yield the connection; after an error it is closed, and opened again at the next call."""
        self._check_file()
        if self._connection is None and time.monotonic() - self._failed_at < _RECONNECT_DELAY:
            raise StoreError(f"{self._name} cannot be reached: trying again in a moment.")
        try:
            yield self._connection or self._connect()
        except sql.exc.SQLAlchemyError as error:
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

    def _connect(self) -> sql.Connection:
        connection = self._connection = self._engine.connect()
        for statement in self._setup:
            connection.exec_driver_sql(statement)
        self._events.metadata.create_all(connection)
        if connection.exec_driver_sql(self._read_state).first() is None:
            newest = sql.select(sql.func.coalesce(sql.func.max(self._events.c.number), 0))
            last = connection.execute(newest).scalar_one()
            connection.execute(sql.insert(self._state).values(last=last, deletions=0))
        connection.exec_driver_sql("COMMIT")
        self._file = self._find_file()
        self._connections += 1
        return connection

    def _check_file(self) -> None:
        """Raise if the file was deleted; connect again if it was replaced.

        SQLite would write on to a deleted file, and a new one would count from 1 again.
        """
        found = self._find_file()
        if found == self._file:
            return
        self.close()
        if found is None:
            raise StoreError(f"{self._name} was deleted: restore it, or restart the service.")

    def _find_file(self) -> tuple[int, int] | None:
        """Return what identifies the file; None if there is none."""
        try:
            status = None if self._path is None else os.stat(self._path)
        except OSError:
            return None
        return None if status is None else (status.st_dev, status.st_ino)


def events_url(model: Path, url: str | None) -> str:
    """Return where the events of a model are stored: `url`, or a file next to the model."""
    base = model.absolute()
    return url or str(base.with_name(f"{base.name}.events.db"))


@dataclass
class EventCache:
    """Events of each user, oldest first, read from a store as they are added to it.

    Events up to the number `first` are not kept: the served model has learned from them. `last` is
    the number of the newest one, `error` why the last read failed, `failures` how often reading
    failed.
    """

    store: EventStore
    first: int = 0
    last: int = 0
    by_user: dict[str, list[Event]] = field(default_factory=dict)
    error: str | None = None
    failures: int = 0
    _state: tuple[int, int, int] | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def update(self) -> None:
        """Read new events: all that were committed before the call are known afterwards.

        If the store cannot be read, the cache stays as it is and `error` says why.
        """
        with self._lock:
            try:
                state = self.store.state()
                if self._state is None or state[:2] != self._state[:2]:
                    self._restart(self.first, state)
                elif state != self._state:
                    self.extend(self.store.after(self.last))
                    self._state = state
                if self.error is not None:
                    log.info("Events can be read again.")
                self.error = None
            except StoreError as error:
                self.failures += 1
                if self.error is None:
                    log.error("Events cannot be read: %s", error)
                self.error = str(error)

    def _restart(self, first: int, state: tuple[int, int, int]) -> None:
        fresh = EventCache(self.store, last=first)
        fresh.extend(self.store.after(first))
        self.by_user, self.first, self.last = fresh.by_user, first, fresh.last
        self._state = state

    def extend(self, events: Iterable[Event]) -> None:
        """Add events that are newer than all in the cache."""
        for event in events:
            self.by_user.setdefault(event.user, []).append(event)
            self.last = event.number

    def of(self, user: str, after: int = 0) -> list[Event]:
        """Return the events of a user with numbers above `after`, oldest first."""
        return [event for event in self.by_user.get(user, ()) if event.number > after]

    def since(self, number: int) -> list[Event]:
        """Return the events of all users with numbers above `number`, in the order of arrival."""
        with self._lock:
            found = [e for events in self.by_user.values() for e in events if e.number > number]
        return sorted(found, key=lambda event: event.number)

    def forget(self, number: int) -> None:
        """Drop the events up to a number, once no older model version is served."""
        with self._lock:
            kept = {user: self.of(user, number) for user in self.by_user}
            self.first = number
            self.by_user = {user: events for user, events in kept.items() if events}

    def restart(self, first: int) -> None:
        """Read all events after a number: at the start, and before an older version is served."""
        with self._lock:
            self._restart(first, self.store.state())
