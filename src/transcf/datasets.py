"""Named datasets: `transcf.datasets.load("delicious")`."""

from transcf.data.catalog import describe, download, load, load_split, names

__all__ = ["describe", "download", "load", "load_split", "names"]
