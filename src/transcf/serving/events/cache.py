"""What happened since a model was fitted, in memory, by user."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

from transcf.serving.events.store import Event, EventStore, StoreError


@dataclass
class EventCache:
    """Events of a store after some number, read as they come.

    Attributes:
        store: Where they are.
        first: Events up to this number are not kept: the served model has learned from them.
        last: The newest that was read.
        by_user: Events of each user, oldest first.
        trouble: Why the store could not be read the last time; None if it could.

    Example:
        >>> from transcf.serving.events.store import open_store
        >>> recent = EventCache(open_store("recent.db"))
        >>> _ = open_store("recent.db").add([[Event("ann", "tea", 0.0)]])
        >>> recent.update()
        >>> [event.item for event in recent.of("ann")]
        ['tea']
    """

    store: EventStore
    first: int = 0
    last: int = 0
    by_user: dict[str, list[tuple[int, Event]]] = field(default_factory=dict)
    trouble: str | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def update(self) -> None:
        """Read what is new: everything that was committed before the call is there afterwards.

        A store that cannot be read leaves what is known, and its words in `trouble`.
        """
        with self._lock:
            try:
                if self.store.changed():
                    self._take()
                self.trouble = None
            except StoreError as error:
                self.trouble = str(error)

    def _take(self) -> None:
        for found in self.store.after(self.last):
            self.by_user.setdefault(found.event.user, []).append((found.number, found.event))
            self.last = found.number

    def of(self, user: str, after: int = 0) -> list[Event]:
        """Return somebody's events with numbers above `after`, oldest first."""
        return [event for number, event in self.by_user.get(user, ()) if number > after]

    def forget(self, number: int) -> None:
        """Drop what a new model has learned from, once no older one is served."""
        with self._lock:
            kept = {
                user: [entry for entry in events if entry[0] > number]
                for user, events in self.by_user.items()
            }
            self.first = number
            self.by_user = {user: events for user, events in kept.items() if events}

    def begin(self, first: int) -> None:
        """Read from a number on: when a service starts, or goes back to an older version.

        Raises:
            StoreError: The store cannot be read; nothing has changed then.
        """
        with self._lock:
            found = self.store.after(first)
            by_user: dict[str, list[tuple[int, Event]]] = {}
            for entry in found:
                by_user.setdefault(entry.event.user, []).append((entry.number, entry.event))
            last = found[-1].number if found else first
            self.by_user, self.first, self.last = by_user, first, last
