"""Digests of everything that models learn and answer, to show what a change has moved.

Every registry name is fitted for two epochs with a fixed seed on small logs. A digest is printed of
each saved tensor, the saved file, top-10 lists, fold-in, similar items and explanations; then of
per-user metrics under every protocol, of what commands print and of what the service answers.
Everything is computed with one and with two threads: one line where both are equal, else two.

Digests depend on the processor and on the versions of libraries; the header of a file of digests
names both, and `--against` names those that differ. `benchmarks/golden` has a file for each kind of
processor; on another kind, write one on the commit before the change.

Run: python benchmarks/checksums.py [--only REGEX] [--out FILE] [--against FILE]
     python benchmarks/checksums.py --golden
"""

from __future__ import annotations

import argparse
import hashlib
import json
import platform
import re
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from llvmlite.binding import get_host_cpu_name
from safetensors.numpy import load_file

import transcf
from transcf.errors import DataError

# -- Names. The left side is what files of digests contain and must not change; the right side is
# -- what the library calls it now.

GOLDEN = Path(__file__).parent / "golden"

#: Label: registry name and parameters. Labels are names of version 0.1: "transcf" is the mixture.
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "popularity": ("popularity", {}),
    "recent-popularity": ("recent-popularity", {}),
    "inverse-popularity": ("inverse-popularity", {}),
    "random": ("random", {}),
    "itemknn": ("itemknn", {}),
    "sequential-rules": ("sequential-rules", {}),
    "ease": ("ease", {}),
    "ials": ("ials", {"dim": 16}),
    "eals": ("eals", {"dim": 16}),
    "slim": ("slim", {}),
    "fism": ("fism", {"dim": 16}),
    "bpr": ("bpr", {"dim": 16}),
    "aobpr": ("aobpr", {"dim": 16}),
    "cml": ("cml", {"dim": 16}),
    "cdae": ("cdae", {"dim": 16}),
    "neumf": ("neumf", {"dim": 8}),
    "lightgcn": ("lightgcn", {"dim": 16}),
    "sasrec": ("sasrec", {"dim": 16}),
    "transcf": ("transcf-mixture", {"dim": 16}),
    "transcf-translation": ("transcf", {"dim": 16}),
    "transcf-alt": ("transcf-alt", {"dim": 16}),
    "transcf-dot": ("transcf-dot", {"dim": 16}),
    "transcf-emb": ("transcf-emb", {"dim": 16}),
    "transcf-still": ("transcf-none", {"dim": 16}),
    "blend": ("blend", {"parts": "itemknn + bpr(dim=8, epochs=2)"}),
}
_AGES = {"half_life": 90.0, "age_in": "days"}
#: More settings, which are fitted on one log only.
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "itemknn-weighted": ("itemknn", {**_AGES, "trend": 0.3}),
    "ease-weighted": ("ease", {**_AGES, "recency": 0.5, "confidence": "ratings"}),
    "bpr-weighted": ("bpr", {**_AGES, "dim": 16, "recency": 0.5}),
    "transcf-weighted": ("transcf-mixture", {**_AGES, "dim": 16, "recency": 0.5, "trend": 0.3}),
}
#: Label: name of the protocol, and the part of the split that a model is fitted on.
PROTOCOLS = {
    "temporal": ("temporal", "before_test"),
    "temporal-no-refit": ("temporal-no-refit", "train"),
    "leave-last-out": ("leave-last-out", "before_test"),
    "leave-last-out-no-refit": ("leave-last-out-no-refit", "train"),
    "paper": ("paper", "train"),
    "paper-as-published": ("paper-as-published", "train"),
}
EVALUATED = ("popularity", "itemknn", "ease", "bpr", "transcf", "transcf-translation")
#: Fields of JSON with versions, names and sentences, and a field newer than the stored digests
#: (`seen`), which do not count.
IGNORED = {"version", "model", "sentence", "meaning", "notes", "of", "seen"}


def open_service(model: Path, items: Path) -> Any:
    """Return the ASGI application that serves a model folder."""
    from transcf.serving.app import create_app
    from transcf.serving.service import Service
    from transcf.serving.settings import ServiceSettings

    return create_app(Service(ServiceSettings(model, items=items)))


def run_command(*words: object) -> str:
    """Return what a command prints."""
    from typer.testing import CliRunner

    from transcf.cli.app import app

    done = CliRunner().invoke(app, [str(word) for word in words], catch_exceptions=False)
    if done.exit_code:
        raise SystemExit(f"transcf {' '.join(map(str, words))}: {done.output}")
    return str(done.stdout)


