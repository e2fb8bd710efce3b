"""Install the built wheel into clean environments and test it there.

For each Python that is found: the wheel without extras is installed into a new environment, the
demo is run, and the tests of the core run in a folder without the sources.

Run: python tools/check_wheel.py [--python PYTHON ...]   (`make dist` builds the wheel first)
Pythons of pyenv are found with PYENV_VERSION=3.11.7:3.12.1:3.13.0 in the environment.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).parents[1]
PYTHONS = ("python3.11", "python3.12", "python3.13", "python3.14")
#: Tests that need no extra: arithmetic, ranking, metrics, models of the core, model folders.
CORE_TESTS = (
    "tests/kernels/test_exponentials.py", "tests/kernels/test_neighborhood.py",
    "tests/kernels/test_rng.py", "tests/kernels/test_tickets.py", "tests/retrieval/test_topk.py",
    "tests/evaluation/test_metrics.py", "tests/evaluation/test_ranks.py",
    "tests/models/test_ease.py", "tests/models/test_cml.py", "tests/models/test_mixture.py",
    "tests/models/test_transcf.py", "tests/storage/test_folders.py", "tests/storage/test_cards.py",
)  # fmt: skip
TEST_TOOLS = ("pytest", "hypothesis")


def run(command: list[str | Path], folder: Path) -> None:
    """Run a command in a folder; the sources are not importable there."""
    print("$", *(str(part) for part in command), flush=True)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    subprocess.run(command, cwd=folder, env=environment, check=True)


def works(python: str) -> bool:
    """Return whether an interpreter is there and runs; a shim may be there without one."""
    command = [python, "-c", "import sys; print(sys.version)"]
    return (
        shutil.which(python) is not None
        and subprocess.run(command, capture_output=True, check=False).returncode == 0
    )


def check(python: str, wheel: Path) -> None:
    """Install the wheel for one Python, run the demo and the core tests."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        environment = folder / "environment"
        if python == sys.executable:
            venv.create(environment, with_pip=True)
        else:
            run([python, "-m", "venv", environment], folder)
        programs = environment / ("Scripts" if os.name == "nt" else "bin")
        pip: list[str | Path] = [programs / "python", "-m", "pip", "install", "--quiet"]
        run([*pip, wheel], folder)
        run([programs / "transcf", "demo"], folder)
        run([*pip, *TEST_TOOLS], folder)
        shutil.copytree(ROOT / "tests", folder / "tests")
        shutil.copy(ROOT / "pyproject.toml", folder)
        run([programs / "python", "-m", "pytest", "-q", *CORE_TESTS], folder)


def main() -> None:
    """Check the newest wheel of dist/ with every Python that is asked for, or found."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--python", action="append", help="an interpreter; several are allowed")
    pythons = parser.parse_args().python or [python for python in PYTHONS if works(python)]
    wheels = sorted(ROOT.glob("dist/*.whl"), key=lambda path: path.stat().st_mtime)
    if not wheels:
        raise SystemExit("There is no wheel in dist/: run `make dist`.")
    for python in pythons:
        print(f"== {python}", flush=True)
        check(python, wheels[-1])
    print(f"{wheels[-1].name} works with {', '.join(pythons)}.")


if __name__ == "__main__":
    main()
