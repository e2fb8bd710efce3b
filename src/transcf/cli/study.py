"""`transcf study`: run a study that comes with the library, or one of your own.

What the TOML file of a study may hold stands here, in the help of the command, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from transcf.cli._options import (
    ClusterAddress,
    NoStore,
    ReportFile,
    ResultsFile,
    StorePath,
    check_files,
    command_line,
    open_store_unless,
)
from transcf.cli._output import JsonFlag, print_json, print_table, write_results
from transcf.cli._progress import show_steps
from transcf.cli._sharing import Jobs, RunWorkers, parse_sharing
from transcf.errors import ParameterError
from transcf.legend import ERROR, help_text

if TYPE_CHECKING:
    from transcf.experiments import Study
    from transcf.experiments.comparison import Comparison
    from transcf.experiments.results import Results


#: Studies that come with the library; a test compares it with the folder.
STUDIES = (
    "defaults",
    "full-ranking",
    "mixture",
    "paper-baselines",
    "paper-core",
    "paper-grid",
    "reproduce-ablations",
    "reproduce-performance",
    "reproduce-regularizers",
    "side-information",
    "times",
    "translations",
)
#: What a file of one's own looks like.
FORMAT = """\
title = "My shop"
protocol = "temporal"           # `transcf evaluate --help` names the others
seeds = 5                      # runs of every model that a seed changes
metrics = ["HitRate@10", "NDCG@10"]     # columns of the table
paired_tests = "NDCG@10"          # metric of the paired tests; optional
subset = "test"                 # or "validation", test unread; optional
budget = "medium"              # settings to try, as in compare, or a number, or
                               # { trials = 20, sampler = "tpe", space = "paper" }; optional

[[datasets]]                   # one or more
name = "events.csv"            # as DATA of other commands
core = 5                       # k-core filter; optional
protocols = ["temporal", "leave-last-out"]  # a table for each; optional
copy = ""                      # how it differs from others' data; optional
[datasets.published.transcf]   # printed figures to stand beside; optional
"HitRate@10" = 0.2586

[[models]]                     # one or more
name = "transcf"
label = "TransCF by hand"      # its name in the table; optional
preset = "paper"               # settings that come with it; optional
config = "best.toml"           # settings that `transcf tune` found; optional
params = { dim = 64 }          # settings of your own; optional
grid = { learning_rate = [0.02, 0.05] }  # chosen on validation; optional
sweep = { dim = [32, 64] }     # a line of the table for each; optional
protocols = ["temporal"]        # only in these tables; optional
datasets = ["events.csv"]      # the same; optional

[[models]]
name = "ease"
budget = "small"               # in place of a grid or the study's budget
times = true                   # a budget may use times; optional
"""
#: Below the options in `--help`.
EPILOG = "\n\n".join(
    [
        f"Studies that come with the library: {', '.join(STUDIES)}.",
        "\b\nA study of your own is a TOML file:\n\n\b\n" + FORMAT.replace("\n\n", "\n#\n"),
        help_text(ERROR),
    ]
)


def study(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="Name of a study, or a TOML file; see below.")],
    datasets: Annotated[
        str | None, typer.Option(help="Only these of its datasets, with commas between them.")
    ] = None,
    models: Annotated[
        str | None, typer.Option(help="Only these of its models, by the names in its table.")
    ] = None,
    seeds: Annotated[
        int | None, typer.Option(help="Runs of every model; as many as the study says.", min=1)
    ] = None,
    jobs: Jobs = 1,
    workers: RunWorkers = None,
    cluster: ClusterAddress = None,
    report: ReportFile = None,
    results: ResultsFile = None,
    store: StorePath = None,
    no_store: NoStore = False,
    as_json: JsonFlag = False,
) -> None:
    """Run a study: settings chosen on validation data, then test, over several seeds.

    What is in the store of runs is not run again, so that a study that was ended in any way goes
    on where it was; the same study may run in several processes at a time, which share the work:
    --jobs starts some, and --workers lets those of a Ray cluster help, all of which have to reach
    the folder of the store.
    """
    from transcf.experiments import load_study, run_study
    from transcf.experiments.results import Results, facts_of
    from transcf.experiments.study import study_workers

    check_files(report, results)
    plan = load_study(name).only(_listed(datasets), _listed(models))
    plan = plan if seeds is None else replace(plan, seeds=seeds)
    total = sum(len(plan.under(protocol, data)) for data, protocol in plan.tables())
    if not total:
        raise ParameterError(
            f"{name} runs none of these models on these datasets: choose other ones, or leave out "
            "--models or --datasets."
        )
    kept = open_store_unless(no_store, store)
    sharing = study_workers(plan, kept, jobs, parse_sharing(jobs, workers, cluster))
    with show_steps(total, "models") as steps, sharing:
        found = list(run_study(plan, steps.report, steps.counted, kept))
    if not any(comparison.runs for comparison in found):
        raise next(iter(found[0].failures.values()))
    beside = ("report", "results", "store", "no_store", "jobs", "workers", "cluster", "as_json")
    facts = [facts_of(comparison, plan) for comparison in found]
    command = command_line(context, leave_out=beside)
    done = Results.of(name, plan.title, plan.metrics, facts, command)
    if as_json:
        print_json(done.content)
    else:
        _print(plan, found, done)
    write_results(done, report, results)


def _print(plan: Study, found: Sequence[Comparison], done: Results) -> None:
    """Print a table for each dataset and protocol, and paired tests if the study has them."""
    from transcf.experiments.report import metrics_table

    for comparison, outcome in zip(found, done.outcomes, strict=True):
        table = metrics_table(outcome, plan.metrics)
        title = f"{plan.title}: {table.title}"
        print_table(title, table.columns, table.rows, notes=table.notes)
        if plan.paired_tests and len(comparison.tests):
            tests = comparison.tests
            print_table(f"Paired tests of {plan.paired_tests}", tests.columns, tests.rows())


def _listed(names: str | None) -> list[str] | None:
    return None if names is None else [name.strip() for name in names.split(",")]
