"""Exceptions and warnings of the library.

Every message is one sentence that says what is wrong, where, and how to fix it. The command line
prints it unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from numbers import Integral
from typing import Any, ClassVar

#: Maximum length of a value in a message.
_SHOWN = 80
#: A word so long that it is quoted data rather than a name.
_LONG_WORD = re.compile(r"(\S{60})\S{300,}(\S{20})")


def shown(value: object) -> str:
    """Write a value as messages show it: in one line and not too long, whatever it is."""
    try:
        text = " ".join(repr(value).split())
    except Exception:  # numbers of thousands of digits, and objects that cannot be shown
        kind = type(value).__name__
        return f"a{'n' * (kind[:1] in 'aeiou')} {kind} that is too long to show"
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."


def brief(text: str) -> str:
    r"""Bring a message into one line, and cut words that are longer than any name is."""
    return _LONG_WORD.sub(r"\1...\2", " ".join(text.splitlines()))


def did_you_mean(word: object, known: Iterable[str]) -> str:
    """Return a question with the names that are spelled most like a word; empty without any."""
    from difflib import get_close_matches

    names = {name.lower(): name for name in known}
    close = get_close_matches(word.lower()[:_SHOWN], names) if isinstance(word, str) else []
    return f" Did you mean {' or '.join(repr(names[name]) for name in close)}?" if close else ""


def is_word(value: object, words: Iterable[str]) -> bool:
    """Tell whether a value is one of some words; arrays, which compare one by one, are none."""
    return isinstance(value, str) and value in tuple(words)


def check_word(name: str, value: object, words: Iterable[str]) -> None:
    """Raise a `ParameterError` unless a parameter is one of some words."""
    if not is_word(value, words):
        raise ParameterError(
            f"{name}={shown(value)} is not allowed; it must be one of "
            f"{', '.join(map(repr, words))}.{did_you_mean(value, words)}"
        )


def check_integer(name: str, value: object, least: int = 0) -> int:
    """Return a parameter that is an integer of 64 bits; raise a `ParameterError` otherwise."""
    if (
        isinstance(value, bool)
        or not isinstance(value, Integral)
        or not least <= int(value) < 1 << 63
    ):
        raise ParameterError(
            f"{name}={shown(value)} is not allowed; it must be a whole number of at least {least}."
        )
    return int(value)


def check_flag(name: str, value: object) -> None:
    """Raise a `ParameterError` unless a parameter is True or False, of Python or NumPy."""
    from numpy import bool_  # here, as `import transcf` leaves numpy out

    if not isinstance(value, bool | bool_):
        raise ParameterError(f"{name}={shown(value)} is not allowed; it must be True or False.")


class TransCFError(Exception):
    """The parent of every error that this library raises on purpose."""

    #: Page of the documentation that helps; the command line names it.
    page: ClassVar[str] = ""

    def __str__(self) -> str:
        """Return the sentence in one line, whatever names and values it quotes."""
        return brief(super().__str__())


class DataError(TransCFError, ValueError):
    """An event log, a table or a dataset folder cannot be used as it is."""

    page = "start/your-data"


class ParameterError(TransCFError, ValueError):
    """A parameter has a value outside of what is allowed."""


class NotFittedError(TransCFError, RuntimeError, AttributeError):
    """A model was asked for something before `fit`.

    An `AttributeError` as well, as in scikit-learn, so that `hasattr(model, "items_")` is False.
    """


class UnknownIdError(TransCFError, KeyError):
    """A user or item id that the model never saw."""

    def __str__(self) -> str:
        """Return the sentence itself: a KeyError would show it quoted."""
        return brief(str(self.args[0])) if self.args else ""


class EvaluationError(TransCFError, ValueError):
    """A ranking cannot be evaluated: NaN scores, no users, or results of different users."""

    page = "concepts/protocols"


class OutOfMemoryError(TransCFError, MemoryError):
    """Something needs more memory than is free."""


class DivergenceError(TransCFError, ArithmeticError):
    """Training produced NaN, infinity or an exploding loss."""


class FitWarning(UserWarning):
    """A fitted model is probably of no use: collapsed vectors, or worse than popularity."""


class FewUsersWarning(UserWarning):
    """Metrics are uncertain because few users can be evaluated."""


class ModelFileError(TransCFError, OSError):
    """A saved model is missing, damaged, altered or of an unknown version."""


class WriteError(TransCFError, OSError):
    """A file or folder could not be written: a full disk, no permission, something in its place."""


class MissingExtraError(TransCFError, ImportError):
    """An optional part of the library is not installed."""

    page = "start/install"

    def __init__(self, feature: str, extra: str) -> None:
        super().__init__(f"{feature} needs an optional part: pip install 'transcf[{extra}]'.")
        self._arguments = feature, extra

    def __reduce__(self) -> Any:
        return type(self), self._arguments  # workers return it to their caller


@contextmanager
def needs_extra(feature: str, extra: str) -> Iterator[None]:
    """Turn an `ImportError` inside the block into a `MissingExtraError`."""
    try:
        yield
    except ImportError as error:
        raise MissingExtraError(feature, extra) from error


class UnsupportedError(TransCFError, TypeError):
    """The model does not support the requested operation."""


class ServiceError(TransCFError, ConnectionError):
    """A service did not answer (`code` "away", `status` 0), or refused with an HTTP status."""

    def __init__(self, message: str, *, code: str = "", status: int = 0) -> None:
        super().__init__(message)
        self.code, self.status = code, status
