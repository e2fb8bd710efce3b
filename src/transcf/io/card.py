"""The model card: what a person wants to know who finds a model folder."""

from __future__ import annotations

from typing import Any

from transcf.data.ids import IdMap


def model_card(summary: str, about: dict[str, Any], users: IdMap) -> str:
    """Write the card in Markdown: what it is, how it was made, how to use it."""
    size = sum(entry["bytes"] for entry in about["files"].values())
    lines = [
        f"# {about['class']}",
        "",
        summary,
        "",
        f"A recommender saved by transcf {about['library']}, {size / 2**20:,.1f} MiB.",
        "",
        "## Hyper-parameters",
        "",
        *_table(about["params"]),
        "",
        "## Training",
        "",
        *_table({k: v for k, v in about["report"].items() if not isinstance(v, list)}),
        "",
        "## Use",
        "",
        "```python",
        "import transcf",
        "",
        'model = transcf.load("path/to/this/folder")',
        f"model.recommend({users.series[0]!r}, k=10)",
        "```",
        "",
        "## What is in the folder",
        "",
        "Learned arrays (`model.safetensors`), settings and checksums (`model.json`), the ids of",
        "users and items, and the training interactions (`seen.parquet`, so that nobody is",
        "recommended what they already have). The ids and interactions of the training users are",
        "personal data if they were so in the source: treat the folder accordingly.",
    ]
    return "\n".join(lines) + "\n"


def _table(values: dict[str, Any]) -> list[str]:
    if not values:
        return ["None."]
    return ["| | |", "|---|---|", *(f"| {key} | `{value}` |" for key, value in values.items())]
