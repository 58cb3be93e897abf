"""Tokenization: ChatML prompts from untrusted text, and the exact bytes of every token.

Only byte-level BPE tokenizers are supported. A checkpoint's chat template is a program and is never
run; only a literal system prompt is extracted from it. Control tokens are inserted by id. The
encoder for user text has no added tokens, so typed text can never become a control token.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from mars_runtime.errors import MarsError
from mars_runtime.inputs import read_bytes, read_text
from mars_runtime.json_values import FIRST, Whole

if TYPE_CHECKING:
    import tokenizers

MASK, IM_START, IM_END, END_OF_TEXT = "<|mask|>", "<|im_start|>", "<|im_end|>", "<|endoftext|>"
_SYSTEM = re.compile(r"<\|im_start\|>system(?:\n|\\n)([^'\"{}<>]+)<\|im_end\|>")
MAX_PROMPT_CHARS = 200_000
MAX_SYSTEM_CHARS = 4000
"""Maximum number of characters in a system prompt from a visitor, a link or a command."""
MAX_TOKENS = 1 << 20
"""Maximum number of tokens in a tokenizer; the largest published ones have a fourth of that."""
_NEEDED = {*range(0x20, 0x7F), *b"\t\n"}  # bytes that every tokenizer must have
Said = tuple[str, "str | Sequence[int]"]
"""A turn of a chat: its role, and its text or token ids."""
_PROBE = " Round  trip:\n\t12345 ünï ☃ 👩‍👩‍👧 <|im_end|>\x00"


class TextError(MarsError, ValueError):
    """A prompt or a tokenizer cannot be used; the message explains what to do."""


@dataclass(frozen=True, slots=True)
class Turn:
    """A question as typed, and the tokens of its answer without the EOS token.

    The answer is stored as tokens, because encoding its text again could yield other tokens. So the
    next prompt begins with exactly the tokens that have keys and values in the prefix cache.
    """

    prompt: str
    tokens: Annotated[tuple[Whole, ...], FIRST]


@dataclass(frozen=True, slots=True)
class Context:
    """The conversation around one prompt.

    history: the earlier turns in the prompt, oldest first.
    num_left_out: number of older turns that did not fit.
    num_given: number of tokens at the end of the prompt that the caller supplied as the beginning
        of the answer.
    system: the system prompt; empty if there is none.
    """

    history: tuple[Turn, ...] = ()
    num_left_out: int = 0
    num_given: int = 0
    system: str = ""


ALONE = Context()
"""The context of a conversation's first question if there is no system prompt."""


