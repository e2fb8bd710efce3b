"""Seconds per epoch of RecBole's CDAE or NeuMF; run by RecBole's own interpreter.

RecBole 1.2.1 wants older libraries than this project, so it lives in an environment of its own:

    make .venv-recbole
    .venv-recbole/bin/python benchmarks/_recbole_peer.py NeuMF train.inter --batch 2048 --dim 16

The file is one of RecBole's atomic files (`user_id:token<TAB>item_id:token`, then the pairs); all
of it is trained on. What is timed is RecBole's `Trainer._train_epoch`: its loader with its
negative sampling, forward and backward passes and Adam. The first epoch is not counted. Prints
one line of JSON: `{"model", "seconds", "epochs", "interactions", "threads", "recbole"}`.
"""

import argparse
import json
import logging
import os
import shutil
import statistics
import sys
import tempfile
import time
import warnings
from pathlib import Path


def settings_of(model: str, options: dict[str, float]) -> dict[str, object]:
    """Translate sizes into RecBole's words; the NeuMF tower halves down to `dim`."""
    dim, layers = int(options["dim"]), int(options["layers"])
    if model == "NeuMF":
        widths = [dim * 2**layer for layer in reversed(range(layers))]
        own: dict[str, object] = {
            "mf_embedding_size": dim,
            "mlp_embedding_size": widths[0],
            "mlp_hidden_size": widths,
            "dropout_prob": 0.0,
        }
        sampling: dict[str, object] | None = {
            "distribution": "uniform",
            "sample_num": int(options["negatives"]),
        }
    else:
        own = {
            "embedding_size": dim,
            "hid_activation": "sigmoid",
            "corruption_ratio": options["dropout"],
            "reg_weight_2": 0.0,
        }
        sampling = None  # its loss is over all items, and takes users rather than pairs
    return {
        **own,
        "learner": "adam",
        "learning_rate": options["rate"],
        "train_batch_size": int(options["batch"]),
        "train_neg_sample_args": sampling,
        "use_gpu": False,
        "show_progress": False,
        "save_dataset": False,
        "load_col": {"inter": ["user_id", "item_id"]},
    }


def seconds_of_epochs(
    model: str, file: Path, options: dict[str, float], epochs: int
) -> dict[str, object]:
    """Train on a file and time every epoch but the first."""
    import numpy as np
    import recbole
    import torch
    from recbole.config import Config
    from recbole.data import create_dataset
    from recbole.data.utils import create_samplers, get_dataloader
    from recbole.utils import get_model, get_trainer, init_seed

    np.seterr(all="ignore")
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "peer"
        place.mkdir()
        shutil.copy(file, place / "peer.inter")
        os.chdir(folder)  # RecBole leaves logs where it is run
        given = settings_of(model, options) | {"data_path": folder, "checkpoint_dir": folder}
        config = Config(model=model, dataset="peer", config_dict=given)
        init_seed(0, reproducibility=True)
        dataset = create_dataset(config)
        dataset._change_feat_format()  # as `build` does, which would also split
        parts = [
            dataset,
            dataset.copy(dataset.inter_feat[:1]),
            dataset.copy(dataset.inter_feat[:1]),
        ]
        sampler, _, _ = create_samplers(config, dataset, parts)
        loader = get_dataloader(config, "train")(config, dataset, sampler, shuffle=True)
        network = get_model(model)(config, dataset)
        trainer = get_trainer(config["MODEL_TYPE"], model)(config, network)
        seconds = []
        for epoch in range(epochs + 1):
            started = time.perf_counter()
            trainer._train_epoch(loader, epoch, show_progress=False)
            seconds.append(time.perf_counter() - started)
        return {
            "model": model,
            "seconds": statistics.median(seconds[1:]),
            "epochs": epochs,
            "interactions": len(dataset.inter_feat),
            "threads": torch.get_num_threads(),
            "recbole": recbole.__version__,
        }


def main() -> None:
    """Read the command line, train, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("model", choices=("CDAE", "NeuMF"))
    parser.add_argument("file", type=Path)
    parser.add_argument("--epochs", type=int, default=3, help="epochs to time, after a first one")
    for name, kind, value in (
        ("dim", int, 64),
        ("layers", int, 3),
        ("negatives", int, 4),
        ("batch", int, 2048),
        ("dropout", float, 0.5),
        ("rate", float, 0.001),
    ):
        parser.add_argument(f"--{name}", type=kind, default=value)
    given = vars(parser.parse_args())
    model, file, epochs = given.pop("model"), given.pop("file"), given.pop("epochs")
    sys.argv = sys.argv[:1]  # RecBole reads the command line, too
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    print(json.dumps(seconds_of_epochs(model, file, given, epochs)))


if __name__ == "__main__":
    main()
