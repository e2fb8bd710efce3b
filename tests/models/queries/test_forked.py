"""A model that was loaded before a fork answers after it, as with `gunicorn --preload`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from transcf import create, read_interactions, synthesize

PROGRAM = """
import os, sys
import numpy as np
import polars as pl
from transcf import load
from transcf.errors import UnknownIdError, UnsupportedError

model = load(sys.argv[1])
pl.DataFrame({"a": [1, 1]}).group_by("a").len()  # the pool of threads is running now
users, items = model.users_.series.to_list(), model.items_.series.to_list()
unknown = 10**9 if isinstance(users[0], int) else "nobody"

def ask():
    yield model.recommend(users[0], 3)
    yield model.recommend(None, 3)
    yield model.recommend([*users[:5], unknown], 3, on_unknown="skip")
    yield model.recommend(np.array(users[:5]), 3, items={users[0]: items[:4]}, exclude=items[:2])
    yield model.recommend_for(items[:3], 3)
    yield model.score([(users[0], items[0]), (users[1], items[1])])
    yield model.score(pl.DataFrame({"user": users[:2], "item": items[:2]}))
    yield model.score([(users[0], items[0]), (unknown, items[0])], on_unknown="skip")
    if model.name != "popularity":
        yield model.similar_items(items[0], 3)
        yield str(model.explain(users[0], items[0], include_seen=True))
    if model.name == "TransCF":
        yield model.similar_users(users[0], 3)

def refused(error, act):
    try:
        act()
    except error as sentence:
        return str(sentence)
    raise AssertionError("nothing was refused")

expected = list(ask())
child = os.fork()
if child == 0:
    try:
        for found, before in zip(ask(), expected, strict=True):
            assert found == before if isinstance(found, str) else found.equals(before)
        assert "is unknown" in refused(UnknownIdError, lambda: model.recommend(unknown, 3))
        assert "is unknown" in refused(UnknownIdError, lambda: model.score([(unknown, items[0])]))
        # What needs the threads of polars is refused rather than waited for.
        for act in (
            lambda: load(sys.argv[1]),
            lambda: model.save(sys.argv[1] + "-again"),
            lambda: model.recommend_all(sys.argv[1] + ".parquet", 3),
            lambda: model.score(sys.argv[1] + ".csv"),
        ):
            assert "forked" in refused(UnsupportedError, act)
        os._exit(0)
    finally:
        sys.excepthook(*sys.exc_info())
        os._exit(1)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.parametrize("name", ["popularity", "ease", "transcf-mixture"])
@pytest.mark.parametrize("texts", [True, False], ids=["text", "integers"])
def test_questions_after_a_fork(tmp_path: Path, name: str, texts: bool) -> None:
    log = synthesize(users=40, items=30, interactions=400, seed=1)
    if not texts:
        rows = zip(log.user_rows.tolist(), log.item_rows.tolist(), strict=True)
        log = read_interactions(list(rows))
    quick = {"dim": 4, "epochs": 1} if name == "transcf-mixture" else {}
    folder = create(name, **quick).fit(log).save(tmp_path / "model")
    (tmp_path / "model.csv").write_text("user,item\n1,2\n")
    program = [sys.executable, "-W", "ignore", "-c", PROGRAM, str(folder)]
    # A process of its own group, so that a child that hangs ends with it.
    with subprocess.Popen(program, start_new_session=True) as process:
        try:
            assert process.wait(timeout=60) == 0
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            pytest.fail("a model does not answer in a forked child")
