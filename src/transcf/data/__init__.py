"""Event logs: reading, filtering, splitting, and named datasets.

Names are imported when they are first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transcf.data.csr import Csr as Csr
    from transcf.data.filters import k_core as k_core
    from transcf.data.filters import paper_filter as paper_filter
    from transcf.data.ids import IdMap as IdMap
    from transcf.data.interactions import Interactions as Interactions
    from transcf.data.partitioned import PartitionedLog as PartitionedLog
    from transcf.data.partitioned import open_parts as open_parts
    from transcf.data.partitioned import prepare_parts as prepare_parts
    from transcf.data.readers import as_interactions as as_interactions
    from transcf.data.readers import open_data as open_data
    from transcf.data.readers import pair_columns as pair_columns
    from transcf.data.readers import read_interactions as read_interactions
    from transcf.data.report import Report as Report
    from transcf.data.split import Candidates as Candidates
    from transcf.data.split import Split as Split
    from transcf.data.split import draw_candidates as draw_candidates
    from transcf.data.splitters import leave_one_out as leave_one_out
    from transcf.data.splitters import open_split as open_split
    from transcf.data.splitters import random_ratio as random_ratio
    from transcf.data.splitters import split_log as split_log
    from transcf.data.splitters import temporal_cut as temporal_cut
    from transcf.data.synthetic import synthesize as synthesize
    from transcf.data.synthetic import write_csv as write_csv

_NAMES = {
    "csr": ["Csr"],
    "filters": ["k_core", "paper_filter"],
    "ids": ["IdMap"],
    "interactions": ["Interactions"],
    "partitioned": ["PartitionedLog", "open_parts", "prepare_parts"],
    "readers": ["as_interactions", "open_data", "pair_columns", "read_interactions"],
    "report": ["Report"],
    "split": ["Candidates", "Split", "draw_candidates"],
    "splitters": ["leave_one_out", "open_split", "random_ratio", "split_log", "temporal_cut"],
    "synthetic": ["synthesize", "write_csv"],
}
_HOMES = {name: module for module, names in _NAMES.items() for name in names}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
