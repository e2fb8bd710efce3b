"""`transcf reproduce analysis`: the paper's analyses of translations, its figures beside ours."""

from __future__ import annotations

from pathlib import Path

from transcf.cli._output import print_json, print_table
from transcf.cli._progress import show_steps
from transcf.cli.analyze import print_analyses
from transcf.errors import ParameterError


def reproduce_analysis(
    datasets: list[str] | None, *, pairs: int, out: Path | None, seed: int, as_json: bool
) -> None:
    """Run the analyses on some datasets, or on all, print them, and store them if asked to.

    The toy illustration, which needs no data, comes last.
    """
    from transcf.analysis import toy
    from transcf.experiments.qualitative import PLANS, check_datasets, reproduce

    names = check_datasets(PLANS if datasets is None else datasets)
    if out is not None and out.exists() and not out.is_dir():
        raise ParameterError(f"--out {out} is a file: name a folder.")
    found = []
    with show_steps(len(names), "datasets") as steps:
        for name in steps.counted(names):
            done = reproduce(name, number=pairs, random_state=seed, on_progress=steps.report)
            found.append(done)
            if out is not None:
                done.write(out)
    picture = toy(random_state=seed)
    if out is not None:
        picture.write(out)
    if as_json:
        datasets_found = [each.to_dict() for each in found]
        print_json({"datasets": datasets_found, "toy": picture.to_dict()})
        return
    for each in found:
        print_analyses(each.analyses, {})
        beside = each.beside()
        if len(beside):
            rows = [[_rounded(cell) for cell in row] for row in beside.iter_rows()]
            print_table(f"{each.dataset}: beside the paper, in per cent", beside.columns, rows)
    print_analyses([picture], {})


def _rounded(cell: object) -> object:
    return f"{cell:.2f}" if isinstance(cell, float) else cell
