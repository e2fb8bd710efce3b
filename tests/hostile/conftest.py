"""Bounded memory for `make fuzz`, and what came of the cases at its end."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest
from tests.hostile._outcomes import FUZZ, counts

#: What a run may take beyond what it has at its start.
_MEMORY = 3 * 2**30


@pytest.fixture(scope="session", autouse=True)
def bounded_memory() -> None:
    """Let a request for too much memory fail instead of the machine."""
    if FUZZ:
        pages = int(Path("/proc/self/statm").read_text().split()[5])
        limit = pages * resource.getpagesize() + _MEMORY
        resource.setrlimit(resource.RLIMIT_DATA, (limit, resource.RLIM_INFINITY))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how many cases there were, and what came of them."""
    if not counts:
        return
    parts = sorted({part for part, _ in counts})
    rows = [(part, counts[part, "answers"], counts[part, "sentences"]) for part in parts]
    rows.append(("all", sum(row[1] for row in rows), sum(row[2] for row in rows)))
    terminalreporter.section("hostile cases")
    terminalreporter.write_line(f"{'part':12}{'cases':>10}{'right':>10}{'sentences':>10}")
    for part, right, said in rows:
        terminalreporter.write_line(f"{part:12}{right + said:>10,}{right:>10,}{said:>10,}")
