"""A process that runs trials for another one; its words are data, task, store and threads.

It reads a setting from each line of standard input and answers with lines of JSON: the curve after
every validated epoch, to which the other side says whether to go on, and at the end the trial. It
ends when the other side does, even in the middle of a fit.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Mapping
from dataclasses import asdict
from queue import SimpleQueue
from typing import Any, TextIO

from transcf.data.split import Split
from transcf.errors import MissingExtraError, ParameterError
from transcf.experiments.store import Store
from transcf.experiments.tuning.bench import Bench, Task
from transcf.threads import use_threads


def main(folder: str, task: str, store: str, dataset: str, threads: str) -> None:
    """Run trials until there are no more lines."""
    answers, sys.stdout = sys.stdout, sys.stderr  # whatever else is printed is no answer
    kept = Store(store) if store else None
    bench = Bench(Task(**json.loads(task)), Split.load(folder), kept, dataset)
    lines = SimpleQueue[str]()
    threading.Thread(target=_listen, args=(lines,), daemon=True).start()

    def is_behind(curve: Mapping[int, float]) -> bool:
        _say(answers, {"curve": list(curve.items())})
        return bool(json.loads(lines.get()))

    with use_threads(int(threads)):
        while True:
            setting = json.loads(lines.get())
            try:
                tried = bench.run(setting, is_behind)
            except (ParameterError, MissingExtraError) as error:
                _say(answers, {"refused": str(error)})
                continue
            _say(answers, asdict(tried) | {"curve": list(tried.curve.items())})


def _listen(lines: SimpleQueue[str]) -> None:
    """Pass lines on; after the last, whoever asked is gone, and so is the reason to go on."""
    for line in sys.stdin:
        lines.put(line)
    os._exit(0)


def _say(answers: TextIO, message: dict[str, Any]) -> None:
    answers.write(json.dumps(message) + "\n")
    answers.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
