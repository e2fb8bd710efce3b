"""`transcf data`: inspect, prepare, download and generate event logs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

import transcf
from transcf.cli import options, output
from transcf.errors import ParameterError, check_word

if TYPE_CHECKING:
    from transcf.data.interactions import Interactions
    from transcf.data.partitioned import PartitionedLog
    from transcf.data.split import Split
    from transcf.data.splitters import Order

#: Splits that hold out events of each user, independently of other users.
_ORDERS = ("auto", "time", "position", "paper", "random")

data = options.CommandGroup()


@data.command()
def info(data: options.Data, reading: options.ReadingOptions, answer: output.Answer) -> None:
    """Count users, items and interactions, and list what was merged or left out.

    For a dataset of the catalog, show its citation and terms, too.

    Example: transcf data info events.csv --read user=member_id --filter 5-core
    """
    from transcf.data.datasets import SYNTHETIC, is_name
    from transcf.data.report import facts_of, reading_notes

    log = transcf.open_data(data, **reading.keywords())
    is_listed = is_name(data) and data != SYNTHETIC
    about = _entry(data) if is_listed else {}
    facts, notes = {**about, **facts_of(log)}, reading_notes(log)
    answer.show(
        {"dataset": data, **facts, "report": log.report.to_list(), "notes": notes},
        output.facts_table(data, facts),
        str(log.report),
        *(f"note: {note}" for note in notes),
    )


@data.command()
def prepare(
    data: options.Data,
    out: Path,
    split_name: Annotated[str, typer.Option("--split")] = "auto",
    partitions: Annotated[int | None, typer.Option(min=1)] = None,
    *,
    reading: options.ReadingOptions,
    seed: options.Seed = 0,
    answer: output.Answer,
) -> None:
    """Filter and split a log once, and save it as DATA of other commands.

    Options:
        out: Folder for the split.
        split_name: Leave one out by auto (time, or random where there are no timestamps), time,
            position, paper or random; or cut, ratio.
        partitions: Prepare Parquet files in this many partitions of users, so that no process
            holds all events; for `transcf fit --workers`.

    Example: transcf data prepare events.csv --filter 5-core --out prepared
    """
    read, facts = reading.keywords(), dict[str, Any](dataset=data, folder=str(out))
    if partitions is not None:
        log = _prepare_partitions(data, out, split_name, seed, partitions, read)
        report, sizes = log.whole_report, {part: len(log.only(part)) for part in log.parts}
        facts |= {"split": log.how, "partitions": log.n_partitions}
        facts |= {"users": log.n_users, "items": log.n_items, **sizes}
    else:
        split = _split(transcf.open_data(data, **read), split_name, seed)
        split.save(out)
        train, report = split.train, split.report
        recipe = {key: value for key, value in split.recipe.items() if value is not None}
        listed = ", ".join(f"{key} {value}" for key, value in recipe.items() if key != "how")
        facts |= {"split": split.how, "recipe": recipe if answer.as_json else listed}
        facts |= {"users": train.n_users, "items": train.n_items, "train": len(train)}
        facts |= {"validation": len(split.validation), "test": len(split.test)}
    table = output.facts_table(f"Saved {out}", facts)
    answer.show({**facts, "report": report.to_list()}, table, str(report))


@data.command()
def download(name: options.Argument[str | None] = None, *, answer: output.Answer) -> None:
    """Download a dataset of the catalog to $TRANSCF_DATA, or list the catalog.

    Options:
        name: Name in the catalog; without it, the catalog is listed.

    Example: transcf data download ml-latest-small
    """
    if name is None:
        known = [_entry(each) for each in transcf.datasets.names()]
        columns = ("name", "title", "home")
        rows = [[entry[column] for column in columns] for entry in known]
        answer.show(known, output.values_table("Catalog", columns, rows))
        return
    entry, folder = _entry(name), transcf.datasets.download(name)
    answer.show_facts(f"Fetched {name}", {**entry, "folder": str(folder)})


@data.command()
def synthesize(
    out: Annotated[Path, typer.Argument(help="File to write: .csv or .parquet.")],
    users: options.Count = 1000,
    items: options.Count = 500,
    interactions: options.Count = 20_000,
    seed: options.Seed = 0,
    *,
    answer: output.Answer,
) -> None:
    """Generate a log of users with tastes, items with a long tail, ratings and times.

    Options:
        users: Number of users.
        items: Number of items to choose from.
        interactions: Number of events.

    Example: transcf data synthesize events.csv --users 500 --items 200
    """
    from transcf.data.atomic import atomic_write
    from transcf.data.report import facts_of
    from transcf.data.synthetic import write_csv

    if out.suffix not in (".csv", ".parquet"):
        raise ParameterError(f"{out} has an unknown ending: use .csv or .parquet.")
    log = transcf.synthesize(users, items, interactions, seed=seed)
    if out.suffix == ".csv":
        write_csv(log, out)
    else:
        with atomic_write(out) as unfinished:
            log.to_frame().write_parquet(unfinished)
    facts = {"file": str(out), "seed": seed, **facts_of(replace(log, categories=None))}
    answer.show_facts(f"Wrote {out}", facts)


def _split(log: Interactions, name: str, seed: int) -> Split:
    check_word("--split", name, (*_ORDERS, "cut", "ratio"))
    if name == "cut":
        split = transcf.temporal_cut(log)
    elif name == "ratio":
        split = transcf.random_ratio(log, seed=seed)
    else:
        split = transcf.leave_one_out(log, cast("Order", name), seed=seed)
    return transcf.draw_candidates(split, seed=seed)


def _prepare_partitions(
    data: str, out: Path, split_name: str, seed: int, partitions: int, reading: dict[str, Any]
) -> PartitionedLog:
    from transcf.data.filters import filter_of
    from transcf.data.partitioned import prepare_parts

    k_core, is_paper = filter_of(reading.pop("filter", "none"))
    if is_paper or split_name not in _ORDERS:
        what = "--filter paper" if is_paper else f"--split {split_name}"
        raise ParameterError(
            f"{what} looks at all events at once: prepare the log without --partitions."
        )
    with output.Steps(4, "steps") as steps:
        return prepare_parts(
            data,
            out,
            partitions=partitions,
            k_core=k_core,
            by=cast("Order", split_name),
            seed=seed,
            progress=steps.begin,
            **cast("Any", reading),
        )


def _entry(name: str) -> dict[str, Any]:
    fields = ("name", "title", "home", "citation", "terms")
    return {field: getattr(transcf.datasets.describe(name), field) for field in fields}
