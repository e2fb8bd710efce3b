"""Recommendations from who-touched-what; see README.md for a first tour.

Names are imported when they are first used, so that `import transcf` costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from transcf.models.registry import HOMES as _MODELS

if TYPE_CHECKING:
    from transcf import datasets as datasets
    from transcf.data.filters import k_core as k_core
    from transcf.data.filters import paper_filter as paper_filter
    from transcf.data.interactions import Interactions as Interactions
    from transcf.data.readers import open_data as open_data
    from transcf.data.readers import read_interactions as read_interactions
    from transcf.data.split import Split as Split
    from transcf.data.split import draw_candidates as draw_candidates
    from transcf.data.splitters import leave_one_out as leave_one_out
    from transcf.data.splitters import open_split as open_split
    from transcf.data.splitters import random_ratio as random_ratio
    from transcf.data.splitters import temporal_cut as temporal_cut
    from transcf.data.synthetic import synthesize as synthesize
    from transcf.errors import TransCFError as TransCFError
    from transcf.evaluation import Evaluation as Evaluation
    from transcf.evaluation import Validation as Validation
    from transcf.evaluation import evaluate as evaluate
    from transcf.evaluation import paired_tests as paired_tests
    from transcf.evaluation import summarize_seeds as summarize_seeds
    from transcf.experiments.auto import auto as auto
    from transcf.experiments.experiment import compare as compare
    from transcf.experiments.results import Comparison as Comparison
    from transcf.experiments.tune import Tuning as Tuning
    from transcf.experiments.tune import tune as tune
    from transcf.models.base import Recommender as Recommender
    from transcf.models.baselines import InversePopularity as InversePopularity
    from transcf.models.baselines import Popularity as Popularity
    from transcf.models.baselines import Random as Random
    from transcf.models.baselines import RecentPopularity as RecentPopularity
    from transcf.models.blend import Blend as Blend
    from transcf.models.bpr import BPR as BPR
    from transcf.models.bpr import AoBPR as AoBPR
    from transcf.models.cml import CML as CML
    from transcf.models.eals import EALS as EALS
    from transcf.models.ease import EASE as EASE
    from transcf.models.event_weights import EventWeights as EventWeights
    from transcf.models.fism import FISM as FISM
    from transcf.models.ials import IALS as IALS
    from transcf.models.itemknn import ItemKNN as ItemKNN
    from transcf.models.mixture import TransCFMixture as TransCFMixture
    from transcf.models.registry import available as available
    from transcf.models.registry import create as create
    from transcf.models.registry import load as load
    from transcf.models.slim import SLIM as SLIM
    from transcf.models.torch.cdae import CDAE as CDAE
    from transcf.models.torch.lightgcn import LightGCN as LightGCN
    from transcf.models.torch.neumf import NeuMF as NeuMF
    from transcf.models.torch.sasrec import SASRec as SASRec
    from transcf.models.training import FitOptions as FitOptions
    from transcf.models.transcf import TransCF as TransCF
    from transcf.models.transitions import SequentialRules as SequentialRules
    from transcf.parallel import use_threads as use_threads

__version__ = "0.2.0"

#: Names of each module; models are listed in the registry.
_NAMES = {
    "data.filters": ("k_core", "paper_filter"),
    "data.interactions": ("Interactions",),
    "data.readers": ("open_data", "read_interactions"),
    "data.split": ("Split", "draw_candidates"),
    "data.splitters": ("leave_one_out", "open_split", "random_ratio", "temporal_cut"),
    "data.synthetic": ("synthesize",),
    "errors": ("TransCFError",),
    "evaluation": ("Evaluation", "Validation", "evaluate", "paired_tests", "summarize_seeds"),
    "experiments.auto": ("auto",),
    "experiments.experiment": ("compare",),
    "experiments.results": ("Comparison",),
    "experiments.tune": ("Tuning", "tune"),
    "models.base": ("Recommender",),
    "models.event_weights": ("EventWeights",),
    "models.registry": ("available", "create", "load"),
    "models.training": ("FitOptions",),
    "parallel": ("use_threads",),
}
_HOMES = {name: module for module, names in _NAMES.items() for name in names}

__all__ = sorted([*_HOMES, *_MODELS, "datasets"])


def __getattr__(name: str) -> Any:
    if name == "datasets":
        return import_module("transcf.datasets")
    home = f"models.{_MODELS[name]}" if name in _MODELS else _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'transcf' has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(f"transcf.{home}"), name)
    return found


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
