"""Named datasets: `transcf.datasets.load("delicious")`."""

from transcf.data.datasets import describe, download, load, load_split, names

__all__ = ["describe", "download", "load", "load_split", "names"]
