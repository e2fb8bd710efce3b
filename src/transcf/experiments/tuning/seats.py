"""Seats: which of several processes at one record of trials this one is."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

from sqlalchemy import Engine, text

from transcf.experiments.locks import locked


@contextmanager
def seat(engine: Engine, study: str) -> Iterator[int]:
    """Give the lowest number that no other process has at a study, for the length of the block.

    It is a lock beside a SQLite file, and one of the database in PostgreSQL: both are free again
    when their owner ends, however that is. In other databases everybody has seat 0.

    Args:
        engine: Of the database.
        study: Name of the trials in it.
    """
    number = zlib.crc32(study.encode()) >> 1  # it has to fit into 31 bits
    if engine.dialect.name == "postgresql":
        with _advised(engine, number) as place:
            yield place
    elif engine.dialect.name == "sqlite" and engine.url.database:
        file = Path(engine.url.database)
        with _beside(file.with_name(f"{file.name}-{number:x}")) as place:
            yield place
    else:
        yield 0


@contextmanager
def _beside(stem: Path) -> Iterator[int]:
    for place in count():
        with locked(stem.with_name(f"{stem.name}.{place}.lock")) as is_ours:
            if is_ours:
                yield place
                return


@contextmanager
def _advised(engine: Engine, number: int) -> Iterator[int]:
    ask = text("SELECT pg_try_advisory_lock(:study, :place)")
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as link:
        try:
            for place in count():
                if link.execute(ask, {"study": number, "place": place}).scalar():
                    yield place
                    return
        finally:
            link.execute(text("SELECT pg_advisory_unlock_all()"))