# -- Jobs ----------------------------------------------------------------------------------------

Found = Iterator[tuple[str, Any]]
SHORT = {"epochs": 2, "random_state": 7}


def fit(label: str, train: Any) -> Any:
    """Fit a model for two epochs."""
    name, params = (MODELS | VARIANTS)[label]
    known = transcf.create(name).get_params()
    short = {key: value for key, value in SHORT.items() if key in known}
    return transcf.create(name, **(short | params)).fit(train)


def learned_and_answered(label: str, log: Any, folder: Path) -> Found:
    """Digest what a model saves, and its answers to users that it knows and to new ones."""
    model = fit(label, log)
    place = Path(model.save(folder / label))
    for name, array in sorted(load_file(place / "model.safetensors").items()):
        yield f"tensor {name}", array
    yield "model.safetensors", (place / "model.safetensors").read_bytes()
    table = log.to_frame()
    users = table["user_id"].unique().sort()
    top = model.recommend(users[:: max(1, len(users) // 50)], k=10)
    yield "top", top["item_id"]
    yield "top scores", top["score"]
    history = table["item_id"].unique().sort()[::7][:6].to_list()
    for steps in (0, 2):
        try:
            new = model.recommend_for(history, k=10, steps=steps)
        except transcf.TransCFError:  # not every model trains new users
            continue
        yield f"fold-in {steps} steps", new["item_id"]
        yield f"fold-in {steps} steps scores", new["score"]
    user, item = top["user_id"][0], top["item_id"][0]
    questions: dict[str, Callable[[], Any]] = {
        "similar items": lambda: model.similar_items(history, k=5),
        "explanation": lambda: model.explain(user, item).to_frame(),
        "loaded": lambda: transcf.load(place).recommend(users[:20], k=10),
    }
    for what, ask in questions.items():
        try:
            yield what, ask()
        except transcf.TransCFError:  # not every model has similar items
            continue
    if hasattr(model, "partial_fit"):
        user = users.max() + 1 if users.dtype.is_integer() else "new"
        events = pl.DataFrame({"user_id": user, "item_id": history})
        try:
            yield "partial fit", model.partial_fit(events).recommend([user], k=10)
        except transcf.TransCFError:  # not every variant adds events
            return


def per_user(label: str, protocol: str, path: Path, _: Path) -> Found:
    """Digest per-user metrics of a model under a protocol."""
    name, part = PROTOCOLS[protocol]
    split = transcf.open_split(path, name)
    model = fit(label, getattr(split, part))
    for ties in ("pessimistic", "realistic"):
        found = transcf.evaluate(model, split, name, ties=ties, beyond=True)
        yield f"{ties} ties", found.per_user
        yield f"{ties} ties, lists", list(found.catalogue.values())


def figures(found: dict[str, Any]) -> list[Any]:
    """Return what a command found for a model, without the names of metrics."""
    return [[each[kind] for kind in ("mean", "sd", "se")] for each in found["metrics"].values()]


def commands(path: Path, folder: Path) -> Found:
    """Digest what commands print."""
    fitted = folder / "command"
    runs = [("bpr", protocol) for protocol in PROTOCOLS]
    labels = ("ease", "cml", "transcf", "transcf-translation")
    runs += [(label, "leave-last-out") for label in labels]
    none = ("--store", "none")
    for label, protocol in runs:
        words: list[object] = ["--model", MODELS[label][0], "--protocol", PROTOCOLS[protocol][0]]
        words += [] if label == "ease" else ["--set", "epochs=3", "--seeds", 2]
        found = json.loads(run_command(*none, "evaluate", path, *words, "--json"))
        yield f"evaluate {label} {protocol}", figures(found)
    models = ["--models", "itemknn,bpr", "--set", "bpr.epochs=3", "--json"]
    models += ["--out", str(folder / "comparison")]
    compared = json.loads(run_command(*none, "compare", path, *models))
    yield "compare", [figures(each) for each in compared["models"]]
    run_command("fit", path, "--model", "bpr", "--set", "epochs=3", "--out", fitted)
    yield "fit", (fitted / "model.safetensors").read_bytes()
    lists = json.loads(run_command("recommend", fitted, "--user", "u001", "--json"))
    yield "recommend", lists
    item = re.search(r"i\d+", json.dumps(lists))
    assert item is not None
    explain = run_command("explain", fitted, "--user", "u001", "--item", item[0], "--json")
    yield "explain", json.loads(explain)


def answers(log: Any, folder: Path) -> Found:
    """Digest answers of the service, the last ones after new events."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # starlette prefers another version of httpx
        from starlette.testclient import TestClient
    model = fit("transcf", log)
    place = Path(model.save(folder / "served"))
    ids = log.to_frame()["item_id"].unique().sort()
    items = pl.DataFrame({"item_id": ids, "title": "Tea " + ids, "category": "c" + ids.str.tail(1)})
    items.write_csv(folder / "items.csv")
    user, some = "u001", ids[:4].to_list()
    new = model.recommend([user], k=1)["item_id"][0]
    asked: list[tuple[str, str, Any]] = [
        ("GET", f"/v1/recommendations/{user}?k=5", None),
        ("GET", f"/v1/recommendations/{user}?k=5&category=c1&explain=true", None),
        ("POST", "/v1/recommendations", {"users": [user, "u002", "u003"], "k": 5}),
        ("POST", "/v1/session", {"session": some, "k": 5}),
        ("GET", f"/v1/similar-items/{some[0]}?k=5", None),
        ("GET", f"/v1/similar-users/{user}?k=5", None),
        ("GET", f"/v1/explanation?user={user}&item={new}", None),
        ("POST", "/v1/explanation", {"session": some[:3], "item": ids[9]}),
        ("POST", "/v1/scores", {"pairs": [{"user": user, "item": item} for item in some]}),
        ("GET", f"/v1/items/{some[0]}", None),
        ("GET", f"/v1/users/{user}", None),
        ("GET", "/v1/search?q=tea&k=5", None),
        ("GET", "/v1/categories", None),
        ("GET", "/v1/map", None),
        ("POST", "/v1/map/position", {"user": user}),
        ("GET", "/v1/recommendations/unknown", None),
        ("POST", "/v1/events", {"user": user, "item": new, "time": 1_700_000_000}),
        ("GET", f"/v1/recommendations/{user}?k=6", None),
    ]
    with TestClient(open_service(place, folder / "items.csv"), base_url="http://127.0.0.1") as http:
        for method, route, body in asked:
            answer = http.request(method, route, json=body)
            told = answer.json() if answer.status_code < 400 else None  # errors may be reworded
            yield f"{method} {route}", [answer.status_code, told]


def logs() -> dict[str, Any]:
    """Return small logs: with times and categories; real ones; one with many items."""
    found = {"synthetic": transcf.synthesize(users=300, items=150, interactions=6000, seed=3)}
    try:
        found["delicious"] = transcf.open_split("delicious", PROTOCOLS["paper"][0]).train
        films = transcf.k_core(transcf.open_data("ml-latest-small"), 5, 5)
        found["ml-latest-small"] = transcf.leave_one_out(films).train
    except transcf.TransCFError as error:
        print(f"Real data is left out: {error}", file=sys.stderr)
    return found


def jobs(path: Path) -> Iterator[tuple[str, Callable[[Path], Found]]]:
    """Name every job, and say how it is done with an empty folder to write to."""
    data = logs()
    pairs = [(label, log) for label in MODELS for log in data]
    pairs += [(label, "synthetic") for label in VARIANTS]
    for label, log in pairs:
        yield f"model {label} {log}", partial(learned_and_answered, label, data[log])
    many = transcf.synthesize(users=3000, items=40_000, interactions=120_000, seed=5)
    for label in ("itemknn", "bpr", "transcf", "transcf-translation"):
        yield f"model {label} many-items", partial(learned_and_answered, label, many)
    data["synthetic"].to_frame().write_csv(path)
    for protocol in PROTOCOLS:
        for label in EVALUATED:
            yield f"evaluate {protocol} {label}", partial(per_user, label, protocol, path)
    yield "command", partial(commands, path)
    yield "service", partial(answers, data["synthetic"])


# -- Digests -------------------------------------------------------------------------------------


def digest(value: Any) -> str:
    """Digest an array, a table, bytes or JSON."""
    return hashlib.sha256(as_bytes(value)).hexdigest()[:16]


def as_bytes(value: Any) -> bytes:
    """Return the content of a value; names of columns do not count."""
    if isinstance(value, bytes):
        return value
    if isinstance(value, np.ndarray):
        return f"{value.dtype} {value.shape}".encode() + np.ascontiguousarray(value).tobytes()
    if isinstance(value, pl.Series):
        numeric = value.dtype.is_numeric()
        return as_bytes(value.to_numpy()) if numeric else "\n".join(map(str, value)).encode()
    if isinstance(value, pl.DataFrame):
        return b"".join(map(as_bytes, value.get_columns()))
    return json.dumps(compared(value)).encode()


def compared(value: Any) -> Any:
    """Return JSON without the fields that do not count."""
    if isinstance(value, dict):
        return {key: compared(each) for key, each in value.items() if key not in IGNORED}
    return [compared(each) for each in value] if isinstance(value, list) else value


def run_all(only: str) -> tuple[dict[str, str], set[str]]:
    """Run the jobs whose names match; return a digest for each line, and the jobs."""
    lines: dict[str, str] = {}
    done = set()
    with tempfile.TemporaryDirectory() as place:
        for name, job in jobs(Path(place) / "events.csv"):
            if not re.search(only, name):
                continue
            one, two = (run(job, threads) for threads in (1, 2))
            done.add(name)
            for what in one | two:
                first, second = one.get(what, "none"), two.get(what, "none")
                if first == second:
                    lines[f"{name} | {what}"] = first
                else:
                    lines[f"{name} | {what}, one thread"] = first
                    lines[f"{name} | {what}, two threads"] = second
    return lines, done


def run(job: Callable[[Path], Found], threads: int) -> dict[str, str]:
    """Run a job with a number of threads; nothing where a log has no categories."""
    with (
        transcf.use_threads(threads),
        warnings.catch_warnings(),
        tempfile.TemporaryDirectory() as folder,
    ):
        warnings.simplefilter("ignore")
        try:
            return {what: digest(value) for what, value in job(Path(folder))}
        except DataError:
            return {}


# -- Files of digests ----------------------------------------------------------------------------


def header() -> list[str]:
    """Name what digests depend on besides the code."""
    libraries = ("numpy", "scipy", "polars", "numba", "llvmlite", "safetensors", "torch")
    lines = [f"# {library}: {version(library)}" for library in libraries]
    return [f"# processor: {processor()}", f"# python: {platform.python_version()}", *lines]


def processor() -> str:
    """Return the name of the processor."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return platform.processor() or platform.machine()
    named = re.search(r"model name\s*: (.*)", text)
    return f"{named[1] if named else platform.machine()} ({get_host_cpu_name()})"


def compare(found: dict[str, str], done: set[str], path: Path) -> list[str]:
    """Return the lines that differ from a file, for the jobs that were run."""
    text = path.read_text(encoding="utf-8").splitlines()
    for line in header():
        if line not in text:
            was = [each for each in text if each.startswith(line.split(":")[0] + ":")]
            print(f"{was[0] if was else '# nothing'} in {path}, {line[2:]} here")
    before = dict(line.rsplit(": ", 1) for line in text if line and not line.startswith("#"))
    before = {name: value for name, value in before.items() if name.split(" | ")[0] in done}
    return [
        f"{name}: {before.get(name, 'none')} -> {found.get(name, 'none')}"
        for name in before | found
        if before.get(name) != found.get(name)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", default="", metavar="REGEX", help="jobs, as in '^model bpr'")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write header and digests")
    parser.add_argument("--against", type=Path, metavar="FILE", help="print lines that differ")
    parser.add_argument("--golden", action="store_true", help="--against this processor's file")
    options = parser.parse_args()
    if options.golden:
        options.against = GOLDEN / f"checksums-{get_host_cpu_name()}.txt"
        if not options.against.exists():
            sys.exit(f"There is no {options.against}: write it on the commit before with --out.")
    missing = set(transcf.available()) - {name for name, _ in MODELS.values()}
    if missing:
        sys.exit(f"Add these registry names to MODELS: {', '.join(sorted(missing))}.")
    found, done = run_all(options.only)
    lines = [f"{name}: {value}" for name, value in found.items()]
    if options.out is not None:
        options.out.write_text("\n".join([*header(), *lines, ""]), encoding="utf-8")
    if options.against is None:
        print("\n".join(lines))
        return
    changed = compare(found, done, options.against)
    print("\n".join([*changed, f"{len(changed)} lines differ; {len(found)} digests."]))
    sys.exit(1 if changed else 0)


if __name__ == "__main__":
    main()
