"""A service on a port of its own, as browsers and clients meet it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
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


def free_port() -> int:
    with socket.socket() as some:
        some.bind(("127.0.0.1", 0))
        port: int = some.getsockname()[1]
        return port


@contextmanager
def commands() -> Iterator[Callable[..., tuple[subprocess.Popen[str], str]]]:
    """Give a function that starts `transcf serve` and returns process and address, once ready."""
    running: list[subprocess.Popen[str]] = []

    def run(
        *words: object, open_files: int | None = None, **environment: str
    ) -> tuple[subprocess.Popen[str], str]:
        port = free_port()
        line = [sys.executable, "-m", "transcf", "serve", *map(str, words), "--port", str(port)]
        if open_files is not None:
            line = ["sh", "-c", f'ulimit -n {open_files} && exec "$@"', "sh", *line]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        process = subprocess.Popen(  # type: ignore[call-overload]
            line, start_new_session=True, env=os.environ | environment, **pipes
        )
        running.append(process)
        address = f"http://127.0.0.1:{port}"
        for _ in range(600):
            try:
                if httpx.get(f"{address}/readyz", timeout=5).status_code == 200:
                    return process, address
            except httpx.TransportError:
                assert process.poll() is None, process.stdout.read()
                time.sleep(0.1)
        raise AssertionError("the service does not answer")

    yield run
    for process in running:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        process.stdout.close()  # type: ignore[union-attr]
