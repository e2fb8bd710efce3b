"""Lists for everybody on a cluster: one Parquet file for each part of the users.

A part is written whole or not at all, and `parts.json` says what the parts belong to: started
again, the same question keeps those that are done, and another question is refused.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transcf.data.atomic import atomic_write
from transcf.data.workspace import remove_abandoned
from transcf.distributed.driver import Cluster
from transcf.distributed.session import Session
from transcf.errors import DataError
from transcf.io.description import NAME
from transcf.io.versions import current_folder
from transcf.models.fitted import FittedScorer
from transcf.models.item_filters import Filters
from transcf.models.progress import ProgressBar
from transcf.models.registry import load_version
from transcf.models.streams import write_neighbours
from transcf.parallel import thread_count, use_threads

PLAN = "parts.json"
#: Users of a part; it does not depend on the workers, so that any number of them goes on. Few, so
#: that the last parts end at about the same time.
PART_USERS = 5_000
#: Users whose lists are made at once, at most.
_RUN_USERS = 2**16
#: Events of a run for each item, where a model works something out for all of a run: few enough
#: runs that this is a small part of the work.
_RUN_EVENTS_OF_AN_ITEM = 64


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
    model, out = current_folder(model).absolute(), Path(out).absolute()
    learned, signature = load_version(model).learned_, _signature(model)
    users = int(learned.known.active.sum())
    plan = {
        "model": signature,
        "k": k,
        "exclude_seen": exclude_seen,
        "users": users,
        "part_users": part_users,
    }
    _agree(out, plan)
    n_parts = max(1, -(-users // part_users))
    missing = [number for number in range(n_parts) if not _place(out, number).exists()]
    if not missing:
        return out
    threads = cluster.threads or max(1, thread_count() // cluster.workers)
    length = _run_length(learned, len(missing), n_parts, part_users, cluster.workers)
    runs = _runs(missing, length)
    del learned  # workers have their own
    session = Session(cluster.address, cluster.workers * threads)
    try:
        ray, bar = session.ray, ProgressBar("Lists for everybody", n_parts, "parts", progress)
        write = ray.remote(num_cpus=threads, max_retries=3)(_write_parts)
        question = _Question(model, signature, out, part_users, k, exclude_seen, threads)
        asked = {write.remote(question, run): len(run) for run in runs}
        with bar:
            while asked:
                ready, _ = ray.wait(list(asked))
                ray.get(ready)
                for one in ready:
                    del asked[one]
                bar.show(n_parts - sum(asked.values()))
    finally:
        session.close()
    _tidy(out)
    return out


@dataclass(frozen=True)
class _Question:
    """What all parts have in common.

    Attributes:
        model: Folder of the model.
        signature: What it has to be.
        out: Folder of the parts.
        part_users: Users of a part.
        k: Items of a list.
        exclude_seen: Whether to leave out training items.
        threads: Of a worker.
    """

    model: Path
    signature: str
    out: Path
    part_users: int
    k: int
    exclude_seen: bool
    threads: int


def _place(out: Path, number: int) -> Path:
    return out / f"part-{number:05}.parquet"


def _signature(model: Path) -> str:
    """Tell models apart: what `model.json` says has the checksums of all other files in it."""
    return hashlib.sha256((model / NAME).read_bytes()).hexdigest()


def _run_length(
    learned: FittedScorer, missing: int, n_parts: int, part_users: int, workers: int
) -> int:
    """How many neighbouring parts are made at once.

    One, mostly. What some models work out for all users of a request, such as a table of all pairs
    of items, costs the less the more of them there are.
    """
    known = learned.known
    if learned.block_users is None:
        return 1
    events = len(known.seen.indices) * missing // n_parts
    runs = max(1, events // (_RUN_EVENTS_OF_AN_ITEM * len(known.items) * workers)) * workers
    return max(1, min(-(-missing // runs), _RUN_USERS // part_users))


def _runs(missing: Sequence[int], longest: int) -> list[list[int]]:
    """Cut the numbers of parts into runs of neighbours.

    Example:
        >>> _runs([0, 1, 2, 5, 6], 2)
        [[0, 1], [2], [5, 6]]
    """
    runs: list[list[int]] = []
    for number in missing:
        if runs and number == runs[-1][-1] + 1 and len(runs[-1]) < longest:
            runs[-1].append(number)
        else:
            runs.append([number])
    return runs


def _agree(out: Path, plan: dict[str, Any]) -> None:
    """Write down what the parts belong to, or check that they belong to the same."""
    out.mkdir(parents=True, exist_ok=True)
    _tidy(out)
    place = out / PLAN
    if not place.exists():
        if any(out.iterdir()):
            raise DataError(f"{out} is not empty, and holds no {PLAN}: give another folder.")
        with atomic_write(place) as unfinished:
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


def _tidy(out: Path) -> None:
    """Remove what killed writers left behind, also beside parts that nobody writes again."""
    for workspace in list(out.glob(".*.tmp")):
        remove_abandoned(out / workspace.name[1:].rsplit(".", 2)[0])


def _write_parts(question: _Question, numbers: Sequence[int]) -> None:
    """Write some neighbouring parts, in a worker."""
    learned, size = _opened(question.model, question.signature), question.part_users
    files = [_place(question.out, number) for number in numbers]
    filters = Filters(exclude_seen=question.exclude_seen)
    with use_threads(question.threads):
        write_neighbours(learned, files, numbers[0] * size, size, question.k, filters)


_LOADED: dict[tuple[Path, str], FittedScorer] = {}


def _opened(model: Path, signature: str) -> FittedScorer:
    """Load a model once in a process, however many parts it writes.

    Raises:
        DataError: Another model has taken its place.
    """
    key = model, signature
    if key not in _LOADED:
        _LOADED.clear()
        learned = load_version(model).learned_
        if _signature(model) != signature:
            raise DataError(f"{model} was replaced while lists were made of it: start again.")
        _LOADED[key] = learned
    return _LOADED[key]
