"""Installed sizes of the core and of each extra, from the packages of this environment.

    python tools/extras.py

A row counts the packages that the extra adds to the core, with those that they need; what several
extras share is counted in each of them.
"""

from __future__ import annotations

from importlib.metadata import Distribution, PackageNotFoundError, distribution

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

EXTRAS = (
    "serve",
    "neural",
    "tune",
    "plots",
    "cluster",
    "index",
    "pgvector",
    "lancedb",
    "hdf5",
    "docs",
)


def requirements(found: Distribution, extra: str) -> list[Requirement]:
    """Return what a package needs here, with an extra or ("") without one."""
    every = map(Requirement, found.requires or ())
    return [one for one in every if one.marker is None or one.marker.evaluate({"extra": extra})]


def closure(needed: list[Requirement]) -> dict[str, Distribution]:
    """Return the packages of requirements, with all that they need."""
    packages: dict[str, Distribution] = {}
    done = set[tuple[str, str]]()
    while needed:
        one = needed.pop()
        name = canonicalize_name(one.name)
        for extra in ("", *one.extras):
            if (name, extra) not in done:
                done.add((name, extra))
                try:
                    packages[name] = distribution(name)
                except PackageNotFoundError:
                    continue
                needed += requirements(packages[name], extra)
    return packages


def mebibytes(packages: dict[str, Distribution]) -> float:
    """Return the size of the files of packages."""
    files = (file.locate() for one in packages.values() for file in one.files or ())
    return sum(path.stat().st_size for path in files if path.is_file()) / 2**20


def main() -> None:
    """Print the table."""
    own = distribution("transcf")
    core = closure(requirements(own, ""))
    print("| Extra | Packages | MiB |\n|---|--:|--:|")
    print(f"| (core) | {len(core)} | {mebibytes(core):,.0f} |")
    for extra in EXTRAS:
        added = closure(requirements(own, extra))
        added = {name: one for name, one in added.items() if name not in core}
        print(f"| `{extra}` | {len(added)} | {mebibytes(added):,.0f} |")


if __name__ == "__main__":
    main()
