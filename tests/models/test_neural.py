"""What the neural models share: torch left as it was, draws, minibatches, resumption."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch

from transcf.data import synthesize
from transcf.data.csr import Csr
from transcf.data.interactions import Interactions
from transcf.errors import MissingExtraError, ParameterError
from transcf.models.event_weights import EVEN
from transcf.models.fitted import FittedScorer
from transcf.models.registry import available, create, model_class
from transcf.models.torch.common import UnseenItems, generator
from transcf.models.torch.networks import Network
from transcf.models.torch.neumf import NeuMFSettings
from transcf.models.training import Epoch, FitOptions

NEURAL = {
    "cdae": {"dim": 6, "batch_size": 32, "dropout": 0.3, "regularization": 1e-3},
    "neumf": {"dim": 4, "batch_size": 256, "pretrain": 3, "regularization": 1e-3},
    "lightgcn": {"dim": 6, "batch_size": 256},
    "sasrec": {"dim": 6, "heads": 2, "batch_size": 64, "max_length": 5},
}
EVERY_NEURAL = pytest.mark.parametrize("name", NEURAL)


@pytest.fixture(scope="module")
def log() -> Interactions:
    return synthesize(users=60, items=40, interactions=600, seed=4)


# -- torch is optional, and left alone ---------------------------------------------------------


@EVERY_NEURAL
def test_without_torch_fit_names_the_extra(
    name: str, log: Interactions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)  # importing it now fails
    model = create(name)
    with pytest.raises(MissingExtraError, match=r"pip install 'transcf\[neural\]'"):
        model.fit(log)
    assert not model.is_fitted
    assert name in available()


WITHOUT_TORCH = """
import sys
from pathlib import Path
sys.modules["torch"] = None
import transcf
for folder in sorted(Path(sys.argv[1]).iterdir()):
    model = transcf.load(folder)
    model.recommend().write_parquet(folder.with_suffix(".parquet"))
    model.recommend_for(model.items_.series[:3].to_list())
    model.similar_items(model.items_.series[0])
    model.save(folder.with_suffix(".copy"))
