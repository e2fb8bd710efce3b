"""The evaluation protocols by name.

Imports only the standard library, so that `transcf evaluate --help` stays fast.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

from transcf.errors import check_word, is_word


@dataclass(frozen=True)
class Protocol:
    """An evaluation protocol."""

    name: str  # in commands, tables and results
    meaning: str  # for `--help`
    #: Whether the log is split at one moment for all users: the newest tenth of the events for
    #: test, the tenth before it for validation. Otherwise each user's newest event is held out.
    cut: bool = False
    #: Whether held-out items are ranked among stored candidates; otherwise among all items that
    #: the user has not interacted with.
    sampled: bool = False
    #: Whether the model is refitted on train and validation before the test, once its settings and
    #: epoch are chosen; otherwise it is fitted on train alone.
    refit: bool = False
    best_on_test: bool = False  # whether each metric is the best test value over all epochs
    longer_history: bool = False  # whether test histories include the validation events


#: Every protocol by name; the headline comes first.
PROTOCOLS: dict[str, Protocol] = {
    entry.name: entry
    for entry in (
        Protocol("temporal", "events after one moment, for all users", cut=True, refit=True),
        Protocol("temporal-no-refit", "temporal, without refit", cut=True),
        Protocol("leave-last-out", "each user's newest event", refit=True),
        Protocol("leave-last-out-no-refit", "leave-last-out, without refit"),
        Protocol(
            "sequential", "each user's last event from all before, no refit", longer_history=True
        ),
        Protocol("paper", "sampled candidates", sampled=True),
        Protocol(
            "paper-as-published", "paper, best epoch on test", sampled=True, best_on_test=True
        ),
    )
}


#: Names of version 0.1.
_OLD_NAMES = {
    "forward": "temporal",
    "forward-no-refit": "temporal-no-refit",
    "strict": "leave-last-out",
    "strict-no-refit": "leave-last-out-no-refit",
}


def protocol_named(name: str) -> Protocol:
    """Return a protocol, or raise a `ParameterError`.

    Names of version 0.1 are accepted with a `FutureWarning`.
    """
    if is_word(name, _OLD_NAMES):
        warnings.warn(
            f"The protocol {name!r} is called {_OLD_NAMES[name]!r} now.",
            FutureWarning,
            stacklevel=2,
        )
        name = _OLD_NAMES[name]
    check_word("protocol", name, PROTOCOLS)
    return PROTOCOLS[name]


def full_ranking(*, cut: bool, refit: bool) -> Protocol:
    """Return the full-ranking protocol with a kind of split, with or without refit."""
    return next(
        entry
        for entry in PROTOCOLS.values()
        if not (entry.sampled or entry.longer_history) and (entry.cut, entry.refit) == (cut, refit)
    )


def help_on_protocols() -> str:
    """Describe all protocols for `--help`."""
    listed = "; ".join(f"{entry.name} ({entry.meaning})" for entry in PROTOCOLS.values())
    usual = "temporal where the log has times and enough users after the cut, else leave-last-out"
    return f"{listed}. Unless given: {usual}."
