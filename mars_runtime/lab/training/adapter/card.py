"""Write the model card of an adapter."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mars_runtime.model.registry import HUB_ID, entry_of

CARD = Path(__file__).with_suffix(".md").read_text(encoding="utf-8")


def model_card(metadata: dict[str, Any]) -> str:
    held_out, base = metadata["held_out"], metadata["base"]
    entry = entry_of(base)
    gguf = entry.gguf.hub if entry and entry.gguf else None
    hub = (entry.hub if entry else None) or gguf or (base if HUB_ID.fullmatch(base) else None)
    rows = [(f"B = {depth}", pair) for depth, pair in held_out["by_depth"].items()]
    block_size = metadata["block_size"]
    rows += [(f"{kind}, B = {block_size}", pair) for kind, pair in held_out["by_kind"].items()]
    return CARD.format(
        front=f"base_model: {hub}\n" if hub else "",
        base=base,
        texts=held_out["texts"],
        tokens=f"{held_out['tokens']:,}",
        rows="\n".join(
            f"| {name} | {single:.2f} | {every:.2f} |" for name, (single, every) in rows
        ),
        masks=f"{metadata['trained_masks']:,}",
        mask_token=metadata["mask_token"],
        block_size=block_size,
    )
