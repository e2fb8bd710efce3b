"""What was done to the data on its way in: nothing is dropped in silence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any


def counted(number: int, noun: str) -> str:
    """Write a number with its noun.

    Example:
        >>> counted(1, "user"), counted(2000, "user")
        ('1 user', '2,000 users')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def listed(names: Sequence[str]) -> str:
    """Write some names as a sentence has them.

    Example:
        >>> listed(["ease"]), listed(["ease", "bpr", "slim"])
        ('ease', 'ease, bpr and slim')
    """
    return " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))


@dataclass(frozen=True)
class Step:
    """One thing that happened to the data, with its counts.

    Example:
        >>> str(Step("merge repeats", {"rows": 12, "repeats": 2}))
        'merge repeats: rows 12, repeats 2'
    """

    name: str
    counts: dict[str, int] = field(default_factory=dict)

    def __str__(self) -> str:
        """One readable line."""
        return f"{self.name}: " + ", ".join(f"{k} {v:,}" for k, v in self.counts.items())


@dataclass(frozen=True)
class Report:
    """The steps from the source to the present object, in order."""

    steps: tuple[Step, ...] = ()

    def then(self, name: str, /, **counts: int) -> Report:
        """Return this report with one more step."""
        return Report((*self.steps, Step(name, dict(counts))))

    def count(self, name: str, key: str) -> int:
        """Sum a count over all steps of that name (0 if there were none)."""
        return sum(step.counts.get(key, 0) for step in self.steps if step.name == name)

    def to_list(self) -> list[dict[str, Any]]:
        """JSON form: `[{"step": name, counts...}, ...]`."""
        return [{"step": step.name, **step.counts} for step in self.steps]

    @classmethod
    def from_list(cls, steps: list[dict[str, Any]]) -> Report:
        """Read what `to_list` gave."""
        report = cls()
        for step in steps:
            counts = {key: int(value) for key, value in step.items() if key != "step"}
            report = report.then(str(step["step"]), **counts)
        return report

    def __str__(self) -> str:
        """One line per step."""
        return "\n".join(map(str, self.steps))
