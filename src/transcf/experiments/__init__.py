"""Comparisons of models, studies (TOML), the run cache, tuning and reports."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transcf.experiments.comparison import Comparison as Comparison
    from transcf.experiments.comparison import compare as compare
    from transcf.experiments.study import Study as Study
    from transcf.experiments.study import available_studies as available_studies
    from transcf.experiments.study import load_study as load_study
    from transcf.experiments.study import run_study as run_study

#: Modules of the public names, which are imported at first use: `transcf runs list` needs none.
_MODULES = {
    "Comparison": "comparison",
    "compare": "comparison",
    "Study": "study",
    "available_studies": "study",
    "load_study": "study",
    "run_study": "study",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
