"""What tests share: where real data is, and small logs."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import numpy as np
import polars as pl
import pytest
from hypothesis import settings
from tests.browser import QUIET, executable

from transcf.data.ids import IdMap
from transcf.data.interactions import Interactions

if TYPE_CHECKING:
    from playwright.sync_api import Browser

# Kernels compile at first use: a time limit per example would judge the compiler.
settings.register_profile("transcf", deadline=None)
settings.load_profile("transcf")

# As the Makefile does it, for those who call pytest by themselves.
_DATASETS = Path(__file__).resolve().parents[2] / "shared" / "datasets"
if _DATASETS.is_dir():
    os.environ.setdefault("TRANSCF_DATA", str(_DATASETS))


@pytest.fixture(autouse=True)
def _own_store(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no test find what another one, or the user, has run."""
    monkeypatch.setenv("TRANSCF_RUNS", str(tmp_path_factory.getbasetemp() / uuid4().hex))


@pytest.fixture(scope="session")
def real_data() -> Callable[[str], Path]:
    """Return the folder of a real dataset, or skip the test when it is not there."""

    def find(name: str) -> Path:
        root = os.environ.get("TRANSCF_DATA")
        if root and (folder := Path(root) / name).is_dir():
            return folder
        pytest.skip(f"real dataset {name!r} is not here: set TRANSCF_DATA to its parent folder")

    return find


@pytest.fixture(scope="session")
def random_log() -> Interactions:
    """A log of middling size, dense enough for every pair of items to matter."""
    rng = np.random.default_rng(11)
    popularity = rng.pareto(1.5, 60) + 0.1
    items = rng.choice(60, size=900, p=popularity / popularity.sum())
    user_ids, user_rows = IdMap.encode(pl.Series(rng.integers(0, 80, 900)))
    item_ids, item_rows = IdMap.encode(pl.Series([f"item {n:02}" for n in items]))
    return Interactions.from_rows(user_ids, item_ids, user_rows, item_rows)


@pytest.fixture(scope="module")
def small_forests() -> Iterator[None]:
    """Random forests of a few trees, where it does not matter how good they are."""
    ensemble = pytest.importorskip("sklearn.ensemble", reason="scikit-learn is not installed")
    small = partial(ensemble.RandomForestClassifier, n_estimators=10)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ensemble, "RandomForestClassifier", small)
        yield


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A headless browser, or skip the test when there is none; see `tests.browser.visit`.

    Playwright keeps an event loop running in this thread, so it ends with the module: tests of
    other modules may call `asyncio.run`.
    """
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    found = executable()
    if found is None:
        pytest.skip("there is no Chromium here: `make browser` installs it")
    with sync_api.sync_playwright() as play:
        opened = play.chromium.launch(executable_path=found, args=list(QUIET))
        yield opened
        opened.close()


@pytest.fixture(scope="session")
def database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A PostgreSQL of our own, by its URL."""
    pgserver = pytest.importorskip("pgserver", reason="pgserver, a PostgreSQL, is not installed")
    pytest.importorskip("psycopg", reason="psycopg is not installed")
    pytest.importorskip("pgvector", reason="pgvector is not installed")
    folder = tmp_path_factory.mktemp("postgres")
    try:
        server = pgserver.get_server(folder)
    except Exception as problem:  # whatever keeps a server from starting here
        pytest.skip(f"PostgreSQL does not start here: {problem}")
    yield server.get_uri()
    server.cleanup()
