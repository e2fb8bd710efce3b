"""A load generator for loopback: plain sockets, so that it is quicker than what it asks."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

HOST = "127.0.0.1"
#: Seconds after which a connection that nobody has used is not used again.
IDLE = 3.0
#: Makes the next request, as bytes.
Next = Callable[[], bytes]


def free_port() -> int:
    with socket.socket() as some:
        some.bind((HOST, 0))
        port: int = some.getsockname()[1]
        return port


def get(path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nhost: {HOST}\r\n\r\n".encode()


def post(path: str, value: Any) -> bytes:
    body = json.dumps(value).encode()
    head = f"POST {path} HTTP/1.1\r\nhost: {HOST}\r\ncontent-type: application/json\r\n"
    return f"{head}content-length: {len(body)}\r\n\r\n".encode() + body


@dataclass
class Load:
    """What came of some load.

    Attributes:
        broken: Connections that ended before there was an answer.
        unsent: Requests that were due while every connection waited for an answer.
    """

    seconds: float = 0.0
    times: list[float] = field(default_factory=list)
    statuses: dict[int, int] = field(default_factory=dict)
    broken: int = 0
    unsent: int = 0

    @property
    def rate(self) -> float:
        return len(self.times) / self.seconds

    def ms(self, quantile: float) -> float:
        return float(np.quantile(self.times, quantile)) * 1000

    @property
    def failed(self) -> int:
        return (
            self.broken
            + self.unsent
            + sum(n for status, n in self.statuses.items() if status >= 400)
        )


class Line:
    """A connection that is kept open."""

    def __init__(self, port: int) -> None:
        self._port, self._used = port, 0.0
        self._writer: asyncio.StreamWriter | None = None

    async def ask(self, request: bytes) -> tuple[int, bytes]:
        if time.monotonic() - self._used > IDLE:  # the other side may hang up at any moment
            self.close()
        self._used = time.monotonic()
        if self._writer is None:
            self._reader, self._writer = await asyncio.open_connection(HOST, self._port)
        try:
            self._writer.write(request)
            head = await self._reader.readuntil(b"\r\n\r\n")
            at = head.lower().index(b"content-length:") + 15
            length = int(head[at : head.index(b"\r", at)])
            return int(head[9:12]), await self._reader.readexactly(length)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None


async def _closed(port: int, make: Next, lines: int, seconds: float, load: Load) -> None:
    end = time.perf_counter() + seconds

    async def run() -> None:
        line = Line(port)
        while (began := time.perf_counter()) < end:
            await _once(line, make(), began, load)
        line.close()

    started = time.perf_counter()
    await asyncio.gather(*(run() for _ in range(lines)))
    load.seconds += time.perf_counter() - started


async def _once(line: Line, request: bytes, began: float, load: Load) -> None:
    try:
        status, _ = await line.ask(request)
    except (OSError, asyncio.IncompleteReadError):
        load.broken += 1
        return
    load.times.append(time.perf_counter() - began)
    load.statuses[status] = load.statuses.get(status, 0) + 1


def closed_loop(
    port: int, make: Next, lines: int, seconds: float, load: Load | None = None
) -> Load:
    """Ask on some connections, each as soon as it has an answer."""
    load = load or Load()
    asyncio.run(_closed(port, make, lines, seconds, load))
    return load


async def _open(port: int, make: Next, rate: float, seconds: float, load: Load) -> None:
    """Ask at a rate, whatever the answers do; times count from when a request was due."""
    draw, free, tasks = random.Random(0), [Line(port) for _ in range(512)], set()
    started = time.perf_counter()
    due = started

    async def one(began: float) -> None:
        if not free:
            load.unsent += 1
            return
        line = free.pop()
        await _once(line, make(), began, load)
        free.append(line)

    while due < started + seconds:
        due += draw.expovariate(rate)
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        task = asyncio.create_task(one(due))
        tasks.add(task)
        task.add_done_callback(tasks.discard)
    await asyncio.gather(*tasks)
    load.seconds += time.perf_counter() - started
    for line in free:
        line.close()


def open_loop(port: int, make: Next, rate: float, seconds: float) -> Load:
    load = Load()
    asyncio.run(_open(port, make, rate, seconds, load))
    return load


def wait_until_ready(process: subprocess.Popen[Any], port: int, seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if process.poll() is not None:
            raise SystemExit(f"The service has ended with {process.returncode}.")
        try:
            if asyncio.run(Line(port).ask(get("/readyz")))[0] == 200:
                return
        except (OSError, asyncio.IncompleteReadError):
            time.sleep(0.05)
    raise SystemExit("The service does not answer.")


@contextmanager
def running(
    words: list[str], port: int, core: int | None = None, log: Any = None
) -> Iterator[subprocess.Popen[Any]]:
    """Run a service in a group of processes of its own, on a core if one is named."""
    pin = ["taskset", "-c", str(core)] if core is not None else []
    process = subprocess.Popen(
        [*pin, sys.executable, *words],
        start_new_session=True,
        stdout=log,
        stderr=log,
        env={**os.environ, "MALLOC_ARENA_MAX": "2"},  # as in deploy/
    )
    try:
        wait_until_ready(process, port)
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def serve_words(model: Any, port: int, *more: str) -> list[str]:
    return ["-m", "transcf", "serve", str(model), "--port", str(port), *more]
