"""Which past items drew an item: what every model that can explain says, and those that cannot."""

from __future__ import annotations

import json

import numpy as np
import pytest
from tests.conformance.test_answers import few_epochs, fitted
from tests.conformance.test_every_model import EVERY_MODEL, FLOOR, make

from transcf.data.interactions import Interactions
from transcf.data.readers import read_interactions
from transcf.errors import ParameterError, UnknownIdError, UnsupportedError
from transcf.models.itemknn import ItemKNN
from transcf.models.registry import available

EXPLAINING = pytest.mark.parametrize("name", [name for name in available() if name not in FLOOR])
USER = 4


@EXPLAINING
def test_shares_and_signs_of_a_whole_history(name: str) -> None:
    model = fitted(name)
    user = model.users_.series[USER]
    item = model.recommend(user, k=1)["item_id"][0]
    found = model.explain(user, item, top=1000)
    past = model.items_.ids(model.histories_[USER]).to_list()
    assert {entry.item_id for entry in found.effects} <= set(past)
    assert len(found.effects) + found.others == len(past)
    assert (found.others_drew, found.others_pushed) == (0, 0), "those without any effect"
    effects = np.array([entry.effect for entry in found.effects])
    shares = np.array([entry.share for entry in found.effects])
    np.testing.assert_allclose(shares, effects / np.abs(effects).sum())
    drew = effects[effects > 0]
    assert (effects[: len(drew)] == drew).all(), "those that drew come first"
    assert (np.diff(drew) <= 0).all()
    assert (np.diff(effects[len(drew) :]) >= 0).all()
    score = model.score([(user, item)])["score"].item()
    assert found.score == pytest.approx(score, abs=1e-5)
    short = model.explain(user, item, top=1)
    assert short.effects[0] == found.effects[0]
    assert short.others == len(past) - len(short.effects)
    left = sum(abs(entry.share) for entry in found.effects if entry not in short.effects)
    assert short.others_drew - short.others_pushed == pytest.approx(left)


@EXPLAINING
def test_an_explanation_reads_well_and_speaks_json(name: str) -> None:
    model = fitted(name)
    user = model.users_.series[USER]
    item = model.recommend(user, k=1)["item_id"][0]
    found = model.explain(user, item)
    text = str(found)
    assert text.startswith(f"Item {item} for user {user}: {model.name} gives it a score of ")
    assert found.sentence in text
    first = found.effects[0]  # a model that has hardly learned may have nothing that drew
    drawn = f"{item} was drawn most by {first.item_id} (+{100 * first.share:.0f} %)"
    pushed = f"Nothing in the history drew {item}; {first.item_id} ({100 * first.share:.0f} %)"
    assert found.sentence.startswith(drawn if first.share > 0 else pushed)
    assert "above 0 the item drew" in text
    assert found.meaning in text
    spoken = json.loads(json.dumps(found.to_dict()))
    assert spoken["sentence"] == found.sentence
    assert spoken["effects"][0]["share"] == found.effects[0].share
    table = found.to_frame()
    assert table.columns == ["item_id", "share", "effect"]
    assert table["item_id"].to_list() == [entry.item_id for entry in found.effects]


@EXPLAINING
def test_somebody_new_is_explained_as_placed(name: str) -> None:
    model = fitted(name)
    ids = model.items_.series.to_list()
    history, item = ids[2:7], ids[9]
    found = model.explain_for(history, item, top=10)
    assert found.user_id is None
    assert "for this history" in str(found)
    listed = model.recommend_for(history, items=[item])["score"].item()
    assert found.score == pytest.approx(listed, abs=1e-5)
    if found.rest is not None:
        total = found.rest + sum(entry.effect for entry in found.effects)
        assert total == pytest.approx(listed, abs=1e-5), "terms add up to the score"
    assert model.explain_for(["odd", *history], item, 10, on_unknown="skip") == found
    with pytest.raises(UnknownIdError, match="'odd'"):
        model.explain_for(["odd", *history], item)
    alone = model.explain_for(history[:1], item)
    assert [entry.share for entry in alone.effects] in ([1.0], [-1.0], [])


