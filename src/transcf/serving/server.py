"""`run`: serve a model on a port, with one process or several."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI
from pydantic import TypeAdapter

from transcf.interrupts import temporary_folder
from transcf.serving.app import create_app
from transcf.serving.middleware import METRICS_FOLDER, check_host, read_token
from transcf.serving.model_version import SHARED_FOLDER
from transcf.serving.service import Service, ServiceSettings

#: Environment variable with the settings, for workers; each reads the token from its file.
_ENVIRONMENT = "TRANSCF_SERVICE"
_OPTIONS: dict[str, Any] = {
    "log_level": "warning",
    "access_log": False,
    "limit_concurrency": 2048,
    "timeout_graceful_shutdown": 15,
    "timeout_keep_alive": 75,  # longer than clients and load balancers keep connections
    "server_header": False,
    "date_header": False,
}


@dataclass(frozen=True)
class Address:
    """Where a service listens.

    Attributes:
        host: Name or number.
        port: Port; 0 takes a free one.
        workers: Processes that share it.
    """

    host: str = "127.0.0.1"
    port: int = 8080
    workers: int = 1


def run(
    settings: ServiceSettings, address: Address, ready: Callable[[], None] = lambda: None
) -> None:
    """Serve until SIGTERM or Ctrl-C; requests in progress are finished.

    Args:
        settings: What is served.
        address: Where.
        ready: Called when the model is loaded.

    Raises:
        TransCFError: The model cannot be served.
    """
    check_host(address.host, read_token(settings.token_file))
    options = {**_OPTIONS, "host": address.host, "port": address.port}
    if address.workers == 1:
        app = worker_app(settings)
        ready()
        uvicorn.run(app, **options)
        return
    Service(settings).close()  # raises errors here, once, instead of in every worker
    ready()
    os.environ[_ENVIRONMENT] = TypeAdapter(ServiceSettings).dump_json(settings).decode()
    with temporary_folder("transcf-workers-") as place:
        for name in (METRICS_FOLDER, SHARED_FOLDER):
            Path(place, name).mkdir()
            os.environ[name] = str(Path(place, name))
        factory = f"{__name__}:app_from_environment"
        uvicorn.run(factory, factory=True, workers=address.workers, **options)


def worker_app(settings: ServiceSettings) -> FastAPI:
    """Create the application of this process."""
    logging.basicConfig(format="transcf: %(message)s", level=logging.INFO)
    return create_app(Service(settings))


def app_from_environment() -> FastAPI:
    """Create the application of a worker."""
    settings = TypeAdapter(ServiceSettings).validate_json(os.environ[_ENVIRONMENT])
    return worker_app(settings)
