"""Write the model card of an adapter."""

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

With this adapter, {base} proposes several tokens per forward pass. The adapter acts only on mask
tokens and does not change the results for real tokens. Plain decoding therefore equals the base
model, and lossless decoding gives the greedy text of the base model in fewer forward passes. The
base model is not in this repository.

```bash
python app.py --checkpoint OWNER/NAME
python -m mars_runtime generate --checkpoint OWNER/NAME --prompt "Hello"
```

Run these commands in a clone of MARS live, with the name of this repository as OWNER/NAME. They
download the base model and the adapter; no downloaded code is executed.

## Held-out texts

The table shows tokens per forward pass of lossless greedy decoding on {texts} held-out texts
({tokens} tokens), with one group of masks after the last draft or with a group after every pending
token. The same texts were used to choose the best version of the adapter, so the figures are
slightly optimistic.

| | one group | a group after every pending token |
| :-- | --: | --: |
{rows}

The adapter was trained on {masks} masks with the mask token `{mask_token}` and B = {block_size}.
`recipe.json` has the hyperparameters, `log.jsonl` the losses.
"""


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
