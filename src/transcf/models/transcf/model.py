"""TransCF: collaborative translational metric learning, and its ablations."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np
import polars as pl

from transcf.answers import tables
from transcf.data.logs import as_interactions
from transcf.data.parted.log import PartedLog
from transcf.data.readers import linked, open_source
from transcf.data.side import category_table
from transcf.errors import ParameterError
from transcf.learning import Arrays, Fit, Known, Learned
from transcf.learning.forms import FORMS
from transcf.learning.growth import merged
from transcf.learning.neural.library import find_device
from transcf.learning.settings import rules_of
from transcf.learning.weights import EventWeights
from transcf.models.recommender import Recommender, made_from
from transcf.models.transcf.choosing import CHOICE, choose, keep
from transcf.models.transcf.exact import ExactSolver
from transcf.models.transcf.fast import FastSolver
from transcf.models.transcf.growing import grow
from transcf.models.transcf.learned import Translated
from transcf.models.transcf.mixing import Mixing
from transcf.models.transcf.mixture.batches import Events
from transcf.models.transcf.mixture.exact import ExactMixtureTraining
from transcf.models.transcf.mixture.learned import Mixture
from transcf.models.transcf.mixture.parted import PartedEvents
from transcf.models.transcf.mixture.training import MixtureTraining, popularity
from transcf.models.transcf.neural.learned import Extended
from transcf.models.transcf.neural.settings import (
    NEURAL_HAS_NO,
    PART_TITLES,
    parts_of,
    unused_parts,
)
from transcf.models.transcf.placing import place_items
from transcf.models.transcf.settings import (
    AUTO,
    MIXTURE,
    MIXTURE_HAS_NO,
    ONLY_MIXTURE_HAS,
    SIDE_TITLES,
    TITLES,
    SideSettings,
    TransCFSettings,
    own_defaults,
)
from transcf.models.transcf.side import Side


class TransCF(Recommender[TransCFSettings]):
    """Users are translated toward items by what their neighbourhoods say.

    By default (`form="mixture"`) a user is moved once for each item k of the history, and the
    nearest place counts. With user vectors a_u, item vectors b_i and history vectors p_k the score
    is

        s(u, i) = c_i + log sum_k w_k exp(-tau |p_k - b_i|^2 - beta |a_u - b_i|^2)

    with w_k = d^-rho for an item d places ago, where events have times (c_i only with `item_bias`).
    It is learned by a softmax over each event and `shared_negatives` drawn items, with Adam, and
    somebody new needs nothing but a history. With `debias` the softmax is over s(u, i) + debias
    log n_i for an item of n_i events, so that scores say what popularity does not. See
    docs/translations.md.

    The published form (`form="translation"`, all of whose settings `TransCF.paper` has) moves a
    user by a product of means: q_u is that of b over the user's items, n_i that of a over the
    item's users, and

        s(u, i) = -|a_u + q_u * n_i - b_i|^2 + c_i

    It and its relatives ("dot", "alt", "still", "emb", "swapped") are learned from triples of a
    user u, an item i of theirs and an item j that is not, by stochastic gradient descent on

        w max(0, margin - s(u, i) + s(u, j)) + reg_distance |a_u + q_u * n_i - b_i|^2
            + reg_neighborhood (|a_u - q_u|^2 + |b_i - n_i|^2) + bias_decay (c_i^2 + c_j^2)

    where j is the hardest of `negatives` drawn items and w grows with the estimated rank of i if
    `rank_weighting` is set (w = 1 otherwise). Somebody new gets q, the mean of their items'
    vectors, and a, the mean of b_i - q * n_i, where later items weigh more if the model learned
    from timestamps; `recommend_for(history, steps=10)` adds gradient steps on the training loss.

    `form="auto"` fits the mixture and the published form, keeps the one that validation data prefer
    and says so (`report_`, `settings_`); a refit keeps that choice. Each form has defaults of its
    own for epochs, rate, first vectors and recency, chosen on validation data (`make
    study-defaults`), and refuses what it does not look at. Items without training interactions are
    never drawn, scored or recommended; users without any count as unknown.

    With `friends` or `category` (not in the mixture), q_u is mixed with the mean of a over the
    user's friends, and n_i with the mean of b over the other items of its categories (a mean over
    the categories of the mean in each, so that each counts the same); those without friends or
    mates keep the usual mean, and so does somebody new. `add_items` places items that nobody has
    touched yet, in every form.

    Two parts can be learned where q and n occur (not with the forms alt, still and mixture), with
    torch (extra `neural`) and Adam, from the same loss. `neighbors="attention"` weighs neighbours:

        q_ui = sum_k softmax_k(t b_i . (w * b_k)) b_k
        n_ui = sum_v softmax_v(t' a_u . (w' * a_v)) a_v

    over the items k of u and the users v of i (in training without i and u themselves), with
    learned w, w', t and t'. `mapping="network"` takes r = q * n + W_2 tanh(W_1 [q; n] + e) for the
    translation. Both start as the model without them. Such scores are no inner products: ranking
    works out all items for each user, and takes its time where neighbourhoods are long.

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
    #: Names of the forms, and what makes them; the model's own name stands for its default.
    variants: ClassVar[dict[str, dict[str, Any]]] = {
        title.lower(): {} if form == MIXTURE else {"form": form} for form, title in TITLES.items()
    } | {
        f"transcf-{title}": {"form": "translation", name: value}
        for (name, value), title in (PART_TITLES | SIDE_TITLES).items()
    }
    asking: ClassVar[dict[str, str]] = {
        "transcf-friends": "links between users",
        "transcf-categories": "categories of items",
    }
    # Forms with the same cost learn and rank alike.
    twins: ClassVar[tuple[str, ...]] = tuple(
        form.title.lower()
        for form in FORMS.values()
        if form.rates is FORMS["translation"].rates and form.name != "translation"
    )
    __init__ = made_from(TransCFSettings)

    @property
    def revision(self) -> int:
        """The mixture has moved since."""
        return 1 if self.settings.form in FORMS else 2

    @property
    def name(self) -> str:
        """Name in tables: that of the form."""
        settings = self.settings_ if self.is_fitted else self.settings
        return settings.title

    def spreads(self) -> bool:
        """All forms do, unless they look at more than users and items."""
        settings = self.settings
        looks_aside = settings.parts or settings.friends or settings.category
        return settings.solver == "fast" and not looks_aside

    def _learn(self, fit: Fit) -> Learned:
        settings = self.settings
        if settings.form != AUTO:
            return self._learn_by(fit, settings)
        if fit.before is None:
            return choose(fit, settings, self._learn_by)
        fit.report |= {name: self.report_[name] for name in CHOICE if name in self.report_}
        return keep(fit, settings, self._learn_by, self.settings_.form)

    def _learn_by(self, fit: Fit, settings: TransCFSettings) -> Learned:
        if settings.form == MIXTURE:
            return self._learn_mixture(fit, settings)
        problem = fit.problem(settings)
        if settings.parts:
            device = find_device(self.name, settings.device)
            from transcf.models.transcf.neural.training import NeuralTraining

            neural = NeuralTraining(problem, settings, device)
            return fit.run(neural, settings, Extended.snapshot)
        if fit.options.cluster is not None:
            return fit.run_spread(FastSolver, problem, settings, self._restore)
        side = Side.of(fit.train, settings)
        has_events = fit.known.active, fit.known.item_counts > 0
        mixing = Mixing.of(side, settings, *has_events)
        solver = FastSolver if settings.solver == "fast" else ExactSolver

        def restore(arrays: Arrays, known: Known, settings: TransCFSettings) -> Learned:
            return self._restore(arrays | side.arrays(), known, settings)

        return fit.run(solver(problem, settings, mixing), settings, restore, side.arrays())

    def _learn_mixture(self, fit: Fit, settings: TransCFSettings) -> Learned:
        if isinstance(fit.log, PartedLog):
            events: Events = PartedEvents.of_log(fit.log, settings)
        else:
            events = Events.of(fit.log, settings)
        added = popularity(events, settings)

        def unbiased(arrays: Arrays, known: Known, settings: TransCFSettings) -> Learned:
            bias = arrays["item_bias"] - added
            return self._restore(arrays | {"item_bias": bias}, known, settings)

        if fit.options.cluster is not None:
            return fit.run_spread(MixtureTraining, events, settings, unbiased)
        kind = MixtureTraining if settings.solver == "fast" else ExactMixtureTraining
        return fit.run(kind(events, settings), settings, unbiased)

    def _restore(self, arrays: Arrays, known: Known, settings: TransCFSettings) -> Learned:
        if settings.form == MIXTURE:
            return Mixture.from_arrays(arrays, known, settings)
        kind = Extended if settings.parts else Translated
        return kind.from_arrays(arrays, known, settings)

    @classmethod
    def suited(cls, params: dict[str, Any]) -> dict[str, Any]:
        """Give what is learned in another way its own defaults."""
        return own_defaults(params) | params

    @classmethod
    def unseen(cls, params: dict[str, Any]) -> tuple[str, ...]:
        """Name what the form and the parts do not look at."""
        form, parts = params.get("form", TransCFSettings.form), parts_of(params)
        unused = unused_parts(parts) + (NEURAL_HAS_NO if parts else ())
        if form == AUTO or parts:
            unused += tuple(rules_of(SideSettings))
        if form != AUTO:
            unused += MIXTURE_HAS_NO if form == MIXTURE else ONLY_MIXTURE_HAS
        return unused

    def check_params(self) -> None:
        """Refuse also what the form does not look at."""
        super().check_params()
        form, parts = self.settings.form, self.settings.parts
        if parts and (form not in FORMS or not FORMS[form].has_neighborhoods):
            able = ", ".join(name for name, kind in FORMS.items() if kind.has_neighborhoods)
            raise ParameterError(
                f'TransCF with form="{form}" has no q and n: neighbors="attention" and '
                f'mapping="network" are for the forms {able}.'
            )
        with_parts = "".join(f" and {part}" for part in parts)
        for name in self.unseen(self.get_params()):
            value, usual = getattr(self.settings, name), getattr(self.settings_class, name)
            is_rounded = isinstance(usual, float) and math.isclose(value, usual, rel_tol=1e-6)
            if value != usual and not is_rounded:
                raise ParameterError(
                    f'TransCF with form="{form}"{with_parts} does not look at {name}, which is '
                    f"{value!r} here: leave it out, or take another form"
                    + (
                        ', such as "translation".'
                        if name in rules_of(SideSettings)
                        else " or other parts."
                    )
                )

    def set_params(self, **values: Any) -> Self:
        """Set hyper-parameters for the next `fit`; see `Recommender.set_params`.

        With a form or a part that is learned in another way, what has the default of the one before
        takes that of the new one, unless it is named here.
        """
        values = self.settings.with_defaults(values)
        return super().set_params(**values)

    def _points(self) -> Translated | Mixture:
        learned = self._own()
        assert isinstance(learned, Translated | Mixture), "TransCF learns nothing else"
        return learned

    # -- new people and things ---------------------------------------------------------------

    def partial_fit(self, log: Any, *, links: Any = None) -> Self:
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
            links: New links, as `read_interactions` takes them, also with people whom the model
                knows and the log does not have; those of the log are added as well.

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
        if links is not None:
            log = linked(log, links, merged(learned.known.users, log.users, "user"))
        if isinstance(learned, Mixture):
            return self._add(learned.grown(log))
        by_place = replace(
            self.settings_, recency=learned.recency, half_life=None, confidence="none"
        )
        weights = EventWeights.of(log, by_place).within_users
        if not len(weights):
            weights = np.ones(len(log), np.float32)
        if isinstance(learned, Extended):
            return self._add(learned.grown(log, weights))
        return self._add(grow(learned, log, weights))

    def add_items(self, categories: Any) -> Self:
        """Make new items known that nobody has touched yet, by their categories.

        They stand where the items of their categories do on average (each category counts the
        same), with the length and the bias that rare items have, and can be recommended from now
        on. Nothing else changes. Once somebody has them, `partial_fit` places them by their users.

        Args:
            categories: Table `item_id, category` in any form that `read_interactions` takes, with
                the new items and with items that the model knows, which it is to place them by. A
                model that was fitted with `category` above 0 has kept those.

        Raises:
            DataError: There is nothing new, or a new item has no category that others have.

        Example:
            >>> import polars as pl
            >>> from transcf import TransCF, synthesize
            >>> log = synthesize()
            >>> model = TransCF(dim=8, epochs=1).fit(log)
            >>> new = pl.DataFrame({"item_id": ["new"], "category": ["category 01"]})
            >>> "new" in model.add_items(pl.concat([log.categories, new])).items_.series
            True
        """
        self._check_growing()
        learned = self._points()
        table = category_table(open_source(categories), learned.known.items)
        if isinstance(learned, Mixture | Extended):
            return self._add(learned.with_items(table))
        return self._add(place_items(learned, table))

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
