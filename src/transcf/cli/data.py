"""`transcf data`: look at logs, prepare, fetch and invent them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from transcf.cli._options import (
    ClusterAddress,
    Data,
    ReadingOptions,
    Seed,
    parse_cluster,
    reading_options,
)
from transcf.cli._output import JsonFlag, print_facts, print_json, print_table
from transcf.errors import ParameterError

if TYPE_CHECKING:
    from transcf.data.interactions import Interactions
    from transcf.data.split import Split

app = typer.Typer(help="Look at event logs, prepare, fetch and invent them.", no_args_is_help=True)


@app.command()
@reading_options
def info(
    data: Data,
    *,
    reading: ReadingOptions,
    as_json: JsonFlag = False,
) -> None:
    """Count users, items and interactions, and say what was merged or left out.

    For a name of the catalog, say what to cite and on what terms the data is given, too.
    """
    from transcf.data import datasets
    from transcf.data.datasets import SYNTHETIC, is_name
    from transcf.data.readers import open_data
    from transcf.data.report import reading_notes

    log = open_data(data, **reading)
    is_listed = is_name(data) and data != SYNTHETIC
    about = _entry(datasets.describe(data)) if is_listed else {}
    facts = {**about, **_facts(log)}
    if as_json:
        notes = reading_notes(log)
        print_json({"dataset": data, **facts, "report": log.report.to_list(), "notes": notes})
        return
    print_facts(data, facts)
    for step in log.report.steps:
        typer.echo(str(step))
    for note in reading_notes(log):
        typer.echo(f"note: {note}")


@app.command()
@reading_options
def prepare(
    data: Data,
    out: Annotated[Path, typer.Option(help="Folder for the split.")],
    split_name: Annotated[
        str,
        typer.Option(
            "--split",
            help="Leave one out by auto (time, or random where there are no timestamps), time, "
            "position, paper or random; or cut, ratio.",
        ),
    ] = "auto",
    candidates: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="Items to draw for sampled protocols, 99 unless given; 0 for none.",
            show_default=False,
        ),
    ] = None,
    partitions: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Prepare Parquet files in so many partitions of users, while no process holds all "
            "events; `transcf fit --workers` reads them so, too.",
        ),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(min=1, help="With --partitions: spread the work over so many processes."),
    ] = None,
    cluster: ClusterAddress = None,
    *,
    reading: ReadingOptions,
    seed: Seed = 0,
    as_json: JsonFlag = False,
) -> None:
    """Filter and split a log once, and save it for every later command."""
    from transcf.cli._parts import prepare_in_parts
    from transcf.data.candidates import draw_candidates
    from transcf.data.readers import open_data

    if partitions is not None:
        spread = parse_cluster(workers, cluster)
        if candidates:
            raise ParameterError(
                "--candidates and --partitions cannot be used together: candidates are drawn "
                "when a protocol asks for them."
            )
        prepare_in_parts(data, out, split_name, seed, partitions, spread, reading, as_json)
        return
    if workers is not None or cluster is not None:
        raise ParameterError("--workers and --cluster go with --partitions: say how many.")
    split = _split(open_data(data, **reading), split_name, seed)
    if candidates != 0:
        split = draw_candidates(split, 99 if candidates is None else candidates, seed)
    split.save(out)
    facts: dict[str, Any] = {
        "dataset": data,
        "folder": str(out),
        "split": split.how,
        "recipe": {key: value for key, value in split.recipe.items() if value is not None},
        "users": split.train.n_users,
        "items": split.train.n_items,
        "train": len(split.train),
        "validation": len(split.validation),
        "test": len(split.test),
    }
    if as_json:
        print_json({**facts, "report": split.report.to_list()})
        return
    recipe = ", ".join(f"{key} {value}" for key, value in facts["recipe"].items() if key != "how")
    print_facts(f"Saved {out}", {**facts, "recipe": recipe})
    for step in split.report.steps:
        typer.echo(str(step))


@app.command()
def download(
    name: Annotated[str | None, typer.Argument(help="Name in the catalog; none lists it.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder to put the files into.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Fetch a dataset of the catalog, or list the catalog."""
    from transcf.data import datasets

    if name is None:
        known = [_entry(datasets.describe(entry)) for entry in datasets.names()]
        if as_json:
            print_json(known)
        else:
            rows = [(entry["name"], entry["title"], entry["home"]) for entry in known]
            print_table("Catalog", ("name", "title", "home"), rows)
        return
    entry = _entry(datasets.describe(name))
    folder = datasets.download(name, out)
    if as_json:
        print_json({**entry, "folder": str(folder)})
    else:
        print_facts(f"Fetched {name}", {**entry, "folder": str(folder)})


@app.command()
def synthesize(
    out: Annotated[Path, typer.Argument(help="File to write: .csv or .parquet.")],
    users: Annotated[int, typer.Option(min=1, help="Number of users.")] = 1000,
    items: Annotated[int, typer.Option(min=1, help="Number of items to choose from.")] = 500,
    interactions: Annotated[int, typer.Option(min=1, help="Number of events.")] = 20_000,
    drift: Annotated[
        float, typer.Option(min=0, help="How fast items fade after they come out; 0: never.")
    ] = 0.0,
    sequences: Annotated[
        float, typer.Option(min=0, max=1, help="Share of events that follow the one before.")
    ] = 0.0,
    seed: Seed = 0,
    as_json: JsonFlag = False,
) -> None:
    """Make up a log of users with tastes, items with a long tail, ratings and times."""
    from transcf.data.atomic import atomic_write
    from transcf.data.synthetic import synthesize as make_up
    from transcf.data.synthetic import write_csv

    if out.suffix not in (".csv", ".parquet"):
        raise ParameterError(f"{out} has an unknown ending: use .csv or .parquet.")
    log = make_up(users, items, interactions, drift=drift, sequences=sequences, seed=seed)
    if out.suffix == ".csv":
        write_csv(log, out)
    else:
        with atomic_write(out) as unfinished:
            log.to_frame().write_parquet(unfinished)
    facts = {"file": str(out), "seed": seed, **_facts(replace(log, categories=None, links=None))}
    if as_json:
        print_json(facts)
    else:
        print_facts(f"Wrote {out}", facts)


def _split(log: Interactions, name: str, seed: int) -> Split:
    from transcf.data.splitters import leave_one_out, random_ratio, temporal_cut

    if name == "cut":
        return temporal_cut(log)
    if name == "ratio":
        return random_ratio(log, seed=seed)
    if name in ("auto", "time", "position", "paper", "random"):
        return leave_one_out(log, name, seed=seed)  # type: ignore[arg-type]  # narrowed above
    raise ParameterError(
        f"--split {name} is not understood: use auto, time, position, paper, random, cut or ratio."
    )


def _facts(log: Interactions) -> dict[str, Any]:
    import numpy as np

    per_user, per_item = log.by_user.counts, log.by_item.counts
    facts: dict[str, Any] = {
        "users": log.n_users,
        "items": log.n_items,
        "interactions": len(log),
        "density": log.density,
        "median_per_user": float(np.median(per_user)),
        "median_per_item": float(np.median(per_item)),
        "ratings": log.ratings is not None,
        "timestamps": log.timestamps is not None,
    }
    if log.categories is not None:
        facts["categories"] = log.categories["category"].n_unique()
    if log.links is not None:
        facts["links"] = len(log.links) // 2
    return facts


def _entry(dataset: Any) -> dict[str, Any]:
    fields = ("name", "title", "home", "citation", "terms")
    return {field: getattr(dataset, field) for field in fields}
