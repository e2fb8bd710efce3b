"""What a service must never do, tried hard: lose events, mix versions, grow, fall over.

    python benchmarks/serving_safety.py kills [--times 30] [--store sqlite|postgres]
    python benchmarks/serving_safety.py swaps [--versions 50] [--corrupt 5] [--rate 200]
    python benchmarks/serving_safety.py soak [--minutes 10] [--share 0.7]
    python benchmarks/serving_safety.py hostile [--requests 5000]

- kills: while events stream in, the service (and, with postgres, the database in between) is killed
  with SIGKILL and started again; every acknowledged event has to be there, none twice
- swaps: new versions, some of them corrupt, while requests run; no request may fail, every list has
  to be that of the version it names, and corrupt versions have to be named
- soak: some share of the largest load; no error, and memory that stays once the first half minute
  has filled what is kept
- hostile: requests drawn from the description of the service, most of them nonsense; no 5xx

All of it on loopback, bounded in number and time. Without a word all are run, in short.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from _load import (
    HOST,
    Line,
    closed_loop,
    free_port,
    get,
    open_loop,
    post,
    running,
    serve_words,
    wait_until_ready,
)
from transcf.data.synthetic import synthesize
from transcf.io.model_dir import Versions
from transcf.models.registry import create, load_version
from transcf.serving.events import EventStore

USERS, ITEMS = 300, 200


def small_model(place: Path, seed: int = 0) -> Any:
    log = synthesize(USERS, ITEMS, 6000, seed=0)
    return create("bpr", dim=16, epochs=2, random_state=seed).fit(log)


# -- kills ----------------------------------------------------------------------------------------


@contextmanager
def store_url(kind: str, place: Path) -> Iterator[tuple[str, Any]]:
    """Where events go, and what kills the database (None for a file)."""
    if kind == "sqlite":
        yield str(place / "events.db"), None
        return
    import pgserver

    server = pgserver.get_server(place / "postgres", cleanup_mode=None)
    try:
        yield server.get_uri(), lambda: _kill_database(server)
    finally:
        _control(server, "-m", "immediate", "stop")


def _control(server: Any, *words: str) -> None:
    from pgserver._commands import pg_ctl

    pg_ctl(["-w", *words], pgdata=server.pgdata, user=server.system_user, timeout=60)


def _kill_database(server: Any) -> None:
    """End the database as a power cut would, and start it again."""
    pid_file = server.pgdata / "postmaster.pid"
    lines = pid_file.read_text().splitlines()
    pid, folder = int(lines[0]), lines[4]
    os.kill(pid, signal.SIGSTOP)  # so that it starts no others meanwhile
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    victims = [pid, *map(int, children)]
    for victim in victims:
        os.kill(victim, signal.SIGKILL)
    while any(_command(victim) for victim in victims):
        time.sleep(0.05)
    # Where nobody collects dead processes, the first would seem to be alive by these files.
    for path in (pid_file, *Path(folder).glob(".s.PGSQL.*")):
        path.unlink(missing_ok=True)
    log = str(server.pgdata / "log")
    _control(server, "-o", '-h ""', "-o", f"-k {folder}", "-l", log, "start")


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


async def _stream(port: int, kept: list[str], batch: int, seconds: float, writers: int) -> int:
    """Send events until the service is gone; note the keys of what was acknowledged."""
    end, sent = time.monotonic() + seconds, 0

    async def write(writer: int) -> None:
        nonlocal sent
        line = Line(port)
        while time.monotonic() < end:
            keys = [f"{batch}-{writer}-{sent}-{place}" for place in range(random.randint(1, 5))]
            sent += 1
            events = [{"user": f"u{sent % 50}", "item": "i001", "key": key} for key in keys]
            try:
                status, _ = await asyncio.wait_for(
                    line.ask(post("/v1/events", {"events": events})), 5
                )
            except (OSError, asyncio.IncompleteReadError, TimeoutError):
                await asyncio.sleep(0.01)
                continue
            if status == 200:
                kept.extend(keys)

    await asyncio.gather(*(write(writer) for writer in range(writers)))
    return sent


def kills(times: int, kind: str) -> dict[str, Any]:
    acknowledged: list[str] = []
    posts = 0
    draw = random.Random(0)
    with tempfile.TemporaryDirectory() as folder, store_url(kind, Path(folder)) as (url, cut):
        model = small_model(Path(folder)).save(Path(folder) / "model")
        port = free_port()
        for turn in range(times):
            words = [sys.executable, *serve_words(model, port, "--events", url)]
            process = subprocess.Popen(words, start_new_session=True)
            wait_until_ready(process, port)
            with_cut = cut is not None and turn % 2
            length = draw.uniform(0.3, 1.0) + (2.0 if with_cut else 0.0)
            killer = ["import os,signal,time"]
            killer += [f"time.sleep({length})", f"os.killpg({process.pid}, signal.SIGKILL)"]
            ending = subprocess.Popen([sys.executable, "-c", ";".join(killer)])
            if with_cut:
                posts += asyncio.run(_stream(port, acknowledged, 2 * turn, 0.3, 4))
                cut()
            posts += asyncio.run(_stream(port, acknowledged, 2 * turn + 1, length + 0.2, 4))
            ending.wait()
            process.wait()
        found = [one.key for one in EventStore(url).after(0)]
    counted = Counter(found)
    lost = [key for key in acknowledged if key not in counted]
    twice = [key for key, number in counted.items() if number > 1]
    return {
        "store": kind, "kills": times, "posts": posts, "acknowledged": len(acknowledged),
        "found": len(found), "lost": len(lost), "twice": len(twice),
    }  # fmt: skip


# -- swaps ----------------------------------------------------------------------------------------


def _corrupt(folder: Path, draw: random.Random) -> None:
    """Damage a version in one of the ways that disks and people have."""
    path = folder / draw.choice(
        ["model.safetensors", "seen.parquet", "model.json", "items.parquet"]
    )
    content = bytearray(path.read_bytes())
    how = draw.randrange(3)
    if how == 0:
        content[draw.randrange(len(content))] ^= 1
    elif how == 1:
        del content[draw.randrange(len(content)) :]
    else:
        path.unlink()
        return
    path.write_bytes(content)


def swaps(number: int, corrupt: int, rate: float) -> dict[str, Any]:
    draw = random.Random(0)
    users = [f"u{n:03d}" for n in range(1, USERS + 1)]
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        versions = Versions(small_model(place).save(place / "model").absolute())
        models = {n: small_model(place, seed=n) for n in range(2, number + 2)}
        broken = set(draw.sample(sorted(models), corrupt))
        port, log_path = free_port(), place / "service.log"
        started = time.perf_counter()
        with log_path.open("w") as log, running(serve_words(versions.base, port), port, log=log):
            writer = threading.Thread(target=_write, args=(versions, models, broken, port))
            writer.start()
            started = time.perf_counter()
            answers = asyncio.run(_record(port, users, rate, writer))
            seconds = time.perf_counter() - started
            state = _state(port)
        right = {n: _lists(versions.folder(n), users) for n in versions.all() if n not in broken}
        said = log_path.read_text()
    good = [answer for answer in answers if answer[0] == 200]
    return {
        "versions": number, "corrupt": corrupt, "requests": len(answers),
        "per second": len(answers) / seconds, "failed": len(answers) - len(good),
        "by status": dict(Counter(status for status, *_ in answers)),
        "mixed or wrong": sum(right.get(v, {}).get(u) != items for _, u, v, items in good),
        "versions that answered": len({version for _, _, version, _ in good}),
        "corrupt versions": sorted(broken),
        "refused in /v1/models": sorted({entry["version"] for entry in state["refused"]}),
        "named in the log": sum(f"Version {n} is refused" in said for n in broken),
    }  # fmt: skip


def _state(port: int) -> dict[str, Any]:
    while True:
        status, body = asyncio.run(Line(port).ask(get("/v1/models")))
        if status == 200:
            found: dict[str, Any] = json.loads(body)
            return found
        time.sleep(0.1)


def _write(versions: Versions, models: dict[int, Any], broken: set[int], port: int) -> None:
    """Write one version after the other, each when the one before is served or refused."""
    draw = random.Random(1)
    for version, model in models.items():
        started = time.monotonic()
        assert versions.add(model) == version
        if version in broken:
            _corrupt(versions.folder(version), draw)
        scratch = versions.pointer.with_name("current.new")  # `switch` would notice some damage
        scratch.write_text(f"{version}\n")
        scratch.replace(versions.pointer)
        while time.monotonic() < started + 60:
            state = _state(port)
            refused = {entry["version"] for entry in state["refused"]}
            if version in refused or state["version"] == version:
                break
            time.sleep(0.2)
        time.sleep(max(0.0, 1.0 - (time.monotonic() - started)))


def _lists(folder: Path, users: list[str]) -> dict[str, list[str]]:
    table = load_version(folder).recommend(users, k=5)
    lists: dict[str, list[str]] = {}
    for user, item in table.select("user_id", "item_id").iter_rows():
        lists.setdefault(user, []).append(item)
    return lists


async def _record(
    port: int, users: list[str], rate: float, writer: threading.Thread
) -> list[tuple[int, str, int, list[str]]]:
    """Ask at a steady rate while versions are written, and keep every answer."""
    answers: list[tuple[int, str, int, list[str]]] = []
    lines = [Line(port) for _ in range(64)]
    started, tasks = time.perf_counter(), []

    async def one(user: str) -> None:
        line = lines.pop() if lines else Line(port)
        try:
            status, body = await line.ask(get(f"/v1/recommendations/{user}?k=5"))
        except (OSError, asyncio.IncompleteReadError):
            answers.append((0, user, 0, []))
            return
        lines.append(line)
        found = json.loads(body) if status == 200 else {"version": 0, "items": []}
        items = [entry["item"] for entry in found["items"]]
        answers.append((status, user, found["version"], items))

    number = 0
    while writer.is_alive():
        await asyncio.sleep(max(0.0, started + number / rate - time.perf_counter()))
        tasks.append(asyncio.create_task(one(users[number % len(users)])))
        number += 1
    await asyncio.gather(*tasks)
    return answers


# -- soak -----------------------------------------------------------------------------------------


def _own_memory(pid: int) -> float:
    """MiB that a process has written, in memory or put aside by the system."""
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    own = [line for line in text.splitlines() if line.startswith(("Private_Dirty:", "Swap:"))]
    return sum(int(line.split()[1]) for line in own) / 1024


def soak(minutes: float, share: float) -> dict[str, Any]:
    draw = random.Random(0)
    with tempfile.TemporaryDirectory() as folder:
        model = small_model(Path(folder)).save(Path(folder) / "model")
        port, keys = free_port(), iter(range(10**9))

        def ask() -> bytes:
            user = f"u{draw.randint(1, USERS):03d}"
            kind = draw.random()
            if kind < 0.02:  # few people, so that what they have done does not grow for ever
                event = {
                    "user": user,
                    "item": f"i{draw.randint(1, 20):03d}",
                    "key": f"{next(keys) % 2000}",
                }
                return post("/v1/events", event)
            if kind < 0.2:
                return post("/v1/session", {"session": [f"i{draw.randint(1, ITEMS):03d}"] * 3})
            if kind < 0.25:
                return get(f"/v1/similar-items/i{draw.randint(1, ITEMS):03d}")
            return get(f"/v1/recommendations/{user}?k=10")

        sizes, rates, sum_of, done = [], [], Counter[str](), 0
        statuses: Counter[int] = Counter()
        with running(serve_words(model, port), port) as process:
            started = time.monotonic()
            while time.monotonic() < started + 60 * minutes:
                # Other programs come and go: the largest load is that of this moment.
                rates.append(min(closed_loop(port, ask, 32, 2.0).rate for _ in range(2)))
                load = open_loop(port, ask, share * rates[-1], 12.0)
                done += len(load.times)
                statuses.update(load.statuses)
                sum_of.update(broken=load.broken, unsent=load.unsent)
                sizes.append(_own_memory(process.pid))
    early = sizes[min(1, len(sizes) - 1)]
    return {
        "largest rate": [round(rate) for rate in rates], "minutes": minutes, "requests": done,
        **sum_of, "by status": dict(statuses), "growth": sizes[-1] / early - 1,
        "largest growth": max(sizes) / early - 1,
        "MiB every 16 seconds": [round(size, 1) for size in sizes],
    }  # fmt: skip


# -- hostile --------------------------------------------------------------------------------------

ODD = [
    "../x", "..%2f..%2fetc%2fpasswd", "%00", "\x00", "🍵", "x" * 10_000, "a/b", ".", "..", "%ff",
    "%", "' OR 1=1 --", "<script>", "\u202e", "NaN", "-1", "1e309", "null", " ", "\n", "\ufb00",
]  # fmt: skip


def hostile(requests: int) -> dict[str, Any]:
    """Draw requests from the description, and odd ids by hand."""
    with tempfile.TemporaryDirectory() as folder:
        model = small_model(Path(folder)).save(Path(folder) / "model")
        port = free_port()
        log_path = Path(folder) / "service.log"
        with log_path.open("w") as log, running(serve_words(model, port), port, log=log):
            statuses = _by_description(port, requests)
            statuses += _by_hand(port)
            alive = asyncio.run(Line(port).ask(get("/readyz")))[0]
        said = log_path.read_text()
        outside = [p.name for p in Path(folder).iterdir()]
    return {
        "requests": sum(statuses.values()),
        "by status": {str(status): n for status, n in sorted(statuses.items())},
        "5xx": sum(n for status, n in statuses.items() if status >= 500),
        "tracebacks in the log": said.count("Traceback"),
        "ready afterwards": alive == 200,
        "files beside the model": sorted(outside),
    }


def _by_description(port: int, requests: int) -> Counter[int]:
    import requests as requests_library
    import schemathesis
    from hypothesis import HealthCheck, Phase, given, settings

    schema = schemathesis.openapi.from_url(f"http://{HOST}:{port}/openapi.json")
    operations = [result.ok() for result in schema.get_all_operations()]
    statuses: Counter[int] = Counter()
    each = -(-requests // len(operations))
    modes = (schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE)
    for operation in operations:
        for mode in modes:
            if mode is modes[1] and not (
                operation.query or operation.body or operation.path_parameters
            ):
                continue  # there is nothing that could be wrong

            @given(case=operation.as_strategy(generation_mode=mode))
            @settings(
                max_examples=max(1, each // 2), deadline=None, database=None,
                suppress_health_check=list(HealthCheck), phases=[Phase.generate],
                derandomize=True,
            )  # fmt: skip
            def send(case: Any) -> None:
                try:
                    answer = case.call(base_url=f"http://{HOST}:{port}")
                except requests_library.RequestException as error:
                    # More than the parser of HTTP takes in: it hangs up. Worth a look.
                    print(
                        f"hung up on {len(str(case.as_curl_command())):,} characters: {error}"[:200]
                    )
                    statuses[0] += 1
                    return
                statuses[answer.status_code] += 1
                assert answer.status_code < 500, (case.as_curl_command(), answer.text)

            try:
                send()
            except Exception as error:  # nothing to draw, or a failure that is counted above
                print(f"{operation.label}, {mode.name.lower()}: {str(error)[:300]}")
    return statuses


def _by_hand(port: int) -> Counter[int]:
    """Send ids that have broken other programs, everywhere an id may stand."""
    from urllib.parse import quote

    statuses: Counter[int] = Counter()
    lines = []
    for odd in ODD:
        for path in ("recommendations", "items", "users", "similar-items", "similar-users"):
            lines += [
                get(f"/v1/{path}/{quote(odd, safe='')}"),
            ]
            if odd.isascii() and odd.isprintable() and " " not in odd:
                lines.append(get(f"/v1/{path}/{odd}"))
        lines.append(get(f"/v1/search?q={quote(odd)}"))
        for body in ({"session": [odd]}, {"session": [odd], "items": [odd], "exclude": [odd]}):
            lines.append(post("/v1/session", body))
        lines.append(post("/v1/recommendations", {"users": [odd]}))
        lines.append(post("/v1/events", {"user": odd, "item": odd, "key": odd[:100]}))
        lines.append(post("/v1/scores", {"pairs": [{"user": odd, "item": odd}]}))
    for line in lines:
        statuses[asyncio.run(Line(port).ask(line))[0]] += 1
    return statuses


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("what", nargs="?", choices=["kills", "swaps", "soak", "hostile"])
    parser.add_argument("--times", type=int, default=30)
    parser.add_argument("--store", choices=["sqlite", "postgres"], default="sqlite")
    parser.add_argument("--versions", type=int, default=50)
    parser.add_argument("--corrupt", type=int, default=5)
    parser.add_argument("--rate", type=float, default=200.0)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--share", type=float, default=0.7)
    parser.add_argument("--requests", type=int, default=5000)
    options = parser.parse_args()
    runs = {
        "kills": lambda: kills(options.times, options.store),
        "swaps": lambda: swaps(options.versions, options.corrupt, options.rate),
        "soak": lambda: soak(options.minutes, options.share),
        "hostile": lambda: hostile(options.requests),
    }
    if options.what is None:
        options.times, options.versions, options.corrupt = 4, 6, 2
        options.minutes, options.requests = 0.5, 500
    for name in [options.what] if options.what else runs:
        print(name, json.dumps(runs[name](), indent=2))


if __name__ == "__main__":
    main()
