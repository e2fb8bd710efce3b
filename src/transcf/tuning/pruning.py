"""Which trials to give up: those behind half of the others after as many epochs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median

from transcf.tuning.search import Tried

#: Trials to be finished before any is given up: too few say nothing.
LEAST = 5
#: Validations before a trial is given up: what learns slowly may end well.
WARM_UP = 3


def is_behind(curve: Mapping[int, float], others: Sequence[Tried]) -> bool:
    """Tell whether the best of a curve is below the median of finished trials at its last epoch.

    Args:
        curve: Figures by epoch, of a trial under way.
        others: What was tried; only what ran to its end is looked at.

    Example:
        >>> others = [Tried({}, "complete", 0.3, curve={1: 0.1, 2: 0.2, 3: 0.3})] * LEAST
        >>> is_behind({1: 0.05, 2: 0.1, 3: 0.2}, others), is_behind({1: 0.0, 2: 0.0}, others)
        (True, False)
    """
    if len(curve) < WARM_UP:
        return False
    last = max(curve)
    finished = [tried.curve for tried in others if tried.state == "complete"]
    rivals = [found[last] for found in finished if last in found]
    return len(rivals) >= LEAST and max(curve.values()) < median(rivals)
