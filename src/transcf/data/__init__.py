"""Event logs: reading, filtering, splitting, and where to get some."""

from transcf.data.candidates import draw_candidates
from transcf.data.catalog import load_split
from transcf.data.csr import Csr
from transcf.data.filters import k_core, paper_filter
from transcf.data.ids import IdMap
from transcf.data.interactions import Interactions
from transcf.data.logs import as_interactions, open_data
from transcf.data.partitioned.log import PartitionedLog, open_parts
from transcf.data.partitioned.prepare import prepare_parts
from transcf.data.readers import pair_columns, read_interactions
from transcf.data.report import Report
from transcf.data.sources import open_split
from transcf.data.split import Candidates, Split
from transcf.data.splits import leave_one_out, random_ratio, temporal_cut
from transcf.data.synthetic import synthesize, write_csv

__all__ = [
    "Candidates",
    "Csr",
    "IdMap",
    "Interactions",
    "PartitionedLog",
    "Report",
    "Split",
    "as_interactions",
    "draw_candidates",
    "k_core",
    "leave_one_out",
    "load_split",
    "open_data",
    "open_parts",
    "open_split",
    "pair_columns",
    "paper_filter",
    "prepare_parts",
    "random_ratio",
    "read_interactions",
    "synthesize",
    "temporal_cut",
    "write_csv",
]
