"""The model card that an adapter is published with."""

from __future__ import annotations

from typing import Any

from mars_runtime.model.registry import HUB_ID, entry_of

CARD = """---
{front}pipeline_tag: text-generation
tags:
  - mars
  - multi-token-prediction
  - lora
---

# A MARS adapter for {base}

With this adapter {base} proposes several tokens per forward pass. It acts on mask tokens only:
real tokens pass through the base as if there were no adapter, so plain decoding is the base, and
lossless decoding gives the base's own greedy text in fewer forward passes. The base is not in this
repository.

```bash
python app.py --checkpoint OWNER/NAME
python -m mars_runtime generate --checkpoint OWNER/NAME --prompt "Hello"
```

in a clone of MARS live, with the name of this repository. Base and adapter are fetched; nothing in
them is executed.

## Held-out texts

Tokens per forward pass of lossless greedy decoding on {texts} texts ({tokens} tokens) that were not
trained on: one group of masks after the last draft, or a group after every pending token. The
adapter with the best figures on these texts was kept, which flatters it a little.

| | one group | a group after every pending token |
| :-- | --: | --: |
{rows}

Trained on {masks} masks with the mask token `{mask_token}`, B = {block_size}. `recipe.json` has the
hyperparameters, `log.jsonl` the losses.
"""


def model_card(said: dict[str, Any]) -> str:
    """Return the card of an adapter. said: the content of its ``adapter.json``."""
    held_out, base = said["held_out"], said["base"]
    entry = entry_of(base)
    gguf = entry.gguf.hub if entry and entry.gguf else None
    hub = (entry.hub if entry else None) or gguf or (base if HUB_ID.fullmatch(base) else None)
    rows = [(f"B = {depth}", pair) for depth, pair in held_out["by_depth"].items()]
    rows += [
        (f"{kind}, B = {said['block_size']}", pair) for kind, pair in held_out["by_kind"].items()
    ]
    return CARD.format(
        front=f"base_model: {hub}\n" if hub else "",
        base=base,
        texts=held_out["texts"],
        tokens=f"{held_out['tokens']:,}",
        rows="\n".join(
            f"| {name} | {single:.2f} | {every:.2f} |" for name, (single, every) in rows
        ),
        masks=f"{said['trained_masks']:,}",
        mask_token=said["mask_token"],
        block_size=said["block_size"],
    )
