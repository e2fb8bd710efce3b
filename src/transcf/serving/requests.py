"""Requests for lists, many at a time: from ids to the JSON of the answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from transcf.data.ids import UNKNOWN, Id
from transcf.data.json_text import to_json
from transcf.serving.events.cache import EventCache
from transcf.serving.loaded_model import LoadedModel, plain_id, rows_of
from transcf.serving.ranking import Ranked, RecommendOptions, rank
from transcf.serving.reasons import reason
from transcf.serving.users import ResolvedUser, find_people, find_sessions


@dataclass(frozen=True)
class RecommendRequest:
    """A request for one list or several.

    Attributes:
        wish: What the lists should be like.
        users: Whom they are for.
        session: Items of somebody unknown, in order; None where there are users.
        many: Whether the answer is a list of answers.
        explain: Whether to say why.
    """

    wish: RecommendOptions
    users: tuple[Id, ...] = ()
    session: tuple[Id, ...] | None = None
    many: bool = False
    explain: bool = False


def answer(
    served: LoadedModel, recent: EventCache, asks: Sequence[RecommendRequest]
) -> list[bytes]:
    """Answer requests in JSON, in their order; one version answers all of them."""
    users = [user for ask in asks for user in ask.users]
    sessions = [ask.session for ask in asks if ask.session is not None]
    known = iter(find_people(served, recent, users) if users else [])
    guests = iter(find_sessions(served, sessions))
    people: list[ResolvedUser] = []
    wishes: list[RecommendOptions] = []
    skipped: dict[int, list[Id]] = {}
    for place, ask in enumerate(asks):
        if ask.session is None:
            people += [next(known) for _ in ask.users]
        else:
            person, skipped[place] = next(guests)
            people.append(person)
        wishes += [ask.wish] * (len(people) - len(wishes))
    slots = iter(zip(people, rank(served, people, wishes), strict=True))
    stale = "" if recent.trouble is None else ',"stale":true'
    answers = []
    for place, ask in enumerate(asks):
        ignored = _unknown_ids(served, ask.wish)
        counted = f',"ignored":{ignored}' if ignored else ""
        head = f'{{"version":{served.version}{stale}{counted},'
        if ask.session is not None:
            left = f'"skipped":{to_json(skipped[place], compact=True)},'
            text = head + left + _list(served, *next(slots), explain=ask.explain)
        else:
            bodies = [
                f'"user":{to_json(plain_id(served.users, user), compact=True)},'
                + _list(served, *next(slots), explain=ask.explain)
                for user in ask.users
            ]
            listed = ",".join(f"{{{body}}}" for body in bodies)
            text = head + (f'"answers":[{listed}]' if ask.many else bodies[0])
        answers.append(f"{text}}}".encode())
    return answers


def _unknown_ids(served: LoadedModel, wish: RecommendOptions) -> int:
    """Count the ids in `items` and `exclude` that the model does not know; they are skipped."""
    listed = [*wish.exclude, *(wish.items or ())]
    return int((rows_of(served.items, listed) == UNKNOWN).sum()) if listed else 0


def _list(served: LoadedModel, person: ResolvedUser, ranked: Ranked, *, explain: bool) -> str:
    """Write a list, without braces around it."""
    entries = []
    pairs = zip(ranked.items.tolist(), ranked.scores.tolist(), strict=True)
    for place, (row, score) in enumerate(pairs, 1):
        entry = f'{{{served.item_json(row)},"score":{score:.7g},"rank":{place}'
        if explain:
            entry += f',"reason":{to_json(reason(served, person, row), compact=True)}'
        entries.append(f"{entry}}}")
    return f'"source":"{person.source}","items":[{",".join(entries)}]'
