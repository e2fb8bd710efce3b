"""Recommendation lists of all users on a cluster: one Parquet file for each part of the users.

A part is written completely or not at all, and `parts.json` describes the request. Started again,
the same request keeps the parts that are done, and another request is refused.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from transcf.data.atomic import atomic_write_text, remove_abandoned
from transcf.distributed.cluster import Cluster
from transcf.errors import DataError
from transcf.io.model_dir import NAME, current_folder
from transcf.models.fitted import FittedScorer
from transcf.models.progress import ProgressBar
from transcf.models.registry import load_version
from transcf.models.tables import Filters, write_lists

PLAN = "parts.json"
#: Users of a part. It does not depend on the number of workers, so that any number can continue. It
#: is small, so that the last parts end at about the same time.
PART_USERS = 5_000
#: Largest number of users whose lists are computed at once.
_RUN_USERS = 2**16


def recommend_all(
    model: str | Path,
    out: str | Path,
    k: int = 10,
    *,
    cluster: Cluster,
    exclude_seen: bool = True,
    part_users: int = PART_USERS,
) -> Path:
    """Write the table of `recommend` for all users of a saved model, part by part.

    All parts in the order of their names are what `Recommender.recommend_all` writes.

    Every worker must be able to read the folder of the model and to write to `out`, which holds no
    parts of another request. A part has the lists of `part_users` users.
    """
    model, out = current_folder(model).absolute(), Path(out).absolute()
    learned, signature = load_version(model).learned_, _signature(model)
    users = int(learned.known.active.sum())
    plan = {"model": signature, "k": k, "exclude_seen": exclude_seen, "users": users}
    _check_plan(out, plan | {"part_users": part_users})
    n_parts = max(1, -(-users // part_users))
    missing = [number for number in range(n_parts) if not _place(out, number).exists()]
    if not missing:
        return out
    longest = 1
    if learned._block_users() is not None:  # it computes something for all users of a call
        longest = max(1, min(-(-len(missing) // cluster.workers), _RUN_USERS // part_users))
    del learned  # workers have their own
    lists = (model, signature, out, part_users, k, Filters(exclude_seen=exclude_seen))
    done = n_parts - len(missing)
    with (
        ProgressBar("Lists of all users", n_parts, "parts") as bar,
        cluster.open_workers(_write_parts, *lists) as workers,
    ):
        for call in [workers.submit(run) for run in _runs(missing, longest)]:
            done += call.result()
            bar.show(done)
    _tidy(out)
    return out


def _place(out: Path, number: int) -> Path:
    return out / f"part-{number:05}.parquet"


def _signature(model: Path) -> str:
    """Return what tells models apart: `model.json` has the checksums of all other files."""
    return hashlib.sha256((model / NAME).read_bytes()).hexdigest()


def _runs(missing: Sequence[int], longest: int) -> list[list[int]]:
    runs: list[list[int]] = []
    for number in missing:
        if runs and number == runs[-1][-1] + 1 and len(runs[-1]) < longest:
            runs[-1].append(number)
        else:
            runs.append([number])
    return runs


def _check_plan(out: Path, plan: dict[str, Any]) -> None:
    """Write the description of the request, or check that the folder has the same one."""
    out.mkdir(parents=True, exist_ok=True)
    _tidy(out)
    place = out / PLAN
    if not place.exists():
        if any(out.iterdir()):
            raise DataError(f"{out} is not empty, and holds no {PLAN}: give another folder.")
        atomic_write_text(place, json.dumps(plan, indent=1))
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
    """Remove what killed writers left behind."""
    for workspace in list(out.glob(".*.tmp")):
        remove_abandoned(out / workspace.name[1:].rsplit(".", 2)[0])


def _write_parts(
    model: Path, signature: str, out: Path, size: int, k: int, filters: Filters, run: Sequence[int]
) -> int:
    """Write some consecutive parts, in a worker, and return how many."""
    files = [_place(out, number) for number in run]
    write_lists(_opened(model, signature), files, run[0] * size, size, k, filters)
    return len(files)


@lru_cache(maxsize=1)
def _opened(model: Path, signature: str) -> FittedScorer:
    """Load a model once in a process; raise a `DataError` if it was replaced."""
    learned = load_version(model).learned_
    if _signature(model) != signature:
        raise DataError(f"{model} was replaced while lists were made of it: start again.")
    return learned