class Tokenizer:
    """A byte-level BPE tokenizer with the ChatML control tokens.

    size: number of ids. The model's logits for higher ids are unused.
    mask_id, im_start_id, pad_id: control tokens.
    eos_ids: the tokens that end a turn.
    forbidden_ids: ids below ``size`` that must never be generated (mask, pad, im_start, unused).
    system: the default system prompt of a conversation.
    """

    def __init__(
        self,
        encoder: tokenizers.Tokenizer,
        tokens: Mapping[int, str],
        added: Mapping[str, int],
        pad: str | None,
        mask: str = MASK,
        system: str | None = None,
    ) -> None:
        """Build a tokenizer from an encoder without added tokens. Raises TextError.

        ``tokens`` maps ids to the encoder's own tokens; ``added`` maps all added tokens to ids.
        """
        missing = [name for name in (mask, IM_START, IM_END) if name not in added]
        if missing:
            raise TextError(
                f"This tokenizer has no {' and no '.join(missing)}: choose a checkpoint with the "
                "ChatML format."
            )
        self._encoder = encoder
        self._tokens = tokens
        self._names = dict(added)
        self._added = {index: name for name, index in added.items()}
        self._bytes: dict[int, bytes] = {}
        characters = {token for token in tokens.values() if len(token) == 1}
        self._lost = {byte for char, byte in BYTE_OF_CHAR.items() if char not in characters}
        self.system = system
        self.mask_id = added[mask]
        self.im_start_id = added[IM_START]
        self.im_end_id = added[IM_END]
        self.eos_ids = frozenset(added[name] for name in (IM_END, END_OF_TEXT) if name in added)
        self.pad_id = added.get(pad or "", added.get("<|pad|>", self.im_end_id))
        ids = [*tokens, *self._added]
        # Memory is allocated for every id up to the largest one.
        if min(ids) < 0 or max(ids) >= MAX_TOKENS:
            raise TextError(
                f"The token ids of this tokenizer go from {min(ids)} to {max(ids)}, and at most "
                f"{MAX_TOKENS:,} tokens are supported: fetch the checkpoint again."
            )
        self.size = 1 + max(ids)
        unused = set(range(self.size)) - tokens.keys() - self._added.keys()
        never = {self.mask_id, self.pad_id, self.im_start_id} - self.eos_ids
        self.forbidden_ids = frozenset(never | unused)
        if self.mask_id in self.eos_ids | {self.pad_id}:
            raise TextError(
                "The mask token of this tokenizer is also its pad token or the end of a turn: "
                "choose another checkpoint."
            )
        self._check_round_trip()

    @classmethod
    def from_dir(
        cls, path: str | Path, *, mask: str = MASK, system: str | None = None
    ) -> Tokenizer:
        """Read ``tokenizer.json`` and, if present, its configuration and chat template.

        Arguments and errors are those of ``from_spec``.
        """
        return cls.from_spec(*read_spec(Path(path)), mask=mask, system=system, name=str(path))

    @classmethod
    def from_spec(
        cls,
        spec: Mapping[str, Any],
        config: Mapping[str, Any],
        *,
        mask: str | None = MASK,
        system: str | None = None,
        name: str = "This file",
    ) -> Tokenizer:
        """Build a tokenizer from the contents of ``tokenizer.json`` and ``tokenizer_config.json``.

        mask: name of the mask token; None chooses a control token that no chat needs.
        system: default system prompt; None uses the one in the chat template.
        name: name of the tokenizer in error messages.

        Raises TextError unless the tokenizer is byte-level BPE with ChatML tokens and a mask token.
        """
        pad = config.get("pad_token")
        pad = pad.get("content") if isinstance(pad, dict) else pad
        try:
            added = added_tokens(spec, config)
            encoder, vocabulary = plain_encoder(spec, added)
            tokens = {index: token for token, index in vocabulary.items()}
            return cls(
                encoder,
                tokens,
                added,
                pad if isinstance(pad, str) else None,
                mask or spare_token(added, pad),
                system or default_system(config.get("chat_template")),
            )
        except TextError:
            raise
        # The tokenizers library raises Exception, or a panic that is not an Exception.
        except BaseException as error:
            if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
                raise
            raise TextError(
                f"{name} contains no readable tokenizer: export it again with the tokenizers "
                "library."
            ) from error

    def parts(self) -> dict[str, Any]:
        """Return the JSON values that determine the tokenizer, to compare it with another one."""
        names = {index: name for name, index in self._names.items()}
        return {
            "encoder": json.loads(self._encoder.to_str()),
            "added": self._names,
            "pad": names.get(self.pad_id),
            "mask": names[self.mask_id],
            "system": self.system,
        }

    def encode(self, text: str) -> list[int]:
        """Tokenize ``text`` into ids that never include a control token.

        Lone surrogates, which UTF-8 cannot encode, become U+FFFD. Bytes without a token are
        dropped, as in the tokenizers library. Raises TextError if the text is too long.
        """
        if len(text) > MAX_PROMPT_CHARS:
            raise TextError(
                f"Shorten the prompt to at most {MAX_PROMPT_CHARS:,} characters; it has "
                f"{len(text):,}."
            )
        valid = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        return list(self._encoder.encode(valid, add_special_tokens=False).ids)

    def system_in_force(self, system: str) -> str:
        """Return ``system``, or the checkpoint's default system prompt if it is blank."""
        return system if system.strip() else self.system or ""

    def encode_prompt(
        self,
        text: str,
        history: Sequence[Turn] = (),
        before: Sequence[Said] = (),
        system: str = "",
    ) -> list[int]:
        """Tokenize a prompt as one user turn, after the turns ``before`` and ``history``.

        system: the system prompt, unless ``before`` begins with one; if empty, the checkpoint's
            default.

        Raises TextError if a text is empty, too long or has no tokens.
        """
        if not text.strip():
            raise TextError("The prompt is empty. Type one.")
        if self._lost and not self.decode(self.encode(text)).strip():
            raise TextError(
                "The model has no tokens for the characters of this prompt. Type another one."
            )
        is_given = bool(before) and before[0][0] == "system"
        in_force = "" if is_given else self.system_in_force(check_system(system))
        first: list[Said] = [("system", in_force)] if in_force else []
        return self.encode_chat([*first, *before, *_said(history), ("user", text)])

    def num_tokens(self, turn: Turn) -> int:
        """Return how many ids an earlier turn adds to a prompt."""
        return len(self.encode_chat(_said([turn]))) - len(self.encode_chat([]))

    def encode_chat(self, turns: Sequence[Said]) -> list[int]:
        """Tokenize (role, content) turns as ChatML, ready for the assistant's answer.

        Content that consists of ids (the model's own output) is used unchanged. So the result
        begins with the ids of the same conversation one turn earlier, followed by that turn's
        answer.

        For text without control tokens the ids equal those of the usual ChatML template: each turn
        is encoded in one piece (``user\\n`` and the text together). ``self.system`` comes first
        unless the turns begin with a system prompt.
        """
        ids: list[int] = []
        is_given = bool(turns) and turns[0][0] == "system"
        first = [("system", self.system)] if self.system and not is_given else []
        for role, content in [*first, *turns]:
            text, tokens = (content, ()) if isinstance(content, str) else ("", content)
            ids += [self.im_start_id, *self.encode(f"{role}\n{text}"), *tokens, self.im_end_id]
            ids += self.encode("\n")
        return [*ids, self.im_start_id, *self.encode("assistant\n")]

    def token_bytes(self, token: int) -> bytes:
        """Return the exact bytes of a token; for an added token, the bytes of its name."""
        known = self._bytes.get(token)
        if known is None:
            known = self._bytes[token] = self._spell(token)
        return known

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of ``ids``; invalid UTF-8 becomes U+FFFD."""
        return b"".join(map(self.token_bytes, ids)).decode("utf-8", "replace")

    def _spell(self, token: int) -> bytes:
        if token in self._added:
            return self._added[token].encode()
        if token not in self._tokens:
            raise TextError(
                f"Token {token} is not in this tokenizer, which has {self.size} tokens."
            )
        return bytes(BYTE_OF_CHAR[char] for char in self._tokens[token])

    def _check_round_trip(self) -> None:
        if self._lost & _NEEDED:
            raise TextError(
                "This tokenizer has no tokens for some ASCII characters: choose another one."
            )
        ids = self.encode(_PROBE)
        encodable = bytes(byte for byte in _PROBE.encode() if byte not in self._lost)
        if self._added.keys() & set(ids) or self.decode(ids) != encodable.decode(
            "utf-8", "replace"
        ):
            raise TextError(
                "This tokenizer changes the text that it encodes: choose a byte-level BPE "
                "tokenizer that decodes every text unchanged."
            )


def check_system(system: str) -> str:
    """Return the system prompt. Raises TextError if it is too long."""
    if len(system) > MAX_SYSTEM_CHARS:
        raise TextError(
            f"Shorten the system prompt to at most {MAX_SYSTEM_CHARS:,} characters; it has "
            f"{len(system):,}."
        )
    return system


def _said(history: Iterable[Turn]) -> list[Said]:
    return [
        said for turn in history for said in (("user", turn.prompt), ("assistant", turn.tokens))
    ]


class Detokenizer:
    """Streaming decoder: returns a character only when all its bytes have arrived.

    ``token_bytes`` is ``Tokenizer.token_bytes`` or the vocabulary of a trace. The concatenated
    pieces equal ``b"".join(map(token_bytes, ids)).decode("utf-8", "replace")``.
    """

    def __init__(self, token_bytes: Callable[[int], bytes]) -> None:
        self._token_bytes = token_bytes
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, ids: Iterable[int]) -> str:
        """Return the characters that are complete after the tokens ``ids``."""
        return self._decoder.decode(b"".join(map(self._token_bytes, ids)))

    def flush(self) -> str:
        """Return U+FFFD if the text ends with an incomplete character, else an empty string."""
        text = self._decoder.decode(b"", final=True)
        self._decoder.reset()
        return text


def read_spec(folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return ``tokenizer.json`` and, if present, its configuration with the chat template.

    Raises TextError.
    """
    spec = _read_json(folder / "tokenizer.json")
    config_path, template = folder / "tokenizer_config.json", folder / "chat_template.jinja"
    config = _read_json(config_path) if config_path.exists() else {}
    if template.exists():
        try:
            config["chat_template"] = read_bytes(template).decode("utf-8", "replace")
        except OSError as error:
            raise TextError(f"{template} cannot be read: fetch the checkpoint again.") from error
    return spec, config


