"""What a store of events does, wherever it keeps them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from transcf.errors import ParameterError, TransCFError


class StoreError(TransCFError, OSError):
    """Events cannot be written or read right now."""


@dataclass(frozen=True, slots=True)
class Event:
    """Somebody took something.

    Attributes:
        user: Id of the user, as text.
        item: Id of the item, as text.
        time: Seconds since 1970.
        rating: A number, if there is one.
        key: What the client calls the event; of events with the same key one is kept.
    """

    user: str
    item: str
    time: float
    rating: float | None = None
    key: str | None = None


@dataclass(frozen=True, slots=True)
class Stored:
    """An event with its number.

    Attributes:
        number: Ascending in the order in which events were committed.
        event: What happened.
    """

    number: int
    event: Event


@dataclass(frozen=True, slots=True)
class Added:
    """What came of some events.

    Attributes:
        stored: How many are new.
        repeated: How many were there already, by their keys.
        last: Number of the newest event in the store.
    """

    stored: int
    repeated: int
    last: int


class EventStore(ABC):
    """Keeps events; each thread has a store object of its own.

    Numbers ascend in the order of the commits: who has read up to a number never misses an event
    with a smaller one.
    """

    @abstractmethod
    def add(self, posts: Sequence[Sequence[Event]]) -> list[Added]:
        """Store some posts in one transaction; they are on disk when it returns.

        Raises:
            StoreError: Nothing is stored, as far as is known: the same may be sent again.
        """

    @abstractmethod
    def changed(self) -> bool:
        """Whether there may be events that `after` has not returned yet; quick."""

    @abstractmethod
    def after(self, number: int) -> list[Stored]:
        """Return the events with larger numbers, ascending."""

    @abstractmethod
    def close(self) -> None:
        """Let go of the connection."""


def events_url(model: Path, url: str | None) -> str:
    """Return where events of a model are kept: where it was said, or in a file beside it.

    Example:
        >>> events_url(Path("/models/shop"), None)
        '/models/shop.events.db'
    """
    base = model.absolute()
    return url or str(base.with_name(f"{base.name}.events.db"))


def open_store(url: str) -> EventStore:
    """Open a store, and make it if it is not there.

    Args:
        url: A path (or `sqlite:///path`) for SQLite, `postgresql://...` for PostgreSQL.

    Raises:
        StoreError: It cannot be opened.
        MissingExtraError: psycopg is not installed.

    Example:
        >>> store = open_store("events.db")
        >>> store.add([[Event("ann", "tea", 0.0, key="1")], [Event("ann", "tea", 0.0, key="1")]])
        [Added(stored=1, repeated=0, last=1), Added(stored=0, repeated=1, last=1)]
        >>> [found.event.item for found in store.after(0)]
        ['tea']
    """
    scheme, parted, rest = url.partition("://")
    if parted and scheme in ("postgresql", "postgres"):
        from transcf.serving.events.postgres import PostgresStore

        return PostgresStore(url)
    if parted and scheme != "sqlite":
        raise ParameterError(
            f"{scheme}:// is no store of events: name a file, or postgresql://user@host/name."
        )
    from transcf.serving.events.sqlite import SqliteStore

    return SqliteStore(Path(rest.removeprefix("/") if parted else url))