@EXPLAINING
def test_items_that_people_have_are_explained_on_request(name: str) -> None:
    model = fitted(name)
    user, own = model.users_.series[USER], int(model.histories_[USER][0])
    item = model.items_.series[own]
    with pytest.raises(ParameterError, match=r"has item .* already.*include_seen=True"):
        model.explain(user, item)
    with pytest.raises(ParameterError, match="The history has item"):
        model.explain_for([item], item)
    assert model.explain(user, item, include_seen=True).item_id == item
    with pytest.raises(ParameterError, match="include_seen='no'"):
        model.explain(user, item, include_seen="no")
    with pytest.raises(ParameterError, match="top=0"):
        model.explain(user, item, 0)
    with pytest.raises(UnknownIdError, match="'nobody'"):
        model.explain("nobody", item)
    with pytest.raises(UnknownIdError, match="'nothing'"):
        model.explain(user, "nothing")


@EVERY_MODEL
def test_what_has_no_training_interactions_is_refused(name: str, make_log: object) -> None:
    log: Interactions = make_log([(1, 10), (1, 11), (2, 11), (2, 12), (9, 90)])
    model = make(name).fit(log.select(log.user_rows < 2))
    for user, item in ((9, 12), (1, 90)):
        with pytest.raises(UnknownIdError, match="has no training interactions"):
            model.explain(user, item)


@pytest.mark.parametrize("name", sorted(FLOOR))
def test_models_that_do_not_look_at_histories_say_so(name: str) -> None:
    model = fitted(name)
    user, item = model.users_.series[USER], model.items_.series[0]
    for ask in (
        lambda: model.explain(user, item, include_seen=True),
        lambda: model.explain_for([model.items_.series[1]], item),
    ):
        with pytest.raises(UnsupportedError, match=f"{name} cannot explain a score"):
            ask()


@EXPLAINING
def test_items_of_the_same_shelf_draw_more(
    name: str, tastes: tuple[Interactions, np.ndarray]
) -> None:
    """Users of `tastes` take mostly items of one shelf of 20, and a little of everything."""
    log, _ = tastes
    model = make(name).fit(log)
    gaps = []
    for user in range(60):
        own = np.arange(user % 6 * 20, user % 6 * 20 + 20)
        listed = model.recommend(user, k=1, items=own.tolist())["item_id"]
        found = model.explain(user, int(listed[0]), top=1000)
        shares = {entry.item_id: entry.share for entry in found.effects}
        past = model.items_.ids(model.histories_[user]).to_list()
        same = [shares.get(item, 0.0) for item in past if item in own]
        other = [shares.get(item, 0.0) for item in past if item not in own]
        if same and other:
            gaps.append(np.mean(same) - np.mean(other))
    assert len(gaps) > 30
    assert np.mean(gaps) > 4 * np.std(gaps) / np.sqrt(len(gaps))


@EXPLAINING
def test_small_logs_have_explanations_too(name: str, small_log: Interactions) -> None:
    model = make(name, **few_epochs(name, 2)).fit(small_log)
    users = np.flatnonzero(model.learned_.known.active)[[0, -1]]
    for user in model.users_.ids(users).to_list():
        for item in model.items_.ids(np.flatnonzero(model.rankable)[:3]).to_list():
            found = model.explain(user, item, include_seen=True)
            shares = [entry.share for entry in found.effects]
            assert np.isfinite([*shares, found.score]).all()
            total = np.abs(shares).sum() + found.others_drew - found.others_pushed
            assert total == pytest.approx(1) or (total == 0 and "Nothing" in found.sentence)
            assert str(item) in str(found)


def test_explanations_are_shown_in_notebooks() -> None:
    log = read_interactions(
        [("<ann>", "<tea>"), ("bob", "<tea>"), ("bob", "cup"), ("<ann>", "pot")]
    )
    found = ItemKNN().fit(log).explain("<ann>", "cup")
    html = found._repr_html_()
    assert "&lt;tea&gt;" in html
    assert "<tea>" not in html
    assert html.count("<tr>") == len(found.rows) + 1
