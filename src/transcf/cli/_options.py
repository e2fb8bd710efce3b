"""Options that several commands share, and what they mean to the library."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from transcf.errors import ParameterError

if TYPE_CHECKING:
    from transcf.models.base import Recommender

#: DATA of every command.
Data: TypeAlias = Annotated[
    str,
    typer.Argument(
        metavar="DATA",
        help="A file, a prepared folder, a saved split, a catalog name, or 'synthetic'.",
        show_default=False,
    ),
]
Settings: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="A parameter of the model; repeatable."),
]
Preset: TypeAlias = Annotated[
    str | None, typer.Option(help="Settings that come with the model, before --set.")
]
Protocol: TypeAlias = Annotated[
    str, typer.Option(help="strict (full ranking), paper (sampled) or paper-as-published.")
]
Part: TypeAlias = Annotated[str, typer.Option(help="test or validation.")]
Lengths: TypeAlias = Annotated[
    str, typer.Option("--at", metavar="N,N", help="Lengths of the lists that are judged.")
]
Seeds: TypeAlias = Annotated[
    int, typer.Option(min=1, help="Runs, with seeds counted up; models without chance run once.")
]
Ties: TypeAlias = Annotated[str, typer.Option(help="pessimistic, realistic or optimistic.")]
Seed: TypeAlias = Annotated[int, typer.Option(min=0, help="Seed of the model and of the split.")]
Threads: TypeAlias = Annotated[
    int | None, typer.Option(min=1, help="Threads to use; all cores unless given.")
]


def read_params(
    name: str, settings: list[str] | None, preset_name: str | None = None, data: str = ""
) -> dict[str, Any]:
    """Read `--set NAME=VALUE` by the rules of a model, on top of a preset if one is named."""
    from transcf.models.registry import model_class
    from transcf.models.rules import parse

    kind = model_class(name)
    params: dict[str, Any] = {}
    if preset_name is not None:
        from transcf.models.presets import preset

        params |= preset(name, preset_name, dataset_name(data))
    for setting in settings or ():
        key, equals, text = setting.partition("=")
        if not equals:
            raise ParameterError(f"--set {setting} is not understood: write NAME=VALUE.")
        params[key.strip()] = parse(kind.__name__, key.strip(), text.strip(), kind.rules)
    return params


def make_model(
    name: str, params: Mapping[str, Any], *, seed: int, threads: int | None = None
) -> Recommender:
    """Make a model with a seed and a number of threads, where it has such parameters.

    A seed or thread count that is set by name wins over the general option.
    """
    from transcf.models.registry import create, model_class

    rules = model_class(name).rules
    general = {"random_state": seed, "n_threads": threads}
    return create(name, **{**{k: v for k, v in general.items() if k in rules}, **params})


def limit_threads(threads: int | None) -> None:
    """Let compiled kernels use so many threads; results never depend on it."""
    if threads is None:
        return
    import numba

    numba.set_num_threads(min(threads, numba.config.NUMBA_NUM_THREADS))


def dataset_name(data: str) -> str:
    """Return the catalog name of DATA if it is one or a folder called so, else DATA."""
    from transcf.data.catalog import names

    folder = Path(data).name
    return folder if folder in names() else data


def lasting_name(data: str) -> str:
    """Write DATA such that it means the same from any folder."""
    from transcf.data.catalog import names

    is_path = data not in names() and Path(data).exists()
    return str(Path(data).resolve()) if is_path else data
