"""Stores of events: nothing lost, nothing twice, seen by everybody at once."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from transcf.errors import ParameterError
from transcf.serving.events import Event, EventCache, EventStore, StoreError


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    pgserver = pytest.importorskip("pgserver", reason="pgserver, a PostgreSQL, is not installed")
    pytest.importorskip("psycopg", reason="psycopg is not installed")
    try:
        server = pgserver.get_server(tmp_path_factory.mktemp("postgres"))
    except Exception as problem:  # whatever keeps a server from starting here
        pytest.skip(f"PostgreSQL does not start here: {problem}")
    yield server.get_uri()
    server.cleanup()


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return str(tmp_path / "events.db")
    address: str = request.getfixturevalue("database")
    import psycopg

    with psycopg.connect(address, autocommit=True) as link:
        link.execute("DROP TABLE IF EXISTS transcf_events, transcf_events_state")
    return address


def test_keys_count_once_and_numbers_ascend(url: str) -> None:
    store = EventStore(url)
    posts = [
        [Event("ann", "tea", 1.5, 4.0, "a"), Event("ann", "cup", 2.0, None, "b")],
        [Event("bob", "tea", 3.0, None, "a"), Event("bob", "pot", 3.0), Event("bob", "pot", 3.0)],
    ]
    added = store.add(posts)
    assert [(one["stored"], one["repeated"]) for one in added] == [(2, 0), (2, 1)]
    found = EventStore(url).after(0)
    assert found == [*posts[0], *posts[1][1:]]
    numbers = [one.number for one in found]
    assert numbers == sorted(set(numbers))
    assert added[-1]["last"] == numbers[-1]
    assert [one.number for one in store.after(numbers[1])] == numbers[2:]


def test_stores_without_a_state_are_taken_over(tmp_path: Path) -> None:
    path = tmp_path / "events.db"
    with sqlite3.connect(path) as older:
        older.execute(
            "CREATE TABLE events (number INTEGER PRIMARY KEY AUTOINCREMENT, key TEXT UNIQUE, "
            "user TEXT NOT NULL, item TEXT NOT NULL, time REAL NOT NULL, rating REAL)"
        )
        older.execute("INSERT INTO events VALUES (7, 'a', 'ann', 'tea', 1.5, NULL)")
    store = EventStore(str(path))
    assert store.after(0) == [Event("ann", "tea", 1.5, None, "a")]
    [added] = store.add([[Event("ann", "tea", 1.5, None, "a"), Event("ann", "cup", 2.0)]])
    assert added == {"stored": 1, "repeated": 1, "last": 8}


def test_any_number_of_events_is_deleted(url: str) -> None:
    store = EventStore(url)
    store.add([[Event("ann", f"i{number}", 0.0) for number in range(300)]])
    numbers = [one.number for one in store.after(0)]
    assert store.delete([*numbers[:299], *range(1000, 301_000)]) == 299
    assert [one.item for one in store.after(0)] == ["i299"]


def test_writers_side_by_side_lose_nothing(url: str) -> None:
    EventStore(url).close()
    reader = EventCache(EventStore(url))

    def write(writer: int) -> None:
        store = EventStore(url)
        for number in range(20):
            event = Event(f"u{writer}", f"i{number}", 0.0, None, f"{writer}-{number}")
            store.add([[event], [event]])

    with ThreadPoolExecutor(4) as pool:
        jobs = [pool.submit(write, writer) for writer in range(4)]
        while not all(job.done() for job in jobs):
            reader.update()  # in between, which must not make it miss anything
        for job in jobs:
            job.result()
    reader.update()
    for writer in range(4):
        assert [e.item for e in reader.of(f"u{writer}")] == [f"i{n}" for n in range(20)]


def test_events_are_known_up_to_what_a_model_has_learned(url: str) -> None:
    store, recent = EventStore(url), EventCache(EventStore(url))
    store.add([[Event("ann", "tea", 0.0), Event("ann", "cup", 0.0)]])
    recent.update()
    first, second = recent.by_user["ann"]
    assert [e.item for e in recent.of("ann", first.number)] == ["cup"]
    recent.forget(first.number)
    assert [e.item for e in recent.of("ann")] == ["cup"]
    recent.restart(0)
    assert [e.item for e in recent.of("ann")] == ["tea", "cup"]
    recent.forget(second.number)
    assert recent.by_user == {}


def test_a_store_that_cannot_be_used_says_so(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("this is no database" * 100)
    with pytest.raises(StoreError, match=r"notes\.txt cannot be used"):
        EventStore(str(tmp_path / "notes.txt"))
    with pytest.raises(ParameterError, match="redis:// is no store"):
        EventStore("redis://localhost")
    with pytest.raises(StoreError, match="PostgreSQL cannot be used"):
        EventStore("postgresql://nobody@127.0.0.1:1/nothing")
    with pytest.raises(StoreError, match="PostgreSQL cannot be used"):
        EventStore("postgresql://nobody@127.0.0.1:port/nothing")
    with pytest.raises(StoreError, match=r"PostgreSQL cannot be used.*refused"):
        EventStore("postgresql://nobody@127.0.0.1:1,127.0.0.1:2/nothing")


def test_a_store_that_fails_later_leaves_what_is_known(tmp_path: Path) -> None:
    path = tmp_path / "events.db"
    EventStore(str(path)).add([[Event("ann", "tea", 0.0)]])
    recent = EventCache(EventStore(str(path)))
    recent.update()
    recent.store.close()
    broken = EventCache(_Broken(), by_user=recent.by_user)  # type: ignore[abstract]
    broken.update()
    assert broken.error == "The disk is gone."
    assert [e.item for e in broken.of("ann")] == ["tea"]


class _Broken:
    def state(self) -> bool:
        raise StoreError("The disk is gone.")
