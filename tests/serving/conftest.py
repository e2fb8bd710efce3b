"""A small shop, and services that answer in this process."""

from __future__ import annotations

import shutil
import subprocess
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi", reason="the extra `serve` is not installed")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # starlette would rather have another httpx
    from starlette.testclient import TestClient

from tests.serving.processes import commands

from transcf.data.interactions import Interactions
from transcf.data.synthetic import item_table, synthesize
from transcf.models.registry import create
from transcf.serving.app import create_app
from transcf.serving.service import Service
from transcf.serving.settings import ServiceSettings

#: What the service is called by those on the same machine.
HERE = "http://127.0.0.1"


@pytest.fixture(scope="session")
def log() -> Interactions:
    return synthesize(users=150, items=60, interactions=2000, seed=3)


@pytest.fixture(scope="session")
def trained(log: Interactions, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a fitted model, `shop`, and a table of its items, `items.csv`."""
    place = tmp_path_factory.mktemp("shop")
    create("transcf-mixture", dim=8, epochs=2).fit(log).save(place / "shop")
    assert log.categories is not None
    item_table(log.categories).write_csv(place / "items.csv")
    return place


@pytest.fixture
def shop(trained: Path, tmp_path: Path) -> Path:
    """A copy that a test may change, without the map that a service of another test stored."""
    ignored = shutil.ignore_patterns("shop.versions")
    shutil.copytree(trained, tmp_path / "place", ignore=ignored)
    return tmp_path / "place"


@pytest.fixture
def open_client() -> Iterator[Callable[..., TestClient]]:
    """Start services on a model; they end with the test."""
    with ExitStack() as stack:

        def start(model: Path, **settings: Any) -> TestClient:
            app = create_app(Service(ServiceSettings(model, **settings)))
            return stack.enter_context(TestClient(app, base_url=HERE))

        yield start


@pytest.fixture
def start() -> Iterator[Callable[..., tuple[subprocess.Popen[str], str]]]:
    with commands() as run:
        yield run


@pytest.fixture
def client(shop: Path, open_client: Callable[..., TestClient]) -> TestClient:
    return open_client(shop / "shop", items=shop / "items.csv")
