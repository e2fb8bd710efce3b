"""What a caller can get wrong, one small class each.

Every message is one sentence that says what is wrong, where, and how to mend it; the command
line prints it as it stands.
"""

from __future__ import annotations


class TransCFError(Exception):
    """The parent of every error that this library raises on purpose."""


class DataError(TransCFError, ValueError):
    """An event log, a table or a dataset folder cannot be used as it is."""


class ParameterError(TransCFError, ValueError):
    """A parameter has a value outside of what is allowed."""


class NotFittedError(TransCFError, RuntimeError):
    """A model was asked for something before `fit`."""


class UnknownIdError(TransCFError, KeyError):
    """A user or item id that the model never saw."""

    def __str__(self) -> str:
        """Return the sentence itself: a KeyError would show it quoted."""
        return str(self.args[0]) if self.args else ""


class EvaluationError(TransCFError, ValueError):
    """A ranking cannot be judged: NaN scores, nobody to evaluate, results that do not pair."""


class DivergenceError(TransCFError, ArithmeticError):
    """Training produced NaN, infinity or an exploding loss."""


class ModelFileError(TransCFError, OSError):
    """A saved model is missing, damaged, altered or of an unknown version."""


class WriteError(TransCFError, OSError):
    """A file or folder could not be written: a full disk, no permission, something in its place."""


class MissingExtraError(TransCFError, ImportError):
    """An optional part of the library is not installed."""

    def __init__(self, feature: str, extra: str) -> None:
        """Name the feature that was asked for and the extra that brings it."""
        super().__init__(f"{feature} needs an optional part: pip install 'transcf[{extra}]'.")


class UnsupportedError(TransCFError, TypeError):
    """A model was asked for something that its kind cannot give."""
