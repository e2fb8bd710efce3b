"""Recommendations from who-touched-what; see README.md for a first tour.

Names are imported when they are first used, so that `import transcf` costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transcf import datasets
    from transcf.data.candidates import draw_candidates
    from transcf.data.filters import k_core, paper_filter
    from transcf.data.interactions import Interactions
    from transcf.data.readers import read_interactions
    from transcf.data.sources import open_data, open_split
    from transcf.data.split import Split
    from transcf.data.splits import leave_one_out, random_ratio, temporal_cut
    from transcf.data.synthetic import synthesize
    from transcf.errors import TransCFError
    from transcf.evaluation import Evaluation, Validation, evaluate, paired_tests, summarize_seeds
    from transcf.experiments.comparison import Comparison, compare
    from transcf.models.aobpr import AoBPR
    from transcf.models.base import Recommender
    from transcf.models.bpr import BPR
    from transcf.models.cdae import CDAE
    from transcf.models.cml import CML
    from transcf.models.eals import EALS
    from transcf.models.ease import EASE
    from transcf.models.fism import FISM
    from transcf.models.ials import IALS
    from transcf.models.itemknn import ItemKNN
    from transcf.models.lightgcn import LightGCN
    from transcf.models.neumf import NeuMF
    from transcf.models.popularity import InversePopularity, Popularity
    from transcf.models.random import Random
    from transcf.models.registry import available, create
    from transcf.models.slim import SLIM
    from transcf.models.storage import load
    from transcf.models.transcf import TransCF

__version__ = "0.1.0"

__all__ = [
    "BPR",
    "CDAE",
    "CML",
    "EALS",
    "EASE",
    "FISM",
    "IALS",
    "SLIM",
    "AoBPR",
    "Comparison",
    "Evaluation",
    "Interactions",
    "InversePopularity",
    "ItemKNN",
    "LightGCN",
    "NeuMF",
    "Popularity",
    "Random",
    "Recommender",
    "Split",
    "TransCF",
    "TransCFError",
    "Validation",
    "available",
    "compare",
    "create",
    "datasets",
    "draw_candidates",
    "evaluate",
    "k_core",
    "leave_one_out",
    "load",
    "open_data",
    "open_split",
    "paired_tests",
    "paper_filter",
    "random_ratio",
    "read_interactions",
    "summarize_seeds",
    "synthesize",
    "temporal_cut",
]

_HOMES = {
    "AoBPR": "models.aobpr",
    "BPR": "models.bpr",
    "CDAE": "models.cdae",
    "CML": "models.cml",
    "Comparison": "experiments.comparison",
    "EALS": "models.eals",
    "EASE": "models.ease",
    "Evaluation": "evaluation",
    "FISM": "models.fism",
    "IALS": "models.ials",
    "Interactions": "data.interactions",
    "InversePopularity": "models.popularity",
    "ItemKNN": "models.itemknn",
    "LightGCN": "models.lightgcn",
    "NeuMF": "models.neumf",
    "Popularity": "models.popularity",
    "Random": "models.random",
    "Recommender": "models.base",
    "SLIM": "models.slim",
    "Split": "data.split",
    "TransCF": "models.transcf",
    "TransCFError": "errors",
    "Validation": "evaluation",
    "available": "models.registry",
    "compare": "experiments.comparison",
    "create": "models.registry",
    "draw_candidates": "data.candidates",
    "evaluate": "evaluation",
    "k_core": "data.filters",
    "leave_one_out": "data.splits",
    "load": "models.storage",
    "open_data": "data.sources",
    "open_split": "data.sources",
    "paired_tests": "evaluation",
    "paper_filter": "data.filters",
    "random_ratio": "data.splits",
    "read_interactions": "data.readers",
    "summarize_seeds": "evaluation",
    "synthesize": "data.synthetic",
    "temporal_cut": "data.splits",
}


def __getattr__(name: str) -> Any:
    if name == "datasets":
        return import_module("transcf.datasets")
    if name not in _HOMES:
        raise AttributeError(f"module 'transcf' has no attribute {name!r}")
    return getattr(import_module(f"transcf.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
