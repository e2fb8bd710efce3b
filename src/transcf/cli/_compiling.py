"""A line on stderr while kernels are compiled, which can take a minute."""

from __future__ import annotations

import logging
import sys


class _Lines(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        print(f"transcf: {record.getMessage()}", file=sys.stderr, flush=True)


def show_compiling() -> None:
    """Show messages of the kernels on stderr."""
    log = logging.getLogger("transcf.kernels")
    log.setLevel(logging.INFO)
    log.addHandler(_Lines())
    log.propagate = False
