"""A service on a port of its own, as browsers and clients meet it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import uvicorn

from transcf.serving.app import create_app
from transcf.serving.server import server_config
from transcf.serving.service import Service
from transcf.serving.settings import ServiceSettings


@contextmanager
def living(model: Path, **options: Any) -> Iterator[str]:
    """Serve a model from a thread until the block ends; gives its address."""
    settings = ServiceSettings(model, **options)
    config = server_config(create_app(Service(settings)), settings)
    config.port = 0
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive(), "the service has not started"
        time.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    yield f"http://127.0.0.1:{port}"
    server.should_exit = True
    thread.join(10)