"""


def test_saved_models_serve_without_torch(log: Interactions, tmp_path: Path) -> None:
    models = {name: create(name, epochs=2, **NEURAL[name]).fit(log) for name in NEURAL}
    for name, model in models.items():
        model.save(tmp_path / name)
    subprocess.run([sys.executable, "-c", WITHOUT_TORCH, str(tmp_path)], check=True)
    for name, model in models.items():
        assert pl.read_parquet(tmp_path / f"{name}.parquet").equals(model.recommend())


def test_the_library_and_its_command_line_start_without_torch() -> None:
    code = (
        "import sys, transcf; from transcf.models.registry import model_class, available;"
        "[model_class(name)() for name in available()];"
        "from typer.testing import CliRunner; from transcf.cli.app import app;"
        "assert CliRunner().invoke(app, ['--help']).exit_code == 0;"
        "assert CliRunner().invoke(app, ['models']).exit_code == 0;"
        "assert 'torch' not in sys.modules"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@EVERY_NEURAL
def test_a_missing_device_is_an_error(name: str, log: Interactions) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a CUDA device")
    with pytest.raises(ParameterError, match="device='cuda' is not there"):
        create(name, device="cuda").fit(log)


@EVERY_NEURAL
def test_fit_leaves_torch_as_it_was(name: str, log: Interactions) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    torch.manual_seed(7)
    drawn = torch.get_rng_state()
    try:
        expected = create(name, epochs=2, **NEURAL[name]).fit(log)
        assert torch.get_num_threads() == 2
        torch.set_num_threads(3)
        torch.set_default_dtype(torch.float64)
        with torch.no_grad():
            again = create(name, epochs=2, **NEURAL[name]).fit(log)
            assert not torch.is_grad_enabled()
        assert torch.get_default_dtype() == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)
        torch.set_num_threads(before)
    assert torch.equal(torch.get_rng_state(), drawn)
    assert not torch.are_deterministic_algorithms_enabled()
    assert again.recommend().equals(expected.recommend())


# Where a rate falls over the epochs, a run has to know them; the conformance suite resumes those.
@pytest.mark.parametrize(
    "name", [n for n in NEURAL if "epochs" in model_class(n)._settings_class._resumable]
)
@pytest.mark.parametrize("stop", [1, 3, 4])
def test_a_resumed_run_ends_with_the_same_bits(
    name: str, stop: int, log: Interactions, tmp_path: Path
) -> None:
    whole = create(name, epochs=6, **NEURAL[name]).fit(log)
    options = FitOptions(checkpoint=tmp_path / "run", resume=True)
    create(name, epochs=stop, **NEURAL[name]).fit(log, options=options)
    resumed = create(name, epochs=6, **NEURAL[name]).fit(log, options=options)
    assert len(resumed.history_) == 6
    for key, value in whole.learned_.arrays().items():
        assert resumed.learned_.arrays()[key].tobytes() == value.tobytes(), key


@EVERY_NEURAL
def test_a_snapshot_stays_as_it_was_while_training_goes_on(name: str, log: Interactions) -> None:
    kept: list[tuple[FittedScorer, dict[str, bytes]]] = []

    def keep(epoch: Epoch[FittedScorer]) -> None:
        learned = epoch.snapshot
        kept.append((learned, {key: array.tobytes() for key, array in learned.arrays().items()}))

    create(name, epochs=5, **NEURAL[name]).fit(log, options=FitOptions(on_epoch=keep))
    for learned, bits in kept:
        assert {key: array.tobytes() for key, array in learned.arrays().items()} == bits
    assert len({bits["item_vectors"] for _, bits in kept}) == 5


# -- draws -------------------------------------------------------------------------------------


def test_draws_are_uniform_over_trained_items_that_the_user_lacks() -> None:
    rng = np.random.default_rng(0)
    wanted = [[1, 2, 7], [0], [0, 1, 2, 3, 5, 7], [3, 5]]  # items 4 and 6 have no interactions
    indptr = np.cumsum([0, *map(len, wanted)])
    unseen = UnseenItems(Csr(indptr.astype(np.int64), np.concatenate(wanted).astype(np.int32), 8))
    trained = {0, 1, 2, 3, 5, 7}
    assert unseen.lacking.tolist() == [3, 5, 0, 4]
    for user in (0, 1, 3):
        drawn = unseen.draw(np.full(4000, user, np.int32), 3, rng)
        assert drawn.shape == (4000, 3)
        items, counts = np.unique(drawn, return_counts=True)
        assert set(items.tolist()) == trained - set(wanted[user])
        share = 1 / len(items)
        error = np.sqrt(12000 * share * (1 - share))
        assert np.abs(counts - 12000 * share).max() < 5 * error


def test_nobody_ever_draws_an_own_item(log: Interactions) -> None:
    unseen = UnseenItems(log.by_user)
    users = np.repeat(np.arange(log.n_users, dtype=np.int32), 50)
    users = users[unseen.lacking[users] > 0]
    drawn = unseen.draw(users, 8, generator(1, 2, 3))
    own = set(zip(log.user_rows.tolist(), log.item_rows.tolist(), strict=True))
    assert not own & set(zip(np.repeat(users, 8).tolist(), drawn.ravel().tolist(), strict=True))


def test_generators_depend_on_their_whole_name() -> None:
    names = [(0, 0, 0), (0, 0, 1), (0, 1, 0), (1, 0, 0), (2**63 - 1, 5, 2)]
    first = {generator(*name).random() for name in names}
    assert len(first) == len(names)
    assert generator(*names[-1]).random() in first


def test_an_epoch_has_every_interaction_with_its_weight_and_negatives(log: Interactions) -> None:
    table = np.random.default_rng(0).random((log.n_users, log.n_items)).astype(np.float32)
    weights = table[log.user_rows, log.item_rows]
    settings = NeuMFSettings(dim=2, negatives=3, batch_size=100)
    batches = list(Network(log.by_user, weights, settings).batches(2))
    assert max(len(users) for users, _, _ in batches) == 100
    users, items, found = (np.concatenate(parts) for parts in zip(*batches, strict=True))
    own = set(zip(log.user_rows.tolist(), log.item_rows.tolist(), strict=True))
    assert sorted(zip(users.tolist(), items[:, 0].tolist(), strict=True)) == sorted(own)
    np.testing.assert_array_equal(found, table[users, items[:, 0]])
    drawn = zip(np.repeat(users, 3).tolist(), items[:, 1:].ravel().tolist(), strict=True)
    assert not own & set(drawn)
    plain = list(Network(log.by_user, EVEN, settings).batches(2))
    np.testing.assert_array_equal(np.concatenate([part[1] for part in plain]), items)
    assert all((part[2] == 1).all() for part in plain)
