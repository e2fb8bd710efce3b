"""The paper's TransCF-emb: learns and ranks as "translation", but calls a - b the translation."""

from __future__ import annotations

from transcf.kernels import Array
from transcf.learning.forms.translation import Translation


class Embedding(Translation):
    """As "translation", but `translation()` returns a - b, for comparison."""

    name, title = "emb", "TransCF-emb"

    def translation(self, a: Array, q: Array, b: Array, n: Array) -> Array:
        """The difference of the two vectors."""
        return a - b
