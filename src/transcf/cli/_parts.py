"""`transcf data prepare --partitions`, and `transcf fit` with a partitioned log."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import typer

from transcf.cli._options import ReadingOptions
from transcf.cli._output import print_facts, print_json
from transcf.cli._progress import show_steps
from transcf.errors import ParameterError
from transcf.protocols import full_ranking, protocol_named

if TYPE_CHECKING:
    from transcf.data.interactions import Interactions
    from transcf.data.partitioned.log import PartitionedLog
    from transcf.data.partitioned.prepare import Run
    from transcf.data.split import Split
    from transcf.data.splitters import Order
    from transcf.distributed import Cluster
    from transcf.evaluation import Validation

T = TypeVar("T")
#: Splits that depend on one user at a time.
_ORDERS = ("auto", "time", "position", "paper", "random")


def prepare_in_parts(
    data: str,
    out: Path,
    split_name: str,
    seed: int,
    partitions: int,
    cluster: Cluster | None,
    reading: ReadingOptions,
    as_json: bool,
) -> None:
    """Prepare Parquet files by partitions of users, and print the result."""
    from transcf.data.filters import filter_of
    from transcf.data.partitioned.prepare import READING, one_by_one, prepare_parts

    least, is_paper = filter_of(reading.pop("filter", "none"))
    if split_name not in _ORDERS:
        raise ParameterError(
            f"--split {split_name} looks at all events at once: with --partitions use "
            f"{', '.join(_ORDERS)}."
        )
    other = next((name for name in reading if name not in READING), None)
    if other is not None:
        option = "no-header" if other == "header" else other
        raise ParameterError(
            f"--{option} does not go with --partitions, which reads Parquet alone: leave one out."
        )
    with nullcontext(one_by_one) if cluster is None else _tasks(cluster) as run:
        log = prepare_parts(
            data,
            out,
            partitions=partitions,
            k_core=least,
            paper_filter=is_paper,
            by=cast("Order", split_name),
            seed=seed,
            run=_shown(run),
            **cast("Any", reading),
        )
    facts: dict[str, Any] = {
        "dataset": data,
        "folder": str(out),
        "split": log.how,
        "partitions": log.n_partitions,
        "users": log.n_users,
        "items": log.n_items,
        **{part: len(log.only(part)) for part in log.parts},
    }
    if as_json:
        print_json({**facts, "report": log.whole_report.to_list()})
        return
    print_facts(f"Saved {out}", facts)
    for step in log.whole_report.steps:
        typer.echo(str(step))


def open_for_fit(
    data: str, protocol: str | None, seed: int, reading: ReadingOptions, is_spread: bool
) -> tuple[Interactions | PartitionedLog, Split | PartitionedLog, Validation | PartitionedLog, str]:
    """Return all events, their split, the validation of epochs, and its protocol.

    A partitioned log stays on disk if the training is distributed.
    """
    from transcf.data.readers import as_partitioned
    from transcf.data.splitters import open_log_and_split, usual_protocol
    from transcf.evaluation import Validation

    parted = as_partitioned(data) if is_spread else None
    if parted is None:
        log, split = open_log_and_split(data, protocol, seed=seed, **reading)
        protocol = protocol or usual_protocol(split)
        return log, split, Validation.of(split, protocol), protocol
    if reading:
        raise ParameterError(
            f"{data} is split already: how to read it ({', '.join(reading)}) can only be said when "
            "it is prepared."
        )
    usual = full_ranking(cut=False, refit=True).name
    named = protocol_named(protocol or usual)
    if named.sampled or named.cut:
        raise ParameterError(
            f"--protocol {named.name} does not go with a log in parts on a cluster: use {usual}, "
            "or fit without --workers."
        )
    return parted, parted, parted.validation, named.name


def _tasks(cluster: Cluster) -> Any:
    from transcf.distributed.cluster import ClusterTasks

    return ClusterTasks(cluster)


def _shown(run: Run) -> Run:
    """Show a progress bar for each step."""

    def with_bar(
        title: str, work: Callable[..., T], tasks: Sequence[tuple[Any, ...]]
    ) -> Iterator[T]:
        with show_steps(len(tasks), "tasks") as steps:
            steps.report(title)
            yield from steps.counted(run(title, work, tasks))

    return with_bar
