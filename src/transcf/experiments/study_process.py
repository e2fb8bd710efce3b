"""A process that works on a study for another one, and ends with it.

It gets the study in its first line of input and works until there is nothing left to do. Its input
stays open as long as its owner lives: when that ends in any way, so does the process.
"""

from __future__ import annotations

import json
import sys
import threading

from transcf.experiments.helpers import work_on
from transcf.experiments.store import Store
from transcf.experiments.study import Study
from transcf.interrupts import end
from transcf.threads import use_threads


def main() -> None:
    """Work on the study that the input names."""
    task = json.loads(sys.stdin.readline())
    threading.Thread(target=_end_with_owner, daemon=True).start()
    with use_threads(task["threads"]):
        work_on(Study.from_dict(task["study"]), Store(task["store"]))


def _end_with_owner() -> None:
    """Wait for the end of the input, and end at once: what is under way is not finished."""
    sys.stdin.read()
    end(0)


if __name__ == "__main__":
    main()
