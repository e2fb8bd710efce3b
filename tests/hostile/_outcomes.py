"""What may come of a hostile case: the right answer or one sentence, and never anything else.

A case is an example of hypothesis. The ordinary run has `CASES` of them, the same ones every time;
`make fuzz` asks for more with TRANSCF_FUZZ, new ones every time, in rounds, so that what
hypothesis remembers of the earlier ones stays small.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import pytest
from hypothesis import HealthCheck, Phase, settings

from transcf.errors import TransCFError

T = TypeVar("T")
Test = Callable[..., None]

#: Cases of a round, which is all of an ordinary run.
CASES = 2_000
#: Cases of `make fuzz`; 0 in an ordinary run.
FUZZ = int(os.environ.get("TRANSCF_FUZZ", "0"))
ROUNDS = max(1, round(FUZZ / CASES))
#: Seconds after which a case hangs; kernels may have to be compiled in an ordinary run.
LIMIT = 20 if FUZZ else 300
#: The longest sentence; longer ones are data that was poured into a message.
LONGEST = 1_000

#: Where hangs are shown, whatever pytest does to the other one.
_STDERR = os.fdopen(os.dup(2), "w")

#: What came of the cases so far, by part and outcome.
counts: Counter[tuple[str, str]] = Counter()


@dataclass(frozen=True)
class Answered(Generic[T]):
    """The library gave an answer, which has to be the right one."""

    value: T


@dataclass(frozen=True)
class Refused:
    """The library said in one sentence why not."""

    sentence: str


class HangError(BaseException):
    """A case took longer than it may; no `except Exception` takes it for something else."""


def cases(part: str, share: float) -> Callable[[Test], Test]:
    """Let hypothesis run a share of the cases; the test gets the number of the `round_`."""

    def mark(test: Test) -> Test:
        chosen = settings(
            max_examples=round(share * CASES),
            deadline=None,  # `outcome_of` has a limit of its own, for hangs
            derandomize=not FUZZ,
            database=None,
            print_blob=True,
            phases=(Phase.explicit, Phase.generate, Phase.shrink),
            suppress_health_check=list(HealthCheck),
        )(test)
        return pytest.mark.parametrize("round_", range(ROUNDS))(chosen)

    return mark


def outcome_of(part: str, case: Callable[[], T]) -> Answered[T] | Refused:
    """Run a case; everything but an answer and a sentence fails."""
    try:
        with _time_limit(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            value = case()
    except TransCFError as error:
        counts[part, "sentences"] += 1
        return Refused(checked_sentence(str(error)))
    except HangError as error:
        raise AssertionError(f"the case hangs: {LIMIT} s were not enough") from error
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # a panic of polars is none of Exception
        raise AssertionError(f"{type(error).__name__} instead of a sentence: {error}") from error
    counts[part, "answers"] += 1
    return Answered(value)


def checked_sentence(text: str) -> str:
    """Return what is one sentence, in one line, for people."""
    assert text.strip(), "an error without a word"
    assert "\n" not in text.strip(), f"more than a line: {text!r}"
    assert "Traceback" not in text, text
    assert len(text) <= LONGEST, f"{len(text)} characters are no sentence: {text[:200]!r}..."
    return text


@contextmanager
def _time_limit() -> Iterator[None]:
    def ring(signum: int, frame: Any) -> None:
        raise HangError

    # A hang in compiled code does not hear the alarm: it is shown, and ends the process.
    faulthandler.dump_traceback_later(3 * LIMIT, exit=bool(FUZZ), file=_STDERR)
    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, LIMIT)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
