"""Costs and losses of triples whose neighbourhoods or translations are learned, in torch."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import torch
from torch.nn.functional import embedding_bag

from transcf.learning.forms import FORMS
from transcf.learning.neural.products import pair_products
from transcf.models.transcf.settings import TransCFSettings

Weights: TypeAlias = dict[str, torch.Tensor]

#: Stands for the logarithm of nothing; an infinity would turn gradients into NaN.
_LOW = -1e30


class Points(NamedTuple):
    """What users and items have: (n_users, dim), (n_items, dim) and (n_items, 1)."""

    users: torch.Tensor
    items: torch.Tensor
    bias: torch.Tensor


class Pairs(NamedTuple):
    """Rows of T users, of C items for each, and of their neighbours.

    Attributes:
        users: (T,).
        items: (T, C).
        history: (T, L) items of the users.
        no_history: (T, L) which of them are none.
        owners: (T, C, S) users of the items.
        no_owners: (T, C, S) which of them are none.
    """

    users: torch.Tensor
    items: torch.Tensor
    history: torch.Tensor
    no_history: torch.Tensor
    owners: torch.Tensor
    no_owners: torch.Tensor

    def where(self, chosen: torch.Tensor) -> Pairs:
        """Keep some of the items of each user, (T, K) places among the C."""
        wide = chosen[:, :, None].expand(-1, -1, self.owners.shape[2])
        return self._replace(
            items=self.items.gather(1, chosen),
            owners=self.owners.gather(1, wide),
            no_owners=self.no_owners.gather(1, wide),
        )


class Costs(NamedTuple):
    """The cost of each pair, (T, C), and its q and n, (T, C or 1, dim) and (T, C, dim)."""

    cost: torch.Tensor
    q: torch.Tensor
    n: torch.Tensor


def pair_costs(settings: TransCFSettings, points: Points, pairs: Pairs, weights: Weights) -> Costs:
    """Return -s(u, i), bias left out, of every user with each of their items."""
    a = points.users.index_select(0, pairs.users)
    b = _rows(points.items, pairs.items)
    if settings.neighbors == "attention":
        q = _attended_items(points, pairs, b, weights)
        n = _attended_users(points, pairs, a, weights)
    else:
        q = _mean(points.items, pairs.history, pairs.no_history)[:, None]
        n = _mean(points.users, pairs.owners.flatten(0, 1), pairs.no_owners.flatten(0, 1))
        n = n.view(*pairs.items.shape, -1)
    r = translations(q, n, weights)
    terms = FORMS[settings.form].cost(a[:, None], r, b, 1.0)  # as in `Form.moved_cost`
    return Costs(terms.sum(dim=-1), q, n)


def translations(q: torch.Tensor, n: torch.Tensor, weights: Weights) -> torch.Tensor:
    """Return r of q and n: their product and, where there is one, what the map adds."""
    if "map_out" not in weights:
        return q * n
    sums = q @ weights["map_q"] + n @ weights["map_n"] + weights["map_bias"]
    return q * n + torch.tanh(sums) @ weights["map_out"]


def _rows(table: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """Fetch rows; index_select has a quick backward pass, brackets have not."""
    return table.index_select(0, rows.flatten()).view(*rows.shape, -1)


def _shares(logits: torch.Tensor, absent: torch.Tensor) -> torch.Tensor:
    """Softmax over who is there, in the last axis; zeros where nobody is."""
    return torch.softmax(logits.masked_fill(absent, _LOW), dim=-1) * ~absent


def _mean(table: torch.Tensor, rows: torch.Tensor, absent: torch.Tensor) -> torch.Tensor:
    """Means of rows (n, S) of a table: (n, dim)."""
    shares = _shares(torch.zeros(rows.shape, dtype=table.dtype, device=table.device), absent)
    return embedding_bag(rows, table, per_sample_weights=shares, mode="sum")


def _attended_items(
    points: Points, pairs: Pairs, b: torch.Tensor, weights: Weights
) -> torch.Tensor:
    """Return q: a mean of the user's other items, weighed by how they go with each of `b`."""
    past = _rows(points.items, pairs.history)
    scale = weights["item_attention"] * weights["temperatures"][0].exp()
    logits = (b * scale) @ past.transpose(1, 2)
    absent = pairs.no_history[:, None] | (pairs.history[:, None] == pairs.items[:, :, None])
    return _shares(logits, absent) @ past


def _attended_users(
    points: Points, pairs: Pairs, a: torch.Tensor, weights: Weights
) -> torch.Tensor:
    """Return n: a mean of the item's other users, weighed by how they go with `a`."""
    scale = weights["user_attention"] * weights["temperatures"][1].exp()
    owners = pairs.owners.flatten(0, 1)
    asking = torch.arange(len(a), device=a.device).repeat_interleave(pairs.items.shape[1])
    logits = pair_products(a * scale, points.users, asking, owners)
    absent = pairs.no_owners | (pairs.owners == pairs.users[:, None, None])
    shares = _shares(logits, absent.flatten(0, 1))
    n = embedding_bag(owners, points.users, per_sample_weights=shares, mode="sum")
    return n.view(*pairs.items.shape, -1)


def gaps(settings: TransCFSettings, costs: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """Return margin - s(u, i) + s(u, j) from costs and biases (T, 1 + m), i first: (T, m)."""
    above = costs - bias
    return settings.margin + above[:, :1] - above[:, 1:]


def triple_losses(
    settings: TransCFSettings,
    points: Points,
    pairs: Pairs,
    weights: Weights,
    violations: torch.Tensor,
) -> torch.Tensor:
    """Return the loss of every triple, (T,).

    Args:
        settings: The model's.
        points: Vectors and biases.
        pairs: Users, each with an item of theirs and the hardest of the others.
        weights: Of attention and map.
        violations: (T,) weight of the hinge, by the number of violations.
    """
    found = pair_costs(settings, points, pairs, weights)
    bias = _rows(points.bias, pairs.items)[..., 0]
    hinge = violations * gaps(settings, found.cost, bias)[:, 0]
    spread = _spread(settings, points.users.index_select(0, pairs.users), found.q[:, 0])
    own = points.items.index_select(0, pairs.items[:, 0])
    spread = spread + _spread(settings, own, found.n[:, 0])
    loss = hinge + settings.reg_distance * found.cost[:, 0] + settings.reg_neighborhood * spread
    if settings.item_bias:
        loss = loss + settings.bias_decay * bias.square().sum(dim=1)
    return loss


def _spread(
    settings: TransCFSettings, vectors: torch.Tensor, neighborhoods: torch.Tensor
) -> torch.Tensor:
    """Squared distances of vectors from their neighbourhoods, 0 where there is nobody: (T,)."""
    has_some = (neighborhoods != 0).any(dim=1)
    around = neighborhoods if settings.tie_neighbors else neighborhoods.detach()
    return (vectors - around).square().sum(dim=1) * has_some
