"""One Ray for all tests of a module, since starting one takes seconds."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module")
def session() -> Iterator[None]:
    """A cluster of this machine, which whatever asks for one finds."""
    from transcf.distributed.cluster import connected

    with connected(None, processors=3):
        yield
