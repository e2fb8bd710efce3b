"""A process that runs trials for another one; its words are data, task, store and threads.

It reads what the other side says from standard input and answers in lines of JSON, as `partners`
has it. It ends when the other side does, even in the middle of a fit.
"""

from __future__ import annotations

import json
import sys
import threading
from queue import SimpleQueue

from transcf.data.split import Split
from transcf.experiments.store import Store
from transcf.experiments.tuning.bench import Bench, Task
from transcf.experiments.tuning.partners import Message, serve
from transcf.interrupts import end


def main(folder: str, task: str, store: str, dataset: str, threads: str) -> None:
    """Run trials until there are no more lines."""
    answers, sys.stdout = sys.stdout, sys.stderr  # whatever else is printed is no answer
    kept = Store(store) if store else None
    bench = Bench(Task(**json.loads(task)), Split.load(folder), kept, dataset)
    lines = SimpleQueue[str]()
    threading.Thread(target=_listen, args=(lines,), daemon=True).start()

    def say(message: Message) -> None:
        answers.write(json.dumps(message) + "\n")
        answers.flush()

    serve(bench, int(threads), lambda: json.loads(lines.get()), say)


def _listen(lines: SimpleQueue[str]) -> None:
    """Pass lines on; after the last, whoever asked is gone, and so is the reason to go on."""
    for line in sys.stdin:
        lines.put(line)
    end(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
