"""Trials in another process, here or on a cluster: it is told a setting, and says what came of it.

What is said is one message from each side in turn: a setting; the curve after every validated
epoch; whether to give the trial up; and at the end the trial.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict
from typing import Any, Protocol, TypeAlias

from transcf.errors import MissingExtraError, ParameterError
from transcf.experiments.tuning.bench import Bench, IsBehind
from transcf.threads import use_threads
from transcf.tuning.search import Tried

#: What a partner answers.
Message: TypeAlias = Mapping[str, Any]


class LostPartnerError(Exception):
    """The other process has ended in the middle of a trial; the next question starts a new one."""


class NoPartnerError(Exception):
    """There is no other process any more, and none can be started."""


class Partner(Protocol):
    """Somebody who runs one trial at a time.

    Attributes:
        attempts: How often to run a trial in which it is lost, before the trial has failed.
    """

    attempts: int

    def ask(self, message: Any) -> Message:
        """Tell it something, and return what it says to that.

        Raises:
            LostPartnerError: It has ended.
            NoPartnerError: It cannot be there any more.
        """

    def close(self) -> None:
        """End it, whatever it is doing."""


class Partners(Protocol):
    """Where there are partners: a `transcf.cluster.Cluster`."""

    def trying(self, bench: Bench) -> AbstractContextManager[Sequence[Partner]]:
        """Let them run trials of a bench inside the block."""


def run_with(
    partner: Partner, setting: Mapping[str, Any], is_behind: IsBehind | None = None
) -> Tried:
    """Run a trial, as `Bench.run` does; one in which the partner is lost too often has failed.

    Raises:
        ParameterError: The setting is none, or the model cannot be fitted there at all.
        NoPartnerError: There is nobody to run it.
    """
    reason = ""
    for _ in range(partner.attempts):
        try:
            return _talked(partner, setting, is_behind)
        except LostPartnerError as lost:
            reason = str(lost)
    return Tried(setting, "failed", reason=reason)


def _talked(partner: Partner, setting: Mapping[str, Any], is_behind: IsBehind | None) -> Tried:
    message = partner.ask(dict(setting))
    while True:
        if "refused" in message:
            raise ParameterError(message["refused"])
        curve = {int(epoch): figure for epoch, figure in message["curve"]}
        if "state" in message:
            return Tried(**{**message, "curve": curve})
        message = partner.ask(is_behind is not None and is_behind(curve))


def serve(
    bench: Bench, threads: int, hear: Callable[[], Any], say: Callable[[Message], None]
) -> None:
    """Run trials for somebody, until hearing from them ends: the other side of `run_with`.

    Args:
        bench: What to do.
        threads: How many to use for everything.
        hear: Waits for what they say.
        say: Answers it.
    """

    def is_behind(curve: Mapping[int, float]) -> bool:
        say({"curve": list(curve.items())})
        return bool(hear())

    with use_threads(threads):
        while True:
            setting = hear()
            try:
                tried = bench.run(setting, is_behind)
            except (ParameterError, MissingExtraError) as error:
                say({"refused": str(error)})
                continue
            say(asdict(tried) | {"curve": list(tried.curve.items())})