def _read_json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(read_text(path))
    except (OSError, ValueError, RecursionError) as error:
        raise TextError(f"{path} is missing or damaged: fetch the checkpoint again.") from error
    if not isinstance(value, dict):
        raise TextError(f"{path} is not a tokenizer file: fetch the checkpoint again.")
    return value


def added_tokens(spec: Mapping[str, Any], config: Mapping[str, Any]) -> dict[str, int]:
    """Return the id of every added token, control tokens and others.

    Typed text must never become one of them.
    """
    added = {str(token["content"]): int(token["id"]) for token in spec.get("added_tokens") or []}
    for index, token in (config.get("added_tokens_decoder") or {}).items():
        added.setdefault(str(token["content"]), int(index))
    if len(set(added.values())) != len(added):
        raise TextError(
            "Two added tokens of this tokenizer share an id: fetch the checkpoint again."
        )
    return added


def spare_token(added: Mapping[str, int], pad: object) -> str:
    """Return a token that can serve as mask: MASK if present, else the first that no chat needs."""
    spare = [name for name in added if name not in (IM_START, IM_END, END_OF_TEXT, pad)]
    return MASK if MASK in added or not spare else spare[0]


def default_system(template: object) -> str | None:
    """Return the literal system prompt in a ChatML template, or None."""
    match = _SYSTEM.search(template) if isinstance(template, str) else None
    return match[1] if match else None


