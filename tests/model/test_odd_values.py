"""Configurations and registries with nonsensical values give one error message."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mars_runtime.model.config import CheckpointError
from mars_runtime.model.load import load_checkpoint
from mars_runtime.model.registry import REGISTRY, Entry, registry

DEEP = 100_000
NESTED = "[" * DEEP + "]" * DEEP
ODD = ["null", "true", "[]", "{}", "0", "-1", "1.5", "1000000000", "1e9", "1e999", "-Infinity",
       "NaN", "1" + "0" * 400, '""', '"2"', '"\\ud800"', '"' + "x" * 5000 + '"', "[[[[[]]]]]",
       '{"rope_type": "llama3", "factor": null}', '{"rope_type": [], "rope_theta": 1e400}',
       NESTED]  # fmt: skip
"""As JSON spells them."""


def spelled(value: object, changes: dict[tuple[str | int, ...], str]) -> str:
    """JSON with some values replaced by texts, which need be no JSON at all."""
    marks = {f"@{number}@": text for number, text in enumerate(changes.values())}
    copy = json.loads(json.dumps(value))
    for mark, path in zip(marks, changes, strict=True):
        inner = copy
        for step in path[:-1]:
            inner = inner[step]
        inner[path[-1]] = mark
    text = json.dumps(copy)
    for mark, odd in marks.items():
        text = text.replace(f'"{mark}"', odd)
    return text


def is_sentence(error: CheckpointError) -> bool:
    text = str(error)
    return "\n" not in text and len(text) < 600 and text.endswith(".")


@pytest.fixture(scope="module")
def folder(random_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint with a writable config.json."""
    made = tmp_path_factory.mktemp("odd")
    for path in random_folder.iterdir():
        (made / path.name).symlink_to(path)
    (made / "config.json").unlink()
    (made / "config.json").write_text((random_folder / "config.json").read_text())
    return made


CONFIG_KEYS = ["model_type", "vocab_size", "hidden_size", "num_hidden_layers", "rope_theta",
               "num_attention_heads", "num_key_value_heads", "head_dim", "intermediate_size",
               "max_position_embeddings", "rms_norm_eps", "tie_word_embeddings", "hidden_act",
               "rope_parameters", "rope_scaling", "use_sliding_window", "mlp_bias",
               "mars_block_size", "quantization_config"]  # fmt: skip


def check_loads_or_refuses(folder: Path, text: str) -> None:
    (folder / "config.json").write_text(text, encoding="utf-8", errors="surrogatepass")
    refusal = None
    try:
        load_checkpoint(str(folder), device="cpu", dtype="fp32")
    except CheckpointError as error:
        refusal = error
    assert refusal is None or is_sentence(refusal), str(refusal)[:1000]


@settings(max_examples=40, suppress_health_check=list(HealthCheck))
@given(changes=st.dictionaries(st.sampled_from(CONFIG_KEYS), st.sampled_from(ODD), max_size=3))
def test_any_odd_configuration_loads_or_is_a_sentence(folder, random_folder, changes) -> None:
    raw = json.loads((random_folder / "config.json").read_text())
    check_loads_or_refuses(folder, spelled(raw, {(key,): text for key, text in changes.items()}))


LINES: list[dict[str, Any]] = json.loads(REGISTRY.read_text())
PLACES: list[tuple[str | int, ...]] = [(n,) for n in range(len(LINES))]
PLACES += [(n, key) for n, line in enumerate(LINES) for key in line]
GGUF = next(n for n, line in enumerate(LINES) if "gguf" in line)
PLACES += [(GGUF, "gguf", key) for key in LINES[GGUF]["gguf"]]
PLACES += [(GGUF, "gguf", "wheel", key) for key in LINES[GGUF]["gguf"]["wheel"]]


def check_reads_or_refuses(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8", errors="surrogatepass")
    actual, refusal = {}, None
    try:
        actual = registry(path)
    except CheckpointError as error:
        refusal = error
    assert refusal is None or is_sentence(refusal)
    for name, entry in actual.items():
        assert isinstance(entry, Entry)
        assert isinstance(name, str)
        assert 1 <= entry.block_size <= 16
        assert isinstance(entry.in_words, str)


@settings(max_examples=100, suppress_health_check=list(HealthCheck))
@given(place=st.sampled_from(PLACES), odd=st.sampled_from(ODD))
def test_any_odd_registry_reads_or_is_a_sentence(tmp_path_factory, place, odd) -> None:
    path = tmp_path_factory.getbasetemp() / "odd.json"
    check_reads_or_refuses(path, spelled(LINES, {place: odd}))


@pytest.mark.parametrize(
    "text",
    [
        *("", "{}", "[3]", NESTED),
        *('[{"nonsense": 1}]', '[{"name": "small"}]', '[{"name": 3, "block_size": 4}]'),
        *(json.dumps([LINES[0] | {"block_size": size}]) for size in (0, "8")),
        json.dumps([LINES[0] | {"nonsense": 1}]),
        *(
            json.dumps([LINES[GGUF] | {"gguf": gguf}])
            for gguf in ({}, {"file": "x"}, [], "x", {"wheel": {"package": "x"}})
        ),
    ],
)
def test_a_registry_that_is_none_is_a_sentence(tmp_path: Path, text: str) -> None:
    (tmp_path / "registry.json").write_text(text)
    with pytest.raises(CheckpointError, match="restore it") as caught:
        registry(tmp_path / "registry.json")
    assert is_sentence(caught.value)
