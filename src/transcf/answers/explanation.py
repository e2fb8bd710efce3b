"""`Explanation`: why a model gives an item the score it does, for people and for machines."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from transcf.data.ids import Id


@dataclass(frozen=True)
class Effect:
    """What one past item does to the score.

    Attributes:
        item_id: The past item.
        effect: The score minus the score that would be left if the item were not among the
            user's items; above 0 it speaks for the recommendation.
    """

    item_id: Id
    effect: float


@dataclass(frozen=True)
class Neighbor:
    """A user who has the item.

    Attributes:
        user_id: The user.
        distance: Squared distance between the vectors of the two users.
    """

    user_id: Id
    distance: float


@dataclass(frozen=True)
class Explanation:
    """Where a score comes from: `score = bias - distance_after`.

    Attributes:
        user_id: The user, or None for somebody known by a history alone.
        item_id: The item.
        score: The score of the pair.
        bias: What the item gets from everybody.
        distance_before: Squared distance between user and item as they stand.
        distance_after: The same after the user is translated toward the item.
        effects: Past items of the user, those that change the score most first.
        neighbors: Users who have the item, nearest first.
    """

    user_id: Id | None
    item_id: Id
    score: float
    bias: float
    distance_before: float
    distance_after: float
    effects: tuple[Effect, ...]
    neighbors: tuple[Neighbor, ...]

    def __str__(self) -> str:
        """Say it in a few lines."""
        who = "this history" if self.user_id is None else f"user {self.user_id}"
        closer = "nearer" if self.distance_after <= self.distance_before else "farther"
        lines = [
            f"Item {self.item_id} for {who}: score {self.score:.4f} "
            f"(bias {self.bias:.4f} minus squared distance {self.distance_after:.4f})",
            f"  translation moves them {closer}: {self.distance_before:.4f} before, "
            f"{self.distance_after:.4f} after",
            "  past items that change the score most, by leaving each out:",
            *(f"    {entry.item_id}  {entry.effect:+.5f}" for entry in self.effects),
        ]
        if self.neighbors:
            lines.append("  nearest users who have it, by squared distance:")
            lines += [f"    {entry.user_id}  {entry.distance:.4f}" for entry in self.neighbors]
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """JSON form."""
        return asdict(self)
