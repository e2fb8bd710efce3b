"""What the library has read, held against the oracle."""

from __future__ import annotations

import math
from collections.abc import Callable

from tests.hostile._oracle import Events, UnclearError, WrongError
from tests.hostile._outcomes import Answered, Refused

from transcf.data.interactions import Interactions


def events_in(log: Interactions) -> Events:
    """What the library has read, in the oracle's form."""
    times = None if log.timestamps is None else log.timestamps.tolist()
    found: Events = {}
    for place, row in enumerate(log.to_frame().to_dicts()):
        rating = row.get("rating")
        if rating is not None and math.isnan(rating):
            rating = None
        found[row["user_id"], row["item_id"]] = (rating, None if times is None else times[place])
    assert len(found) == len(log), "a pair twice"
    return found


def judge(
    found: Answered[Interactions] | Refused, expected: Callable[[], Events], most: int
) -> None:
    """Compare with the oracle: the same events, or a refusal of what is wrong.

    Where no rule says what is right, a log has at least no more than `most` events.
    """
    right: Events | Exception
    try:
        right = expected()
    except (UnclearError, WrongError) as reason:
        right = reason
    if isinstance(right, UnclearError):
        assert isinstance(found, Refused) or 0 < len(found.value) <= most
    elif isinstance(right, WrongError):
        assert isinstance(found, Refused), f"{right}, and yet read as {events_in(found.value)}"
    else:
        assert isinstance(found, Answered), f"refused what is fine: {found.sentence}"
        assert events_in(found.value) == right
