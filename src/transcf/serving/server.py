"""`run`: the service on a port, in one process or several."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI

from transcf.interrupts import temporary_folder
from transcf.serving.app import create_app
from transcf.serving.auth import check_host, read_token
from transcf.serving.limits import Limits
from transcf.serving.metrics import FOLDER as FIGURES
from transcf.serving.service import Service, ServiceSettings
from transcf.serving.sharing import FOLDER as VECTORS

#: Where workers find what they serve; the token is read from its file by each of them.
_ENVIRONMENT = "TRANSCF_SERVICE"
#: Connections that may be open at once, and seconds for what has begun when a service ends.
_CONNECTIONS, _GRACE = 2048, 15
#: Seconds that a connection may be idle: longer than clients and balancers keep them.
_IDLE = 75


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
    """Serve until the process is told to end; what has begun is finished then.

    Args:
        settings: What is served.
        address: Where.
        ready: Called when it is sure that it can be served.

    Raises:
        TransCFError: It cannot be served; the sentence says why.
    """
    check_host(address.host, read_token(settings.token_file))
    options: dict[str, Any] = {
        "host": address.host,
        "port": address.port,
        "log_level": "warning",
        "access_log": False,
        "limit_concurrency": _CONNECTIONS,
        "timeout_graceful_shutdown": _GRACE,
        "timeout_keep_alive": _IDLE,
        "server_header": False,
        "date_header": False,
    }
    if address.workers == 1:
        app = worker_app(settings)
        ready()
        uvicorn.run(app, **options)
        return
    Service(settings).close()  # what cannot be served is said here, once, and not by every worker
    ready()
    os.environ[_ENVIRONMENT] = _written(settings)
    with temporary_folder("transcf-workers-") as place:
        for name, folder in ((FIGURES, "figures"), (VECTORS, "vectors")):
            Path(place, folder).mkdir()
            os.environ[name] = str(Path(place, folder))
        factory = f"{__name__}:app_of_worker"
        uvicorn.run(factory, factory=True, workers=address.workers, **options)


def worker_app(settings: ServiceSettings) -> FastAPI:
    """Make the application of this process."""
    logging.basicConfig(format="transcf: %(message)s", level=logging.INFO)
    return create_app(Service(settings))


def app_of_worker() -> FastAPI:
    """Make the application of a worker, which finds its settings in the environment."""
    return worker_app(_read(os.environ[_ENVIRONMENT]))


def _written(settings: ServiceSettings) -> str:
    return json.dumps(asdict(settings), default=str)


def _read(text: str) -> ServiceSettings:
    values = json.loads(text)
    paths = {
        name: None if values[name] is None else Path(values[name])
        for name in ("items", "token_file")
    }
    return ServiceSettings(
        model=Path(values["model"]),
        events=values["events"],
        limits=Limits(**values["limits"]),
        **paths,
    )
