"""The service under load, beside the same server answering a constant, and beside implicit.

A catalogue of 100,000 items, vectors of 64 numbers (BPR, fitted for five epochs on made-up events),
20,000 users. One worker on one core, the load generator on the other; everything on loopback.
Contestants take turns; medians of the rounds.

- closed loop: so many connections, each asks as soon as it has an answer
  (64 for one list, 4 for 100 lists in a call), and one connection for what a single caller waits
- open loop: requests are due at random moments at half the largest rate, whatever the answers do
- memory: what a second worker takes that is its own (Private_Dirty) and what it shares

Run: python benchmarks/serving.py [--rounds 5] [--seconds 3] [--model bpr] [--json]
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from _load import Load, closed_loop, free_port, get, open_loop, post, running, serve_words
from transcf.data.synthetic import synthesize
from transcf.models.registry import create, load

#: Of the items that are made up, about 100,000 are taken by anybody.
USERS, ITEMS, EVENTS, DIM = 20_000, 104_300, 1_000_000, 64
LINES = 64
PEER = str(Path(__file__).with_name("_serving_peer.py"))


def make_model(name: str, place: Path) -> Path:
    log = synthesize(USERS, ITEMS, EVENTS, seed=0)
    epochs = {} if name == "ease" else {"epochs": 5}
    return create(name, dim=DIM, **epochs).fit(log).save(place / "model")


def questions(seed: int) -> dict[str, Callable[[], bytes]]:
    draw = random.Random(seed)
    width = len(str(ITEMS))

    def user() -> str:
        return f"u{draw.randint(1, USERS):0{len(str(USERS))}d}"

    def item() -> str:
        return f"i{draw.randint(1, ITEMS):0{width}d}"

    def session() -> bytes:
        return post("/v1/session", {"session": [item() for _ in range(10)]})

    def hundred() -> bytes:
        return post("/v1/recommendations", {"users": [user() for _ in range(100)]})

    return {
        "constant": lambda: get(f"/constant/{user()}?k=10"),
        "top 10": lambda: get(f"/v1/recommendations/{user()}?k=10"),
        "implicit": lambda: get(f"/peer/{user()}?k=10"),
        "session": session,
        "100 users": hundred,
    }


def one_worker(model: Path, rounds: int, seconds: float) -> dict[str, Any]:
    port, asked = free_port(), questions(0)
    if load(model).learned_.linear_form() is None:
        del asked["implicit"]  # which ranks by inner products
    rates: dict[str, list[float]] = {}
    costs: dict[str, list[float]] = {}
    found: dict[str, Any] = {}
    with running([PEER, str(model), str(port)], port, core=0) as process:
        for name in asked:
            closed_loop(port, asked[name], 4, 0.5)  # warm
        for _ in range(rounds):
            for name in asked:
                lines = 4 if name == "100 users" else LINES
                before = processor_seconds(process.pid)
                done = checked(closed_loop(port, asked[name], lines, seconds))
                spent = processor_seconds(process.pid) - before
                rates.setdefault(name, []).append(done.rate)
                costs.setdefault(name, []).append(1000 * spent / len(done.times))
                found[f"{name}, {lines} lines"] = described(done)
        for name in asked:
            done = checked(closed_loop(port, asked[name], 1, seconds))
            found[f"{name}, 1 line"] = described(done)
        half = statistics.median(rates["top 10"]) / 2
        found["top 10, open loop at half"] = described(
            checked(open_loop(port, asked["top 10"], half, 2 * seconds))
        )
    middle = {name: statistics.median(values) for name, values in rates.items()}
    shares = [a / b for a, b in zip(rates["top 10"], rates["constant"], strict=True)]
    return {
        "rates": middle,
        "share of the constant": statistics.median(shares),
        **(
            {"times implicit": middle["top 10"] / middle["implicit"]}
            if "implicit" in middle
            else {}
        ),
        "processor ms for a request": {n: statistics.median(c) for n, c in costs.items()},
        "times": found,
    }


def processor_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def checked(load: Load) -> Load:
    if load.failed:
        raise SystemExit(f"{load.failed} requests failed: {load.statuses}.")
    return load


def described(load: Load) -> dict[str, float]:
    return {"per second": load.rate, "p50 ms": load.ms(0.5), "p99 ms": load.ms(0.99)}


def memory(pid: int) -> dict[str, float]:
    """MiB of a process: its own (written, and read from files that nobody else maps) and shared."""
    sums = dict.fromkeys(("Private_Dirty", "Private_Clean", "Shared_Clean", "Rss"), 0.0)
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        name = line.split(":")[0]
        if name in sums:
            sums[name] += int(line.split()[1]) / 1024
    return sums


def mapped(pid: int, name: str) -> float:
    """MiB of a file that a process has mapped and that are its own."""
    own, inside = 0.0, False
    for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
        if "-" in line.split()[0]:
            inside = line.rstrip().endswith(name)
        elif inside and line.startswith("Private"):
            own += int(line.split()[1]) / 1024
    return own


def workers_of(pid: int) -> list[int]:
    """Processes below a service that answer (one is the tracker of resources)."""
    found = []
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        words = Path(f"/proc/{child}/cmdline").read_bytes()
        if b"spawn_main" in words:
            found.append(int(child))
    return found


def several_workers(model: Path, seconds: float) -> dict[str, Any]:
    asked = questions(1)["top 10"]
    found: dict[str, Any] = {}
    for workers in (1, 2):
        port = free_port()
        words = serve_words(model, port, "--workers", str(workers))
        with running(words, port) as process:
            closed_loop(port, asked, LINES, 2.0)
            load = checked(closed_loop(port, asked, LINES, 2 * seconds))
            found["2 workers" if workers > 1 else "1 worker"] = described(load)
            pids = workers_of(process.pid) if workers > 1 else [process.pid]
            for place, pid in enumerate(pids, 1):
                own = mapped(pid, "model.safetensors")
                found[f"memory of worker {place} of {workers} (MiB)"] = {
                    **memory(pid), "vectors of its own": own,
                }  # fmt: skip
    size = (model / "model.safetensors").stat().st_size / 2**20
    return {"model.safetensors (MiB)": size, **found}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--model", default="bpr")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="transcf-serving-") as place:
        model = make_model(options.model, Path(place))
        if len(os.sched_getaffinity(0)) > 1:
            everything = os.sched_getaffinity(0)
            os.sched_setaffinity(0, {1})
            found = one_worker(model, options.rounds, options.seconds)
            os.sched_setaffinity(0, everything)
        else:
            found = one_worker(model, options.rounds, options.seconds)
        found |= several_workers(model, options.seconds)
    if options.json:
        print(json.dumps(found, indent=2))
        return
    show(found)


def show(found: dict[str, Any], depth: int = 0) -> None:
    for name, value in found.items():
        if isinstance(value, dict):
            print("  " * depth + name)
            show(value, depth + 1)
        else:
            print("  " * depth + f"{name}: {value:,.3g}")


if __name__ == "__main__":
    main()
