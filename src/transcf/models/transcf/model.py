"""TransCF: collaborative translational metric learning, and its ablations."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np
import polars as pl

from transcf.answers import tables
from transcf.data.logs import as_interactions
from transcf.errors import ParameterError
from transcf.learning import Arrays, Fit, Known, Learned
from transcf.learning.forms import FORMS
from transcf.learning.triples import Problem
from transcf.learning.weights import EventWeights
from transcf.models.recommender import Recommender, made_from
from transcf.models.transcf.exact import ExactSolver
from transcf.models.transcf.fast import FastSolver
from transcf.models.transcf.growing import grow
from transcf.models.transcf.learned import Translated
from transcf.models.transcf.mixture.learned import Mixture
from transcf.models.transcf.mixture.training import MixtureTraining
from transcf.models.transcf.settings import (
    MIXTURE,
    MIXTURE_DEFAULTS,
    MIXTURE_HAS_NO,
    ONLY_MIXTURE_HAS,
    TITLES,
    TransCFSettings,
)


class TransCF(Recommender[TransCFSettings]):
    """Users are translated toward items by a vector made from both neighbourhoods.

    With user vectors a_u, item vectors b_i, q_u the mean of b over the user's items and n_i the
    mean of a over the item's users, the score is

        s(u, i) = -|a_u + q_u * n_i - b_i|^2 + c_i

    (c_i only with `item_bias`). Learned from triples of a user u, an item i of theirs and an
    item j that is not, by stochastic gradient descent on

        w max(0, margin - s(u, i) + s(u, j)) + reg_distance |a_u + q_u * n_i - b_i|^2
            + reg_neighborhood (|a_u - q_u|^2 + |b_i - n_i|^2) + bias_decay (c_i^2 + c_j^2)

    where j is the hardest of `negatives` drawn items and w grows with the estimated rank of i
    if `rank_weighting` is set (w = 1 otherwise). Items without training interactions are never
    drawn, scored or recommended; users without any count as unknown.

    Somebody new gets q, the mean of their items' vectors, and a, the mean of b_i - q * n_i, where
    later items weigh more if the model learned from timestamps, as in training. How much quality
    that keeps depends on the data: on MovieTweetings N@10 is 98 % of that of users trained normally
    (`benchmarks/fold_in.py`), on MovieLens latest-small, with its long histories, 83 %, and 91 %
    after `recommend_for(history, steps=10)`: gradient steps on the training loss, items fixed.

    The defaults were chosen on validation data in full ranking (`make study-defaults`);
    `TransCF.paper` has the settings of the publication.

    `form="mixture"` moves a user once for each item k of the history, and the nearest place counts:

        s(u, i) = c_i + log sum_k w_k exp(-tau |p_k - b_i|^2 - beta |a_u - b_i|^2)

    with w_k = d^-rho for an item d places ago, where events have times. It is learned by a softmax
    over each event and shared negatives, with Adam; of the other parameters it uses `dim`,
    `epochs`, `learning_rate`, `decay`, `init_scale`, `bound`, `item_bias` and the weights of
    events. See docs/translations.md.

    Attributes (after `fit`):
        user_vectors_: a, (n_users, dim) float32.
        item_vectors_: b, (n_items, dim) float32.
        user_neighborhoods_: q, (n_users, dim) float32; not in the mixture.
        item_neighborhoods_: n, (n_items, dim) float32; not in the mixture.
        history_vectors_: p, (n_items, dim) float32; in the mixture, unless `tied`.
        item_bias_: c, (n_items,) float32.

    References:
        Park, Kim, Xie, Yu: Collaborative Translational Metric Learning. ICDM 2018.

    Example:
        >>> from transcf import TransCF, synthesize
        >>> log = synthesize(users=200, items=80, interactions=3000, seed=0)
        >>> model = TransCF(dim=16, epochs=5).fit(log)
        >>> model.recommend(log.users.series[0], k=3).shape
        (3, 4)
    """

    remedy: ClassVar[str] = (
        "learning_rate (or margin, reg_distance, reg_neighborhood; in the mixture tau, beta)"
    )
    # The decay of the learning rate depends on the number of epochs.
    free_to_change: ClassVar[tuple[str, ...]] = ("patience",)
    #: Names of the ablations, and what makes them.
    variants: ClassVar[dict[str, dict[str, Any]]] = {
        title.lower(): {"form": form} for form, title in TITLES.items()
    }
    # Forms with the same cost learn and rank alike.
    twins: ClassVar[tuple[str, ...]] = tuple(
        form.title.lower()
        for form in FORMS.values()
        if form.rates is FORMS["translation"].rates and form.name != "translation"
    )
    __init__ = made_from(TransCFSettings)

    @property
    def name(self) -> str:
        """Name in tables: that of the form."""
        settings = self.settings_ if self.is_fitted else self.settings
        return TITLES.get(settings.form, "TransCF")

    def _learn(self, fit: Fit) -> Learned:
        settings = self.settings
        if settings.form == MIXTURE:
            training = MixtureTraining(fit.train, settings, fit.beneath)
            return fit.run(training, settings, self._restore)
        problem = Problem.of(fit.train, settings)
        solver = FastSolver if settings.solver == "fast" else ExactSolver
        return fit.run(solver(problem, settings), settings, self._restore)

    def _restore(self, arrays: Arrays, known: Known, settings: TransCFSettings) -> Learned:
        kind = Mixture if settings.form == MIXTURE else Translated
        return kind.from_arrays(arrays, known, settings)

    @classmethod
    def suited(cls, params: dict[str, Any]) -> dict[str, Any]:
        """Give the mixture its own defaults."""
        return MIXTURE_DEFAULTS | params if params.get("form") == MIXTURE else params

    def check_params(self) -> None:
        """Refuse also what the form does not look at."""
        super().check_params()
        form = self.settings.form
        unused = MIXTURE_HAS_NO if form == MIXTURE else ONLY_MIXTURE_HAS
        for name in unused:
            value, usual = getattr(self.settings, name), getattr(self.settings_class, name)
            is_rounded = isinstance(usual, float) and math.isclose(value, usual, rel_tol=1e-6)
            if value != usual and not is_rounded:
                raise ParameterError(
                    f'TransCF with form="{form}" does not look at {name}, which is {value!r} here: '
                    "leave it out, or take another form."
                )

    def set_params(self, **values: Any) -> Self:
        """Set hyper-parameters for the next `fit`; see `Recommender.set_params`.

        With a form that is learned in another way, what was left at the defaults of the one before
        takes those of the new one.
        """
        form = self.settings.form
        now, then = (which == MIXTURE for which in (form, values.get("form", form)))
        if now != then:
            plain = {name: getattr(self.settings_class, name) for name in MIXTURE_DEFAULTS}
            old, new = (MIXTURE_DEFAULTS, plain) if now else (plain, MIXTURE_DEFAULTS)
            values = {n: new[n] for n in old if getattr(self.settings, n) == old[n]} | values
        return super().set_params(**values)

    def _points(self) -> Translated | Mixture:
        learned = self._own()
        assert isinstance(learned, Translated | Mixture), "TransCF learns nothing else"
        return learned

    # -- new people and things ---------------------------------------------------------------

    def partial_fit(self, log: Any) -> Self:
        """Add interactions without training again.

        New users and items are placed by their neighbours in closed form: users as in
        `recommend_for`, items toward the mean of a_u + q_u * n_i over their first users (of a_u in
        the mixture), with the length and the bias that trained items of their popularity have.
        Trained vectors and biases stay as they are under their ids, while all neighbourhood means
        are renewed. Rows are in the order of ids, so row numbers, and the order of `user_vectors_`
        and its like, do change. Nothing is trained here, and it shows (`benchmarks/fold_in.py`):
        new items come out too low on some data and too high on other, so fit again soon.

        Args:
            log: New interactions, with old or new ids, in any form that `fit` takes.

        Raises:
            DataError: Somebody is not connected to the training data, not even through others.

        Example:
            >>> import polars as pl
            >>> from transcf import TransCF, read_interactions, synthesize
            >>> model = TransCF(dim=8, epochs=1).fit(synthesize())
            >>> today = read_interactions(pl.DataFrame({"user": ["new"], "item": ["i001"]}))
            >>> model.partial_fit(today).recommend("new", k=3).shape
            (3, 4)
        """
        self._check_growing()
        log, learned = as_interactions(log), self._points()
        if isinstance(learned, Mixture):
            return self._add(learned.grown(log))
        by_place = replace(
            self.settings_, recency=learned.recency, half_life=None, confidence="none"
        )
        weights = EventWeights.of(log, by_place).within_users
        if not len(weights):
            weights = np.ones(len(log), np.float32)
        return self._add(grow(learned, log, weights))

    # -- translations ------------------------------------------------------------------------

    def translation(self, pairs: Any) -> pl.DataFrame:
        """Return the translation vector of each pair.

        Args:
            pairs: Table with user and item columns, in any form that `read_interactions` takes.

        Returns:
            Table `user_id, item_id, translation` (a list of `dim` numbers), in the given order.
        """
        learned = self._points()
        user_ids, item_ids, users, items = tables.pair_rows(learned, pairs)
        vectors = learned.translations(users, items)
        kind = pl.Array(pl.Float32, vectors.shape[1])
        columns = {"user_id": user_ids, "item_id": item_ids}
        return pl.DataFrame(columns | {"translation": pl.Series(vectors, dtype=kind)})
