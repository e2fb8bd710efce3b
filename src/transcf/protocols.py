"""The named ways of judging, in one table: whatever names or checks a protocol reads it here.

Imports nothing heavy, since `transcf evaluate --help` answers at once.
"""

from __future__ import annotations

from dataclasses import dataclass

from transcf.errors import ParameterError, did_you_mean, is_word, shown


@dataclass(frozen=True)
class Protocol:
    """One way of judging.

    Attributes:
        name: What commands, tables and results call it.
        meaning: What it asks, in a few words.
        cut: Whether the log is cut at one moment for all users, the newest tenth of the events for
            test and a tenth before it for validation; else each user's newest event is held out.
        sampled: Whether held-out items are ranked among stored candidates; else among all items
            that the user has not touched.
        refit: Whether the model learns anew from train and validation before the test, once
            settings and epoch are chosen; else it has learned from train alone.
        best_on_test: Whether each figure is the best of all epochs on the test part.
    """

    name: str
    meaning: str
    cut: bool = False
    sampled: bool = False
    refit: bool = False
    best_on_test: bool = False


#: Every protocol by name; the headline comes first.
PROTOCOLS: dict[str, Protocol] = {
    entry.name: entry
    for entry in (
        Protocol("forward", "what comes after one day, for everybody", cut=True, refit=True),
        Protocol("forward-no-refit", "forward, validation events not learned from", cut=True),
        Protocol("strict", "each user's newest event", refit=True),
        Protocol("strict-no-refit", "strict, validation events not learned from"),
        Protocol("paper", "sampled candidates", sampled=True),
        Protocol(
            "paper-as-published", "paper, best epoch on test", sampled=True, best_on_test=True
        ),
    )
}


def protocol_named(name: str) -> Protocol:
    """Return a protocol, or raise a `ParameterError`.

    Example:
        >>> protocol_named("paper").sampled
        True
    """
    if not is_word(name, tuple(PROTOCOLS)):
        allowed = ", ".join(map(repr, PROTOCOLS))
        raise ParameterError(
            f"protocol={shown(name)} is not allowed; it must be one of {allowed}."
            f"{did_you_mean(name, PROTOCOLS)}"
        )
    return PROTOCOLS[name]


def full_ranking(*, cut: bool, refit: bool) -> Protocol:
    """Return the protocol of full ranking that splits and learns in some way.

    Example:
        >>> full_ranking(cut=False, refit=True).name
        'strict'
    """
    return next(
        entry
        for entry in PROTOCOLS.values()
        if not entry.sampled and (entry.cut, entry.refit) == (cut, refit)
    )


def help_on_protocols() -> str:
    """Name all protocols for `--help`."""
    listed = "; ".join(f"{entry.name} ({entry.meaning})" for entry in PROTOCOLS.values())
    usual = "forward where the log has times and a cut leaves enough users, else strict"
    return f"{listed}. Unless given: {usual}."
