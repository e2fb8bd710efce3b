"""Models trained epoch by epoch: early stopping, checkpoints, progress, history."""

from __future__ import annotations

import hashlib
import json
from abc import abstractmethod
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import polars as pl

from transcf import __version__
from transcf.data.interactions import Interactions
from transcf.models.base import Recommender
from transcf.models.rules import SEED, Number, Rule
from transcf.threads import use_threads
from transcf.training.loop import DivergedRunError, Outcome, Plan, train
from transcf.training.options import FitOptions
from transcf.training.trainable import Tensors, Trainable

if TYPE_CHECKING:
    from transcf.evaluation.validation import Validation

#: Rules of the parameters that every iterative model has.
ITERATION_RULES: dict[str, Rule] = {
    "epochs": Number(low=1, whole=True),
    "validate_every": Number(low=1, whole=True),
    "patience": Number(low=1, whole=True, optional=True),
    "random_state": SEED,
    "n_threads": Number(low=1, whole=True, optional=True),
}


class IterativeRecommender(Recommender):
    """A model that learns in epochs; a subclass says what an epoch is in `_trainable`.

    With validation data the best epoch is kept, otherwise the last one.

    Attributes (after `fit`):
        history_: Table `epoch, loss, metric, samples, seconds`.
        best_epoch_: The epoch that was kept.
    """

    #: Parameters to lower when training diverges.
    cure: ClassVar[str] = "learning_rate"
    #: Parameters that may differ between a run and its resumption.
    free_to_change: ClassVar[tuple[str, ...]] = ("epochs", "patience", "n_threads")

    epochs: int
    validate_every: int
    patience: int | None
    random_state: int
    n_threads: int | None
    history_: pl.DataFrame
    best_epoch_: int

    @abstractmethod
    def _trainable(self, train: Interactions) -> Trainable:
        """Return what the loop trains, ready for its first epoch."""

    def _adopt(self, tensors: Tensors) -> None:
        """Take over tensors of the trainable, during training or after it."""
        self._restore(tensors)

    def _learn(
        self,
        train_data: Interactions,
        validation: Interactions | Validation | None,
        options: FitOptions,
    ) -> None:
        with use_threads(self.n_threads):
            trainable = self._trainable(train_data)
            judge = validate = None
            if validation is not None:
                from transcf.evaluation.validation import as_validation

                judge = as_validation(train_data, validation)

                def validate() -> float:
                    self._adopt(trainable.tensors())
                    return judge(self)

            plan = Plan(
                title=self.name,
                epochs=self.epochs,
                validate_every=self.validate_every,
                patience=self.patience,
                fingerprint=self._fingerprint(train_data, judge),
                cure=self.cure,
            )
            try:
                told = self._told_the_present(trainable, options)
                outcome = train(trainable, plan, validate=validate, options=told)
            except DivergedRunError as error:
                if error.kept is None:
                    self._forget()
                else:
                    self._conclude(trainable, error.kept)
                raise
            self._conclude(trainable, outcome)

    def _conclude(self, trainable: Trainable, outcome: Outcome) -> None:
        """Take over what was kept of a run, and what there is to say about it."""
        self._adopt(trainable.tensors())
        self.history_ = outcome.history
        self.best_epoch_ = outcome.best_epoch
        self.report_ |= {"best_epoch": outcome.best_epoch, "ending": outcome.ending}

    def _told_the_present(self, trainable: Trainable, options: FitOptions) -> FitOptions:
        """Let whoever listens to epochs find the model as it is then, validated or not."""
        listener = options.on_epoch
        if listener is None:
            return options

        def tell(epoch: int) -> None:
            self._adopt(trainable.tensors())
            listener(epoch)

        return replace(options, on_epoch=tell)

    def _fingerprint(self, data: Interactions, judge: Validation | None) -> str:
        """Name all that a run depends on; a checkpoint of another run is refused."""
        free = self.free_to_change
        settings = {name: value for name, value in self.get_params().items() if name not in free}
        rules = [__version__, settings, None if judge is None else judge.fingerprint]
        # NumPy numbers are allowed, and mean the same as Python's.
        text = json.dumps(rules, sort_keys=True, default=np.generic.item)
        digest = hashlib.sha256(text.encode())
        digest.update(data.by_user.indptr.tobytes())
        digest.update(data.by_user.indices.tobytes())
        if data.timestamps is not None:
            digest.update(data.timestamps.tobytes())
        return f"{type(self).__name__}-{digest.hexdigest()}"
