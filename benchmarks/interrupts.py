"""Does Ctrl-C end every command within two seconds, with code 130, and leave nothing behind?

Run: python benchmarks/interrupts.py [--presses 200] [--seed 0] [--json]

Starts `fit`, `evaluate`, `compare`, `tune` and `recommend --all` on built-in data while one core is
busy, sends SIGINT to the process group at a random moment, as a terminal does, and looks for the
exit code, the seconds to the end, tracebacks, temporary files and processes. One command in four
has no compiled kernels and compiles them. Ends with exit code 1 if any Ctrl-C went wrong.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.interrupting import LIMIT, Outcome, Place, busy_core, press  # noqa: E402

EVENTS = ("--users", "5000", "--items", "1000", "--interactions", "100000")
#: What is interrupted; {out} is a folder of the command's own.
COMMANDS = {
    "fit": [
        "fit {log} --model transcf --set epochs=300 --out {out}/model",
        "fit {log} --model bpr --set epochs=1000 --out {out}/model",
        "fit {log} --model ease --out {out}/model",
    ],
    "evaluate": ["evaluate {log} --model ials", "--store none evaluate {log} --model transcf"],
    "compare": ["compare {log} --models ease,bpr,transcf --out {out}/comparison"],
    "tune": [
        "tune {log} --model bpr --trials 50 --workers 2 --out {out}/best.toml",
        "tune {log} --model ease --trials 50 --storage {out}/trials.db",
    ],
    "recommend --all": [
        "recommend {model} --all --out {out}/lists.parquet",
        "recommend {model} --all --out {out}/lists.csv -k 100",
    ],
}


def prepare(folder: Path, kernels: Path) -> dict[str, str]:
    """Make a log and a model for the commands."""
    log, model = folder / "log.csv", folder / "model"
    environment = Place(folder / "preparation", kernels).environment()
    for words in (
        f"data synthesize {log} {' '.join(EVENTS)}",
        f"fit {log} --model bpr --set epochs=2 --out {model}",
    ):
        command = [sys.executable, "-m", "transcf", *words.split()]
        subprocess.run(command, env=environment, check=True, capture_output=True)
    return {"log": str(log), "model": str(model)}


def trial(
    name: str, names: dict[str, str], folder: Path, kernels: Path, rng: random.Random
) -> Outcome:
    """Interrupt one command at a random moment."""
    is_cold = rng.random() < 0.25
    with tempfile.TemporaryDirectory(dir=folder) as root:
        place = Place(Path(root), Path(root) / "kernels" if is_cold else kernels)
        words = rng.choice(COMMANDS[name]).format(out=root, **names).split()
        # Mostly early, where kernels are loaded and data is read, and sometimes late.
        return press(words, rng.choice((1.0, 5.0, 20.0)) * rng.random(), place)


def table(outcomes: dict[str, list[Outcome]]) -> str:
    """Write one line for each command."""
    titles = f"{'Ctrl-C':>7} {'ended before':>13} {'right':>6} {'code 130':>9} {'median s':>9}"
    lines = [f"{'command':<16} {titles} {'most s':>7}"]
    for name, all_found in outcomes.items():
        found = [one for one in all_found if not one.finished]
        right = sum(not one.problem(LIMIT) for one in found)
        codes = sum(one.code == 130 for one in found)
        seconds = [one.seconds for one in found] or [0.0]
        ended = len(all_found) - len(found)
        lines.append(
            f"{name:<16} {len(found):>7} {ended:>13} {right:>6} {codes:>9} {median(seconds):>9.2f} "
            f"{max(seconds):>7.2f}"
        )
    return "\n".join(lines)


def interrupt(presses: int, seed: int, folder: Path, kernels: Path) -> dict[str, list[Outcome]]:
    """Interrupt commands in turn until there were so many that had not ended by then."""
    rng, names = random.Random(seed), prepare(folder, kernels)
    outcomes: dict[str, list[Outcome]] = {name: [] for name in COMMANDS}
    done = 0
    with busy_core():
        while done < presses:
            name = list(COMMANDS)[done % len(COMMANDS)]
            outcome = trial(name, names, folder, kernels, rng)
            outcomes[name].append(outcome)
            done += not outcome.finished
            if problem := outcome.problem(LIMIT):
                words = f"{name} after {outcome.moment:.2f} s: {problem}"
                print(words, file=sys.stderr, flush=True)
    return outcomes


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--presses", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--kernels", type=Path, help="Compiled kernels of earlier runs.")
    options = parser.parse_args(arguments)
    folder, started = Path(tempfile.mkdtemp(prefix="interrupts-")), time.monotonic()
    try:
        kernels = options.kernels or folder / "kernels"
        outcomes = interrupt(options.presses, options.seed, folder, kernels)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    every = [one for found in outcomes.values() for one in found]
    wrong = sum(bool(one.problem(LIMIT)) for one in every)
    if options.json:
        listed = [asdict(one) | {"problem": one.problem(LIMIT)} for one in every]
        print(json.dumps({"presses": options.presses, "wrong": wrong, "outcomes": listed}))
    else:
        print(table(outcomes))
        print(f"{wrong} of {options.presses} went wrong; {time.monotonic() - started:.0f} s in all")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
