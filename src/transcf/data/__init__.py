"""Event logs: reading, filtering, splitting, and named datasets.

Names are imported when they are first used.
"""

from importlib import import_module
from typing import Any

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
