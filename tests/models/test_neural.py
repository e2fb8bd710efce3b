"""What the neural models share: torch left as it was, draws, Adam by rows, resumption."""

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
from transcf.models.torch.draws import SampledInteractions, UnseenItems, generator
from transcf.models.torch.products import pair_products
from transcf.models.torch.rows import DenseParameters, RowTable, distinct, pull
from transcf.models.training import Epoch, FitOptions

CPU = torch.device("cpu")
NEURAL = {
    "cdae": {"dim": 6, "batch_size": 32, "dropout": 0.3, "regularization": 1e-3},
    "neumf": {"dim": 4, "batch_size": 256, "pretrain": 3, "regularization": 1e-3},
    "lightgcn": {"dim": 6, "batch_size": 256},
    "transcf-attention": {"dim": 6, "max_neighbors": 5, "batch_size": 256},
    "transcf-map": {"dim": 6, "hidden": 3, "batch_size": 256},
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
@pytest.mark.parametrize("name", [n for n in NEURAL if "epochs" in model_class(n).resumable_params])
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


# -- Adam --------------------------------------------------------------------------------------


def test_every_row_is_trained_as_by_adam_alone() -> None:
    rng = np.random.default_rng(3)
    start = rng.normal(size=(5, 4))
    table = RowTable(start, 0.05, CPU)
    alone = [torch.tensor(row, requires_grad=True) for row in start]
    optimizers = [torch.optim.Adam([row], lr=0.05) for row in alone]
    for _ in range(40):
        rows = np.flatnonzero(rng.random(5) < [0.0, 0.1, 0.5, 0.9, 1.0])
        gradient = rng.normal(size=(len(rows), 4))
        table.step(table.take(torch.from_numpy(rows)), torch.from_numpy(gradient))
        for row, own in zip(rows, gradient, strict=True):
            alone[row].grad = torch.from_numpy(own)
            optimizers[row].step()
    expected = np.stack([row.detach().numpy() for row in alone])
    np.testing.assert_allclose(table.values, expected, rtol=1e-10)
    np.testing.assert_array_equal(table.values[0], start[0])


def test_moments_are_kept_and_put_back() -> None:
    rng = np.random.default_rng(4)
    start, rows = rng.normal(size=(3, 2)).astype(np.float32), torch.tensor([0, 2])

    def made() -> tuple[RowTable, DenseParameters]:
        return RowTable(start, 0.1, CPU), DenseParameters({"w": start[0].copy()}, 0.1, CPU)

    def train(table: RowTable, dense: DenseParameters, seed: int) -> None:
        gradient = torch.randn(2, 2, generator=torch.Generator().manual_seed(seed))
        table.step(table.take(rows), gradient)
        dense.step({"w": gradient[0]})

    table, dense = made()
    train(table, dense, 0)
    kept = {n: t.copy() for n, t in (table.tensors("t") | dense.tensors()).items()}
    for tensor in kept.values():
        tensor.flags.writeable = False  # as those of a file
    other_table, other_dense = made()
    other_table.load("t", kept)
    other_dense.load(kept)
    for seed in (1, 2):
        train(table, dense, seed)
        train(other_table, other_dense, seed)
    assert other_table.values.tobytes() == table.values.tobytes()
    assert other_dense.arrays()["w"].tobytes() == dense.arrays()["w"].tobytes()


def test_the_pull_is_the_gradient_of_the_squares() -> None:
    table = RowTable(np.random.default_rng(5).normal(size=(6, 3)), 0.1, CPU)
    rows, places, uses = distinct(torch.tensor([4, 1, 4, 4, 0]))
    taken = table.take(rows)
    squares = 0.7 * taken.values[places].square().sum()
    (expected,) = torch.autograd.grad(squares, taken.values)
    torch.testing.assert_close(pull(torch.zeros_like(expected), taken, uses, 0.7), expected)


def test_pair_products_and_their_gradients() -> None:
    make = torch.Generator().manual_seed(0)
    left = torch.randn(7, 3, dtype=torch.float64, generator=make, requires_grad=True)
    right = torch.randn(9, 4, dtype=torch.float64, generator=make, requires_grad=True)
    of_left = torch.randint(7, (3000,), generator=make)  # more than one piece
    of_right = torch.randint(9, (3000, 2), generator=make)
    products = pair_products(left, right[:, :3], of_left, of_right)
    expected = (left[of_left][:, None] * right[of_right][..., :3]).sum(dim=2)
    torch.testing.assert_close(products, expected)
    weights = torch.randn(3000, 2, dtype=torch.float64, generator=make)
    found = torch.autograd.grad((products * weights).sum(), [left, right])
    wanted = torch.autograd.grad((expected * weights).sum(), [left, right])
    torch.testing.assert_close(found, wanted)


def test_weights_stay_with_their_interactions(log: Interactions) -> None:
    table = np.random.default_rng(0).random((log.n_users, log.n_items)).astype(np.float32)
    weights = table[log.user_rows, log.item_rows]
    shown = SampledInteractions(log.by_user, weights).draw(seed=3, epoch=2, negatives=2)
    np.testing.assert_array_equal(shown.weights, table[shown.users, shown.items[:, 0]])
    plain = SampledInteractions(log.by_user, EVEN).draw(seed=3, epoch=2, negatives=2)
    np.testing.assert_array_equal(shown.users, plain.users)
    np.testing.assert_array_equal(shown.items, plain.items)
    assert not len(plain.weights)
