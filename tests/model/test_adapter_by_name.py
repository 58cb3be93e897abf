"""An adapter that loads by its folder or its Hub id, with the base that it names."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from huggingface_hub import HfApi, constants
from test_adapter import tensors_of, write

from app.engines.engines import Engines, UnavailableError
from app.settings import AppSettings
from mars_runtime import __main__ as program
from mars_runtime.model.config import CheckpointError
from mars_runtime.model.fetch import OFFLINE, download
from mars_runtime.model.files import fingerprint
from mars_runtime.model.load import load_checkpoint, read_config
from mars_runtime.model.registry import unlisted_entry
from mars_runtime.model.source import resolve
from tests.published import in_hub_cache, use_hub_cache, write_published

BASE, ADAPTER = "somebody/base", "somebody/adapter"


@pytest.fixture(autouse=True)
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cache of the hub's client is in ``tmp_path``, and there is no network."""
    use_hub_cache(tmp_path, monkeypatch)
    monkeypatch.setenv(OFFLINE[0], "1")
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return write_published(tmp_path / "base")


def adapter_for(base: Path, name: str, folder: Path) -> Path:
    """A random adapter for the model in ``base``, which it calls ``name``."""
    folder.mkdir()
    return write(folder, tensors_of(read_config(base)), base=name, mask_token="<|mask|>")


def test_a_folder_loads_with_the_base_that_it_names(base: Path, tmp_path: Path) -> None:
    adapter = adapter_for(base, "base", tmp_path / "mine")
    ours, plain = (load_checkpoint(str(path), device="cpu") for path in (adapter, base))
    assert (ours.name, ours.path, ours.block_size) == ("mine", Path("base"), 4)
    assert {path.parent.name for path in ours.weight_files} == {"base", "mine"}
    ids = torch.tensor([ours.tokenizer.encode_prompt("Hello")])
    mask = torch.tensor([[ours.tokenizer.mask_id]])
    real, masked = (
        [model.hidden(tokens, model.new_cache(1, 64))[:, -1] for model in (ours.model, plain.model)]
        for tokens in (ids, torch.cat([ids, mask], 1))
    )
    assert torch.equal(*real)
    assert not torch.equal(*masked)


def test_a_hub_id_loads_with_its_base_and_runs_nothing(base: Path, tmp_path: Path) -> None:
    """``write_published`` puts code next to the base that would end this process."""
    assert [origin.id for origin in resolve(ADAPTER).missing] == [ADAPTER]
    made = adapter_for(base, BASE, tmp_path / "made")
    there = in_hub_cache(made, tmp_path, ADAPTER)
    assert [origin.id for origin in resolve(ADAPTER).missing] == [BASE]
    with pytest.raises(CheckpointError, match=f"{BASE} is not on this machine"):
        download(resolve(ADAPTER))
    weights = in_hub_cache(base, tmp_path, BASE)
    source = resolve(ADAPTER)
    assert download(source) is source
    assert source.is_chat
    assert (source.name, source.path, source.adapter, source.base) == (
        *(ADAPTER, weights),
        *(there, BASE),
    )
    by_name, by_folder = (load_checkpoint(item, device="cpu") for item in (ADAPTER, str(made)))
    assert by_name.name == ADAPTER
    assert fingerprint(by_name.weight_files) == fingerprint(by_folder.weight_files)
    assert load_checkpoint(BASE, device="cpu").name == BASE


def test_a_page_that_is_offline_asks_no_hub(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With its flag only, without the environment's variables."""
    in_hub_cache(base, tmp_path, BASE)
    monkeypatch.delenv(OFFLINE[0])
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(HfApi, "repo_info", lambda *_, **__: pytest.fail("the hub was asked"))
    engines = Engines(AppSettings(checkpoint=BASE, device="cpu", offline=True))
    assert engines.get(BASE, 120) is not None
    engines.close()


def test_the_page_serves_an_adapter_of_the_hub_and_nothing_that_a_visitor_names(
    base: Path, tmp_path: Path
) -> None:
    in_hub_cache(adapter_for(base, BASE, tmp_path / "made"), tmp_path, ADAPTER)
    in_hub_cache(base, tmp_path, BASE)
    engines = Engines(AppSettings(checkpoint=ADAPTER, device="cpu", offline=True))
    served = engines.get(ADAPTER, 120)
    assert served is not None
    assert served.checkpoint.name == engines.default == ADAPTER
    for name in (BASE, "somebody/else"):
        with pytest.raises(UnavailableError, match="from the list"):
            engines.begin(name)
    engines.close()


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        ("somebody/else", "somebody/else is not on this machine"),
        ("../base", "neither a name in the registry nor a Hub id"),
        ("", "does not name its base"),
        (7, "does not name its base"),
        (ADAPTER, "is an adapter itself"),
    ],
)
def test_a_base_that_cannot_be_used_is_one_sentence(
    base: Path, tmp_path: Path, said: object, sentence: str
) -> None:
    made = adapter_for(base, BASE, tmp_path / "made")
    (made / "adapter.json").write_text(json.dumps({"format": 1, "base": said}))
    in_hub_cache(made, tmp_path, ADAPTER)
    with pytest.raises(CheckpointError, match=sentence) as caught:
        download(resolve(ADAPTER))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["nobody", "../base", "a/b/c", "/etc/passwd", "a b/c", "-x/y"])
def test_what_is_no_hub_id_is_never_downloaded(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert unlisted_entry(name).hub is None
    with pytest.raises(CheckpointError, match="There is no checkpoint"):
        resolve(name)
    assert name.startswith("-") or program.main(["fetch", name]) == 1
    assert "\n" not in capsys.readouterr().err.strip()
