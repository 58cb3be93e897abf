"""From a chat model to a served adapter, by the commands of docs/train.md, in a small way."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from tiny_base import write_base

from mars_runtime.__main__ import main
from mars_runtime.model.load import load_checkpoint
from tests.published import in_hub_cache, use_hub_cache

ROOT = Path(__file__).parents[2]
SMALL = {
    "--prompts": "160", "--written": "4", "--rows": "16", "--max-tokens": "12", "--rank": "4",
    "--steps": "6", "--batch-tokens": "256", "--anchors": "4", "--measure-steps": "3",
    "--measure-texts": "2",
}  # fmt: skip
"""Values in place of those of the document."""


def documented(base: str, texts: Path) -> dict[str, list[str]]:
    """The commands of the document by name, with small values."""
    document = (ROOT / "docs" / "train.md").read_text("utf-8")
    (block,) = re.findall(r"```bash\n(python -m mars_runtime fetch.*?)```", document, re.DOTALL)
    lines = block.replace("BASE", base).replace("DATA", str(texts)).splitlines()
    actual = [shlex.split(line)[3:] for line in lines]
    assert [words[0] for words in actual] == ["fetch", "distill", "train", "evaluate", "serve"]
    for words in actual:
        for option, value in SMALL.items():
            if option in words:
                words[words.index(option) + 1] = value
    return {words[0]: words for words in actual}


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("kind", ["mars-tiny", "Qwen3"])
def test_the_documented_commands_make_an_adapter_that_is_served_and_published(
    kind: str, texts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = kind if kind == "mars-tiny" else "somebody/base"
    monkeypatch.setenv("MARS_OFFLINE", "1")
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    use_hub_cache(tmp_path, monkeypatch)
    if base != kind:
        in_hub_cache(write_base(tmp_path / "base", vocab_size=384, kind=kind), tmp_path, base)
    monkeypatch.chdir(tmp_path)
    commands = documented(base, texts)
    for name in ("fetch", "distill", "train"):
        assert main(commands[name]) == 0
    assert main([*commands["evaluate"], "--prompts", "1", "--max-new-tokens", "8"]) == 0
    (adapter,) = (tmp_path / "runs").glob("adapter")
    card = (adapter / "README.md").read_text()
    assert f"A MARS adapter for {base}" in card
    assert ("base_model: somebody/base" in card) == (base != kind)
    _, *checkpoint = commands["serve"]
    assert main(["generate", *checkpoint, "--prompt", "Once", "--max-new-tokens", "4"]) == 0
    published = in_hub_cache(adapter, tmp_path, "somebody/adapter")
    (published / "resume.pt").unlink()
    by_name = load_checkpoint("somebody/adapter", device="cpu")
    assert (by_name.name, by_name.block_size) == ("somebody/adapter", 8)
