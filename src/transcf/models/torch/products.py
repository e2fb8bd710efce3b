"""Inner products of many pairs of few vectors, without holding a vector for every pair."""

from __future__ import annotations

from typing import Any

import torch

#: Pairs whose vectors are fetched at once: few enough to stay in the cache.
_PAIRS_AT_ONCE = 2048


class PairProducts(torch.autograd.Function):
    """`left[left_rows[n]] . right[right_rows[n, k]]` for all n and k.

    Fetching all vectors first would take (n, k, d) of memory several times over, and most of the
    time; here as much is fetched as the cache holds, once for the products and once for the
    gradients.
    """

    @staticmethod
    def forward(
        ctx: Any,
        left: torch.Tensor,
        right: torch.Tensor,
        left_rows: torch.Tensor,
        right_rows: torch.Tensor,
    ) -> torch.Tensor:
        """Return the products, (n, k)."""
        ctx.save_for_backward(left, right, left_rows, right_rows)
        products = left.new_empty(right_rows.shape)
        for some in _pieces(right_rows):
            x, y = _fetch(left, right, left_rows[some], right_rows[some])
            torch.sum(y.mul_(x[:, None]), dim=2, out=products[some])
        return products

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> tuple[torch.Tensor | None, ...]:
        """Return the gradients of `left` and `right`."""
        left, right, left_rows, right_rows = ctx.saved_tensors
        to_left, to_right = torch.zeros_like(left), torch.zeros_like(right)
        for some in _pieces(right_rows):
            x, y = _fetch(left, right, left_rows[some], right_rows[some])
            by = gradients[0][some][:, :, None]
            to_left.index_add_(0, left_rows[some], (y * by).sum(dim=1))
            torch.mul(x[:, None], by, out=y)
            to_right.index_add_(0, right_rows[some].flatten(), y.flatten(0, 1))
        return to_left, to_right, None, None


def _pieces(rows: torch.Tensor) -> list[slice]:
    step = max(1, _PAIRS_AT_ONCE // max(1, rows.shape[1]))
    return [slice(start, start + step) for start in range(0, len(rows), step)]


def _fetch(
    left: torch.Tensor, right: torch.Tensor, left_rows: torch.Tensor, right_rows: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the vectors of some pairs, (n, d) and (n, k, d)."""
    fetched = right.index_select(0, right_rows.flatten()).view(*right_rows.shape, -1)
    return left.index_select(0, left_rows), fetched


def pair_products(
    left: torch.Tensor, right: torch.Tensor, left_rows: torch.Tensor, right_rows: torch.Tensor
) -> torch.Tensor:
    """Return the inner product of `left_rows[n]` with each of `right_rows[n]`.

    Args:
        left: (n_left, d).
        right: (n_right, d).
        left_rows: (n,) rows of `left`.
        right_rows: (n, k) rows of `right`.

    Returns:
        (n, k), with gradients for both matrices.
    """
    apply: Any = PairProducts.apply  # has no types
    products: torch.Tensor = apply(left, right, left_rows, right_rows)
    return products