def plain_encoder(
    spec: Mapping[str, Any], added: Mapping[str, int]
) -> tuple[tokenizers.Tokenizer, dict[str, int]]:
    """Return an encoder without added tokens, and its vocabulary.

    The encoder normalises text by NFC or not at all. Raises TextError for an unsupported tokenizer.
    """
    import tokenizers  # imported here, because decoding a recorded trace must not require it

    model = spec.get("model") or {}
    steps = _parts(spec.get("pre_tokenizer"), "pretokenizers")
    byte_level = [step for step in steps if step.get("type") == "ByteLevel"]
    is_byte_level = model.get("type") == "BPE" and not model.get("byte_fallback") and byte_level
    if not is_byte_level or any(step.get("add_prefix_space") for step in byte_level):
        raise TextError(
            "Only byte-level BPE tokenizers without a prefix space are supported: choose a "
            "checkpoint with one, such as Qwen2."
        )
    normalizers = _parts(spec.get("normalizer"), "normalizers")
    if any(step.get("type") != "NFC" for step in normalizers):
        raise TextError(
            "Only tokenizers that normalise text by NFC or not at all are supported: choose "
            "another one."
        )
    vocabulary = {token: index for token, index in model["vocab"].items() if token not in added}
    if any(not set(token) <= BYTE_OF_CHAR.keys() for token in vocabulary):
        raise TextError("The vocabulary of this tokenizer is not byte-level: choose one that is.")
    if model.get("continuing_subword_prefix") or model.get("end_of_word_suffix"):
        raise TextError(
            "Tokenizers with a subword prefix or a word suffix are not supported: choose another "
            "one."
        )
    for merge in model.get("merges") or []:  # With an invalid merge the library would panic.
        left, right = merge.split(" ") if isinstance(merge, str) else merge
        if not {left, right, left + right} <= vocabulary.keys():
            raise TextError(
                "This tokenizer's merges do not fit its vocabulary: fetch the checkpoint again."
            )
    plain = {
        **spec,
        "added_tokens": [],
        "post_processor": None,
        "padding": None,
        "truncation": None,
        "model": {**model, "vocab": vocabulary, "unk_token": None, "dropout": None},
    }
    return tokenizers.Tokenizer.from_str(json.dumps(plain)), vocabulary


def _parts(step: Mapping[str, Any] | None, inner: str) -> list[Mapping[str, Any]]:
    """Return the steps of a tokenizer component as a flat list."""
    if not step:
        return []
    if step.get("type") != "Sequence":
        return [step]
    return [part for part_of_step in step.get(inner) or [] for part in _parts(part_of_step, inner)]


def byte_characters() -> dict[int, str]:
    """Return GPT-2's map from each byte to the printable character that represents it in a
    vocabulary.

    Source: openai/gpt-2, src/encoder.py, ``bytes_to_unicode``.
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    shifted = {byte: chr(256 + index) for index, byte in enumerate(others)}
    return {byte: chr(byte) for byte in printable} | shifted


BYTE_OF_CHAR = {char: byte for byte, char in byte_characters().items()}
