"""Lists for everybody on a cluster: one Parquet file for each part of the users.

A part is written whole or not at all, and `parts.json` says what the parts belong to: started
again, the same question keeps those that are done, and another question is refused.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import polars as pl

from transcf.answers.filters import Filters
from transcf.answers.streams import write_recommendations
from transcf.cluster.driver import Cluster
from transcf.cluster.session import Session
from transcf.data.atomic import whole_file
from transcf.errors import DataError
from transcf.models.registry import load
from transcf.storage.description import NAME
from transcf.threads import thread_count, use_threads
from transcf.training.progress import ProgressBar

PLAN = "parts.json"
#: Users of a part; it does not depend on the workers, so that any number of them goes on.
PART_USERS = 20_000


def recommend_all(
    model: str | Path,
    out: str | Path,
    k: int = 10,
    *,
    cluster: Cluster,
    exclude_seen: bool = True,
    part_users: int = PART_USERS,
    progress: bool | None = None,
) -> Path:
    """Write the table of `recommend` for all users of a saved model, part by part.

    All parts in the order of their names are what `Recommender.recommend_all` writes.

    Args:
        model: Folder of the model, which every worker can read.
        out: Folder for the parts, which every worker can write to.
        k: Items of a list.
        cluster: Where to work.
        exclude_seen: Whether to leave out training items.
        part_users: Users of a part.
        progress: Whether to show a progress bar; None shows it on a terminal.

    Raises:
        DataError: The folder holds parts of another question.
    """
    model, out = Path(model).absolute(), Path(out).absolute()
    users = _users(model)
    plan = {
        "model": hashlib.sha256((model / NAME).read_bytes()).hexdigest(),
        "k": k,
        "exclude_seen": exclude_seen,
        "users": len(users),
        "part_users": part_users,
    }
    _agree(out, plan)
    starts = range(0, max(1, len(users)), part_users)
    names = {out / f"part-{number:05}.parquet": first for number, first in enumerate(starts)}
    missing = {path: first for path, first in names.items() if not path.exists()}
    threads = cluster.threads or max(1, thread_count() // cluster.workers)
    if not missing:
        return out
    session = Session(cluster.address, cluster.workers * threads)
    try:
        ray, bar = session.ray, ProgressBar("Lists for everybody", len(names), "parts", progress)
        work = ray.remote(num_cpus=threads, max_retries=3)(_write_part)
        asked = [
            work.remote(model, path, users.slice(first, part_users), k, exclude_seen, threads)
            for path, first in missing.items()
        ]
        with bar:
            while asked:
                ready, asked = ray.wait(asked)
                ray.get(ready)
                bar.show(len(names) - len(asked))
    finally:
        session.close()
    return out


def _users(model: Path) -> pl.Series:
    """Everybody with training interactions, as `recommend` takes them."""
    known = load(model).learned_.known
    return known.users.series.filter(pl.Series(known.active))


def _agree(out: Path, plan: dict[str, Any]) -> None:
    """Write down what the parts belong to, or check that they belong to the same."""
    out.mkdir(parents=True, exist_ok=True)
    place = out / PLAN
    if not place.exists():
        if any(out.iterdir()):
            raise DataError(f"{out} is not empty, and holds no {PLAN}: give another folder.")
        with whole_file(place) as unfinished:
            unfinished.write_text(json.dumps(plan, indent=1), encoding="utf-8")
        return
    try:
        found = json.loads(place.read_text(encoding="utf-8"))
    except ValueError as problem:
        raise DataError(f"{place} is damaged: remove {out}, or give another folder.") from problem
    if found != plan:
        different = [name for name in plan if found.get(name) != plan[name]]
        raise DataError(
            f"{out} holds lists of another question (other {', '.join(different)}): ask as before "
            "to go on with it, remove it, or give another folder."
        )


def _write_part(
    model: Path, path: Path, users: pl.Series, k: int, exclude_seen: bool, threads: int
) -> None:
    """Write one part, in a worker."""
    learned = _opened(model)
    with use_threads(threads):
        write_recommendations(learned, path, users, k, Filters(exclude_seen=exclude_seen))


_LOADED: dict[Path, Any] = {}


def _opened(model: Path) -> Any:
    """Load a model once in a process, however many parts it writes."""
    if model not in _LOADED:
        _LOADED.clear()
        _LOADED[model] = load(model).learned_
    return _LOADED[model]
