"""The server: connections with deadlines and limits, and the processes that answer them.

uvicorn has no deadline for headers, refuses connections above `limit_concurrency` in plain text
(probes included) and does not limit the size of headers. `Connection` adds these to its protocol.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI
from prometheus_client.multiprocess import mark_process_dead
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.supervisors import Multiprocess

from transcf.interrupts import temporary_folder
from transcf.serving.app import create_app
from transcf.serving.errors import configure_logging, error_response, request_id
from transcf.serving.middleware import new_request_id
from transcf.serving.model_version import SHARED_FOLDER
from transcf.serving.service import METRICS_FOLDER, Service
from transcf.serving.settings import ServiceSettings, check_host

log = logging.getLogger("transcf.serving")

#: Open files if there is no limit, and those that are no connections.
_MAX_FILES, _OTHER_FILES = 65_536, 64
#: Seconds after which a worker that does not react is replaced; starting one takes several.
_WORKER_SECONDS = 60


class Connection(HttpToolsProtocol):
    """A connection that sends its headers in time and in reasonable size.

    Connections without a request in progress are kept in the order in which they became idle. Above
    `max_connections` the first of them is closed, so that unfinished or idle connections never keep
    new ones, such as those of probes, from being answered.
    """

    #: Connections of this process without a request in progress.
    idle: dict[Connection, None] = {}  # noqa: RUF012  # shared by all connections

    def __init__(self, settings: ServiceSettings, **options: Any) -> None:
        super().__init__(**options)
        self._settings = settings
        self._deadline: asyncio.TimerHandle | None = None
        self._unparsed = 0  # bytes since the end of the last headers

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Close the oldest idle connection if there are too many."""
        super().connection_made(transport)
        if len(self.connections) > self._settings.max_connections and self.idle:
            oldest = next(iter(self.idle))
            oldest.leave_idle()
            oldest.transport.close()
        self.idle[self] = None
        self._set_deadline()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self.leave_idle()
        super().connection_lost(exc)

    def leave_idle(self) -> None:
        """Take the connection from the idle ones, and end its deadline."""
        self.idle.pop(self, None)
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def data_received(self, data: bytes) -> None:
        """Parse data; what belongs to no request in progress must become one in time."""
        self._unparsed += len(data)
        super().data_received(data)
        if self in self.idle and not self.transport.is_closing():
            if self._unparsed > self._settings.max_header_bytes:
                self._refuse(431, "too_large", "The headers are too large.")
            elif self._deadline is None:
                self._set_deadline()

    def on_headers_complete(self) -> None:
        """Begin a request."""
        names = [name for name, _ in self.headers]
        if b"transfer-encoding" in names and b"content-length" in names:
            # A proxy may see the end of the request elsewhere. The caller sends status 400.
            raise ValueError("Content-Length together with Transfer-Encoding")
        self._unparsed = 0
        self.leave_idle()
        super().on_headers_complete()

    def on_response_complete(self) -> None:
        """End a request."""
        super().on_response_complete()
        if self.cycle.response_complete and not self.transport.is_closing():
            self.idle[self] = None

    def send_400_response(self, msg: str) -> None:
        """Refuse data that is no HTTP request."""
        self._refuse(400, "invalid", msg)

    def _set_deadline(self) -> None:
        seconds = self._settings.header_seconds
        sentence = f"The headers did not arrive within {seconds:g} seconds."
        self._deadline = self.loop.call_later(seconds, self._refuse, 408, "timeout", sentence)

    def _refuse(self, status: int, code: str, sentence: str) -> None:
        """Send an error and close the connection."""
        if self.transport.is_closing():
            return
        request_id.set(new_request_id())
        response = error_response(status, code, sentence)
        response.headers["connection"] = "close"
        head = f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\n".encode()
        lines = b"".join(b"%b: %b\r\n" % pair for pair in response.raw_headers)
        self.transport.write(head + lines + b"\r\n" + bytes(response.body))
        self.transport.close()


class _Workers(Multiprocess):
    """Processes that are replaced when they die, with a line in the log."""

    def keep_subprocess_alive(self) -> None:
        """Replace processes that died, and forget their gauges."""
        before = {process.pid: process for process in self.processes}
        super().keep_subprocess_alive()
        for pid in before.keys() - {process.pid for process in self.processes}:
            code = before[pid].exitcode
            log.error("Worker %s died with exit code %s and is replaced.", pid, code)
            mark_process_dead(pid)  # type: ignore[no-untyped-call]


def run(settings: ServiceSettings, ready: Callable[[str], None] = lambda _: None) -> None:
    """Serve until SIGTERM or Ctrl-C; requests in progress are finished.

    `ready` is called with the address when the model is loaded and the port is open.
    """
    check_host(settings.host, has_tokens=settings.token_file is not None)
    settings = _within_open_files(settings)
    configure_logging(settings.log_format)
    if settings.workers == 1:
        server = uvicorn.Server(server_config(create_app(Service(settings)), settings))
        with contextlib.suppress(KeyboardInterrupt):
            # At its end uvicorn sends itself the signal again: the caller still has to clean up.
            signal.signal(signal.SIGTERM, signal.default_int_handler)
            server.run([_open_port(settings, ready)])
        return
    Service(settings).close()  # raises errors here, once, instead of in every worker
    with temporary_folder("transcf-workers-") as place:
        for name in (METRICS_FOLDER, SHARED_FOLDER):
            Path(place, name).mkdir()
            os.environ[name] = str(Path(place, name))
        config = server_config(partial(_worker_app, settings), settings)
        _Workers(config, sockets=[_open_port(settings, ready)]).run()


def _within_open_files(settings: ServiceSettings) -> ServiceSettings:
    """Allow as many open files as the system does, and no more connections than fit into them."""
    try:
        import resource
    except ImportError:  # Windows
        return settings
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MAX_FILES if hard == resource.RLIM_INFINITY else hard
    if 0 <= soft < wanted:  # neither unlimited nor enough
        with contextlib.suppress(OSError, ValueError):  # some systems allow less than they say
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            soft = wanted
    most = soft if soft >= 0 else wanted
    connections = min(settings.max_connections, max(1, most - _OTHER_FILES))
    return replace(settings, max_connections=connections)


def _open_port(settings: ServiceSettings, ready: Callable[[str], None]) -> socket.socket:
    is_v6 = ":" in settings.host
    family = socket.AF_INET6 if is_v6 else socket.AF_INET
    try:
        found = socket.create_server((settings.host, settings.port), family=family, backlog=2048)
    except OSError as error:
        problem = f"Port {settings.port} of {settings.host} cannot be opened: {error.strerror}."
        raise OSError(problem) from error
    found.set_inheritable(True)
    host = f"[{settings.host}]" if is_v6 else settings.host
    ready(f"http://{host}:{found.getsockname()[1]}/")
    return found


def server_config(app: FastAPI | partial[FastAPI], settings: ServiceSettings) -> uvicorn.Config:
    """Return the configuration of the server for an application, or for a function that makes it.

    Workers get the function: each makes an application of its own.
    """
    protocol: Any = partial(Connection, settings)
    return uvicorn.Config(
        app,
        factory=isinstance(app, partial),
        workers=settings.workers,
        http=protocol,
        ws="none",
        log_config=None,
        access_log=False,
        timeout_graceful_shutdown=settings.shutdown_seconds,
        timeout_keep_alive=settings.keep_alive_seconds,
        timeout_worker_healthcheck=_WORKER_SECONDS,
        server_header=False,
        date_header=False,
    )


def _worker_app(settings: ServiceSettings) -> FastAPI:
    configure_logging(settings.log_format)
    return create_app(Service(settings))
