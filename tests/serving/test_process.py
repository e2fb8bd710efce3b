"""The command itself: two workers on a port, killed, started again, ended politely."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable
from http.client import HTTPConnection
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner

from transcf.cli.app import app


def test_workers_share_events_which_survive_a_kill(
    shop: Path, start: Callable[..., tuple[subprocess.Popen[str], str]]
) -> None:
    process, address = start(shop / "shop", "--items", shop / "items.csv", "--workers", 2)
    first = httpx.get(f"{address}/v1/recommendations/u005").json()["items"][0]["item"]
    event = {"user": "u005", "item": first, "key": "k"}
    assert httpx.post(f"{address}/v1/events", json=event).json()["stored"] == 1
    for _ in range(20):  # a new connection each time: both workers get some
        found = httpx.get(f"{address}/v1/recommendations/u005").json()
        assert found["source"] == "folded_in"
        assert first not in [entry["item"] for entry in found["items"]]
    metrics = httpx.get(f"{address}/metrics").text
    counted = re.findall(r"requests_total\{.*/recommendations/.*\} (\d+)", metrics)
    assert sum(map(int, counted)) == 21
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    process, address = start(shop / "shop")
    assert httpx.post(f"{address}/v1/events", json=event).json()["repeated"] == 1
    assert httpx.get(f"{address}/v1/users/u005").json()["history"][0]["item"] == first
    # What has begun is finished: a long answer is on its way when the service is told to end.
    users = {"users": [f"u{number:03d}" for number in range(1, 151)], "k": 60}
    line = HTTPConnection(address.removeprefix("http://"), timeout=60)
    line.request("GET", "/healthz")
    assert line.getresponse().read()
    headers = {"content-type": "application/json"}
    line.request("POST", "/v1/recommendations", json.dumps(users), headers)
    time.sleep(0.2)
    process.send_signal(signal.SIGTERM)
    assert len(json.loads(line.getresponse().read())["answers"]) == 150
    line.close()
    assert process.wait(30) == 0, "`serve --demo` removes its folder then"
    assert "Traceback" not in process.stdout.read()  # type: ignore[union-attr]


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="finds workers through /proc")
def test_a_worker_that_dies_is_logged_and_replaced(
    shop: Path, start: Callable[..., tuple[subprocess.Popen[str], str]]
) -> None:
    process, address = start(shop / "shop", "--workers", 2)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    workers = [
        int(pid) for pid in children if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()
    ]
    assert len(workers) == 2
    os.kill(workers[0], signal.SIGKILL)
    line = ""
    while f"Worker {workers[0]} died with exit code -9" not in line:
        line = process.stdout.readline()  # type: ignore[union-attr]
        assert line, "the log has ended"
    assert httpx.get(f"{address}/readyz", timeout=60).status_code == 200


def test_the_command_refuses_in_a_sentence(shop: Path) -> None:
    def said(*words: object) -> str:
        result = CliRunner().invoke(app, ["serve", *map(str, words)])
        assert result.exit_code == 2
        assert "Traceback" not in result.output
        return " ".join(result.output.split())

    assert "--token-file" in said(shop / "shop", "--host", "0.0.0.0")
    assert "There is no model folder" in said(shop / "nothing")
    assert "no file" in said(shop / "shop", "--items", shop / "nothing.csv")
    assert "to serve, or give --demo" in said()
    assert not list(shop.glob("nothing*"))
    refreshed = CliRunner().invoke(app, ["refresh", str(shop / "shop"), "--back-to", "7"])
    assert "There is no version 7" in refreshed.output
    nothing = CliRunner().invoke(app, ["refresh", str(shop / "shop")])
    assert (nothing.exit_code, "There is no event" in nothing.output) == (0, True)
