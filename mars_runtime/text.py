"""Tokenization: prompts from untrusted text by the chat template, and the bytes of every token.

Only byte-level BPE is supported. The chat template is rendered in a sandbox. Only text that the
template itself writes can become a control token, never typed text.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any

from mars_runtime.chat_template import CHATML, TemplateRejectionError, render
from mars_runtime.errors import MarsError
from mars_runtime.files.inputs import read_bytes, read_text
from mars_runtime.files.json_values import FIRST, Whole

if TYPE_CHECKING:
    import tokenizers

MASK, IM_START, IM_END, END_OF_TEXT = "<|mask|>", "<|im_start|>", "<|im_end|>", "<|endoftext|>"
TYPED, ANSWER, LAST = "\udc00", "\udc01", "\udc02"
"""Marks in a rendered prompt; no valid text contains them. TYPED precedes each typed character that
could begin a control token, ANSWER replaces an answer that is given as ids, and LAST follows the
message to continue.
"""
EOS_IDS, BOS_IN_CHATS = "eos_token_ids", "add_bos_token_to_chats"
"""Keys that are added to the contents of ``tokenizer_config.json``: token ids that other files name
as EOS, and whether a chat begins with BOS even if its template writes none.
"""
MAX_PROMPT_CHARS = 200_000
MAX_SYSTEM_CHARS = 4000
MAX_TOKENS = 1 << 20
"""The largest published tokenizers have a fourth of that."""
AFFIXES = ("continuing_subword_prefix", "end_of_word_suffix")
Said = tuple[str, "str | Sequence[int]"]
_PROBE = "".join(map(chr, range(0x20, 0x7F))) + "  \n\tünï ☃ 👩‍👩‍👧 <|im_end|>\x00"


class TextError(MarsError, ValueError):
    """A prompt or a tokenizer cannot be used."""


@dataclass(frozen=True, slots=True)
class Turn:
    """A question as typed, and the tokens of its answer without EOS: encoding its text again could
    yield other tokens than those in the prefix cache.
    """

    prompt: str
    tokens: Annotated[tuple[Whole, ...], FIRST]


@dataclass(frozen=True, slots=True)
class Context:
    """The conversation around one prompt.

    history: the earlier turns in the prompt, oldest first.
    num_left_out: number of older turns that did not fit.
    num_given: number of tokens at the end of the prompt that are the supplied beginning of the
        answer.
    """

    history: tuple[Turn, ...] = ()
    num_left_out: int = 0
    num_given: int = 0
    system: str = ""


ALONE = Context()


class Tokenizer:
    """A byte-level BPE tokenizer with the chat template of its checkpoint.

    size: number of ids. The model's logits for higher ids are unused.
    mask_id, pad_id, end_id: the mask, the padding, and the token that usually ends a turn.
    forbidden_ids: ids below ``size`` that must never be generated (mask, pad, BOS, unused).
    system: the system prompt of a conversation without one; None for the template's own.
    """

    def __init__(
        self,
        spec: Mapping[str, Any],
        config: Mapping[str, Any],
        *,
        mask: str | None = MASK,
        system: str | None = None,
        name: str = "This file",
    ) -> None:
        """config: ``tokenizer_config.json``, possibly with EOS_IDS and BOS_IN_CHATS. mask: name of
        the mask token; None chooses a control token that no chat needs. name: for error messages.

        Raises TextError unless the tokenizer is byte-level BPE with a chat template and a mask.
        """
        self.system = system
        try:
            self._build(spec, config, mask)
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
        self._check_round_trip()

    @classmethod
    def from_dir(
        cls, path: str | Path, *, mask: str | None = MASK, system: str | None = None
    ) -> Tokenizer:
        return cls(*read_spec(Path(path)), mask=mask, system=system, name=str(path))

    def _build(self, spec: Mapping[str, Any], config: Mapping[str, Any], mask: str | None) -> None:
        self._names = names = added_tokens(spec, config)
        self._added = {index: name for name, index in names.items()}
        self._encoder, vocabulary = plain_encoder(spec, names)
        self._tokens = {index: token for token, index in vocabulary.items()}
        self._lost = {byte for char, byte in BYTE_OF_CHAR.items() if char not in vocabulary}
        ids = [*self._tokens, *self._added]
        # Memory is allocated for every id up to the largest one.
        if min(ids) < 0 or max(ids) >= MAX_TOKENS:
            raise TextError(
                f"The token ids of this tokenizer go from {min(ids)} to {max(ids)}, and at most "
                f"{MAX_TOKENS:,} tokens are supported: fetch the checkpoint again."
            )
        self.size = 1 + max(ids)
        self._template = _template(config.get("chat_template"), names)
        self._special = {
            key: str(value["content"] if isinstance(value, dict) else value)
            for key, value in config.items()
            if key.endswith("_token") and isinstance(value, str | dict)
        }
        bos, eos, pad = (
            names.get(self._special.get(key, "")) for key in ("bos_token", "eos_token", "pad_token")
        )
        used = {IM_START, IM_END, END_OF_TEXT, *self._special.values()}
        spare = [name for name in names if name not in used and name not in self._template]
        mask = mask or (MASK if MASK in names else next(iter(spare), MASK))
        # transformers writes 2 for a Llama without an EOS token, whichever token that is.
        listed = [end for end in config.get(EOS_IDS, ()) if end != names.get(mask)]
        ends = [end for end in (eos, *listed) if end in range(self.size)]
        if not ends and IM_END in names:
            ends = [names[IM_END]]
        if mask not in names or not ends:
            missing = "token that ends a turn" if mask in names else mask
            raise TextError(f"This tokenizer has no {missing}: choose another checkpoint.")
        self.mask_id, self.end_id, self.eos_ids = names[mask], ends[0], frozenset(ends)
        self.pad_id = self.end_id if pad is None else pad
        if self.mask_id in self.eos_ids | {self.pad_id}:
            raise TextError(
                "The mask token of this tokenizer is also its pad token or the end of a turn: "
                "choose another checkpoint."
            )
        unused = set(range(self.size)) - self._tokens.keys() - self._added.keys()
        never = {self.mask_id, self.pad_id, bos, names.get(IM_START)}
        self.forbidden_ids = (
            frozenset(unused.union(i for i in never if i is not None)) - self.eos_ids
        )
        self._bos_id = names.get(_first_token(spec))
        self._bos_in_chats = bool(config.get(BOS_IN_CHATS))
        self._thoughts = [
            token["content"]
            for token in spec.get("added_tokens") or []
            if token.get("special") is False and token["content"] in self._template
        ]
        firsts = {name.lstrip()[:1] for name in names} - {""}
        self._marks = {ord(first): TYPED + first for first in firsts}
        longest_first = map(re.escape, sorted(names, key=len, reverse=True))
        typed = f"{TYPED}[{re.escape(''.join(firsts))}]"
        self._control = re.compile("|".join([typed, ANSWER, *longest_first]))

    def encode(self, text: str) -> list[int]:
        """Tokenize ``text`` into ids that never include a control token. Lone surrogates become
        U+FFFD. Raises TextError if the text is too long.
        """
        return self._encode(self._typed(text))

    def encode_text(self, text: str, *, parse_special: bool = False) -> list[int]:
        """Tokenize a text that the model continues, after BOS if the tokenizer asks for it.
        parse_special: whether names of control tokens stand for these tokens.
        """
        return self._after_bos(self._encode(_valid(text)) if parse_special else self.encode(text))

    def system_in_force(self, system: str) -> str:
        """Return ``system``, or the registry's default system prompt if it is blank."""
        return system if system.strip() else self.system or ""

    def encode_prompt(
        self,
        text: str,
        history: Sequence[Turn] = (),
        before: Sequence[Said] = (),
        system: str = "",
        options: Mapping[str, Any] = MappingProxyType({}),
    ) -> list[int]:
        """Tokenize a prompt as one user turn, after the turns ``before`` and ``history``.

        system: the system prompt, unless ``before`` begins with one. options: of ``encode_chat``.

        Raises TextError if a text is empty, too long or has no tokens.
        """
        if not text.strip():
            raise TextError("The prompt is empty. Type one.")
        if self._lost and not self.decode(self.encode(text)).strip():
            raise TextError(
                "The model has no tokens for the characters of this prompt. Type another one."
            )
        is_given = bool(before) and before[0][0] == "system"
        turns = [*before]
        if check_system(system).strip() and not is_given:
            turns.insert(0, ("system", system))
        for turn in history:
            turns += [("user", turn.prompt), ("assistant", turn.tokens)]
        return self.encode_chat([*turns, ("user", text)], **options)

    def encode_chat(
        self, turns: Sequence[Said], /, *, continue_final_message: bool = False, **variables: Any
    ) -> list[int]:
        """Tokenize (role, content) turns with the chat template, by default for an answer to them.

        Arguments and ids are those of ``apply_chat_template`` in transformers, except that names of
        control tokens in ``turns`` stay text. ``self.system`` comes first unless the turns begin
        with a system prompt. An answer given as ids is used unchanged if the template copies it, so
        the result begins with the ids of the conversation one turn earlier. Raises TextError.
        """
        if self.system and not (turns and turns[0][0] == "system"):
            turns = [("system", self.system), *turns]
        given = {i: ids for i, (_, ids) in enumerate(turns) if not isinstance(ids, str)}
        contents = [text if isinstance(text, str) else self.decode(text) for _, text in turns]
        texts = [self._typed(content) for content in contents]
        slots = [ANSWER if i in given else text for i, text in enumerate(texts)]
        thoughts = [self._with_thoughts(*said) for said in zip(turns, texts, strict=True)]
        variables = {"add_generation_prompt": not continue_final_message, **variables}
        roles = [role for role, _ in turns]
        rendered = partial(self._render, variables, roles, is_continued=continue_final_message)
        plain = rendered([text.replace(TYPED, "") for text in texts])
        # A template may trim an answer, or look for control tokens in it and cut its thoughts.
        for contents in (slots, texts, thoughts, texts):
            shape = filled = rendered(contents)
            for index in given:
                filled = filled.replace(ANSWER, texts[index], 1)
            if filled.replace(TYPED, "") == plain:
                break
        ids = self._encode(shape, given.values())
        return self._after_bos(ids) if self._bos_in_chats else ids

    def _render(
        self,
        variables: Mapping[str, Any],
        roles: Sequence[str],
        contents: Sequence[str],
        *,
        is_continued: bool,
    ) -> str:
        said = [{"role": r, "content": c} for r, c in zip(roles, contents, strict=True)]
        if is_continued:
            said[-1]["content"] += f"{LAST} "
        try:
            text = render(self._template, said, **self._special | self._typed(variables))
        except TemplateRejectionError as error:
            raise TextError(f"The model's chat template rejects the prompt: {error}.") from error
        if is_continued:
            text, mark, rest = text.rpartition(LAST)
            if not mark:
                raise TextError(
                    "The model's chat template changes the last message, so it cannot be continued."
                )
            text = text if rest.startswith(" ") else text.rstrip()
        return text

    def _typed(self, value: Any) -> Any:
        """Mark all texts in a JSON value, so that ``_encode`` sees no control token in them."""
        if isinstance(value, str):
            return _valid(value).translate(self._marks)
        if isinstance(value, Mapping):
            return {key: self._typed(item) for key, item in value.items()}
        return [self._typed(item) for item in value] if isinstance(value, list) else value

    def _with_thoughts(self, turn: Said, text: str) -> str:
        """Remove the marks in front of control tokens that a template may look for in an answer."""
        for name in self._thoughts if turn[0] == "assistant" else ():
            text = text.replace(TYPED + name, name)
        return text

    def _encode(self, text: str, answers: Iterable[Sequence[int]] = ()) -> list[int]:
        ids: list[int] = []
        given, at = iter(answers), 0
        for match in self._control.finditer(text):
            if not match[0].startswith(TYPED):
                ids += self._encode_plain(text[at : match.start()])
                ids += next(given) if match[0] == ANSWER else [self._names[match[0]]]
                at = match.end()
        return [*ids, *self._encode_plain(text[at:])]

    def _encode_plain(self, text: str) -> list[int]:
        return self._encoder.encode(text.replace(TYPED, ""), add_special_tokens=False).ids

    def _after_bos(self, ids: list[int]) -> list[int]:
        return ids if self._bos_id is None or ids[:1] == [self._bos_id] else [self._bos_id, *ids]

    def has_same_ids(self, other: Tokenizer) -> bool:
        ids, other_ids = ((t.eos_ids, t._tokens, t._added) for t in (self, other))
        return ids == other_ids

    def token_bytes(self, token: int) -> bytes:
        """Return the exact bytes of a token; for an added token, the bytes of its name."""
        if token in self._added:
            return self._added[token].encode()
        if token not in self._tokens:
            raise TextError(
                f"Token {token} is not in this tokenizer, which has {self.size} tokens."
            )
        return bytes(BYTE_OF_CHAR[char] for char in self._tokens[token])

    def decode(self, ids: Iterable[int]) -> str:
        return b"".join(map(self.token_bytes, ids)).decode("utf-8", "replace")

    def _check_round_trip(self) -> None:
        ids = self.encode(_PROBE)
        lost = self._lost.difference(range(0x20, 0x7F))
        kept = bytes(byte for byte in _PROBE.encode() if byte not in lost)
        if not self._added.keys().isdisjoint(ids) or self.decode(ids) != kept.decode(
            "utf-8", "replace"
        ):
            raise TextError(
                "This tokenizer changes the text that it encodes: choose a byte-level BPE "
                "tokenizer that decodes every text unchanged."
            )


def check_system(system: str) -> str:
    return _short(system, MAX_SYSTEM_CHARS, "system prompt")


def _short(text: str, most: int, name: str) -> str:
    if len(text) > most:
        raise TextError(f"Shorten the {name} to at most {most:,} characters; it has {len(text):,}.")
    return text


class Detokenizer:
    """Streaming decoder: returns a character only when all its bytes have arrived. Together the
    pieces equal the bytes of all tokens, decoded with "replace".
    """

    def __init__(self, token_bytes: Callable[[int], bytes]) -> None:
        self._token_bytes = token_bytes
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, ids: Iterable[int]) -> str:
        return self._decoder.decode(b"".join(map(self._token_bytes, ids)))

    def flush(self) -> str:
        text = self._decoder.decode(b"", final=True)
        self._decoder.reset()
        return text


def read_spec(folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return ``tokenizer.json`` and its configuration, with the chat template and EOS_IDS. Raises
    TextError.
    """
    spec = _read_json(folder / "tokenizer.json")
    config, *models = (
        _read_json(path) if (path := folder / f"{name}.json").exists() else {}
        for name in ("tokenizer_config", "generation_config", "config")
    )
    config[EOS_IDS] = [index for model in models for index in _eos_ids(model)]
    template = folder / "chat_template.jinja"
    if template.exists():
        try:
            config["chat_template"] = read_bytes(template).decode("utf-8", "replace")
        except OSError as error:
            raise TextError(f"{template} cannot be read: fetch the checkpoint again.") from error
    return spec, config


def _eos_ids(config: Mapping[str, Any]) -> list[int]:
    value = config.get("eos_token_id")
    ids = value if isinstance(value, list) else [] if value is None else [value]
    if any(type(index) is not int or index < 0 for index in ids):
        raise TextError(f"eos_token_id must be a token id or a list of them, got {value!r}.")
    return ids


def _read_json(path: Path) -> dict[str, Any]:
    try:
        return {**json.loads(read_text(path))}
    except (OSError, TypeError, ValueError, RecursionError) as error:
        raise TextError(f"{path} is missing or damaged: fetch the checkpoint again.") from error


def added_tokens(spec: Mapping[str, Any], config: Mapping[str, Any]) -> dict[str, int]:
    """Typed text must never become one of them."""
    added = {str(token["content"]): int(token["id"]) for token in spec.get("added_tokens") or []}
    for index, token in (config.get("added_tokens_decoder") or {}).items():
        added.setdefault(str(token["content"]), int(index))
    if len(set(added.values())) != len(added):
        raise TextError(
            "Two added tokens of this tokenizer share an id: fetch the checkpoint again."
        )
    return added


def _template(value: Any, names: Mapping[str, int]) -> str:
    if isinstance(value, list):
        value = {template["name"]: template["template"] for template in value}
    if isinstance(value, Mapping):
        value = value.get("default")
    elif value is None and {IM_START, IM_END} <= names.keys():
        return CHATML
    if not isinstance(value, str):
        raise TextError("This checkpoint has no chat template: choose one that can chat.")
    return value


def _first_token(spec: Mapping[str, Any]) -> str:
    """Return the name of the token that begins every text, or ""."""
    for step in _parts(spec.get("post_processor"), "processors"):
        if step.get("type") == "TemplateProcessing":
            return str(step["single"][0].get("SpecialToken", {}).get("id", ""))
    return ""


def _valid(text: str) -> str:
    """Replace lone surrogates by U+FFFD. Raises TextError if the text is too long."""
    text = _short(text, MAX_PROMPT_CHARS, "prompt")
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def plain_encoder(
    spec: Mapping[str, Any], added: Mapping[str, int]
) -> tuple[tokenizers.Tokenizer, dict[str, int]]:
    """Return an encoder without added tokens, which normalises by NFC or not at all, and its
    vocabulary. Raises TextError for an unsupported tokenizer.
    """
    import tokenizers  # imported here, because decoding a recorded trace must not require it

    model = spec.get("model") or {}
    vocabulary = {token: index for token, index in model["vocab"].items() if token not in added}
    steps = _parts(spec.get("pre_tokenizer"), "pretokenizers")
    byte_level = [step for step in steps if step.get("type") == "ByteLevel"]
    is_supported = (
        model.get("type") == "BPE"
        and not any(map(model.get, ("byte_fallback", *AFFIXES)))
        and byte_level
        and not any(step.get("add_prefix_space") for step in byte_level)
        and {step.get("type") for step in _parts(spec.get("normalizer"), "normalizers")} <= {"NFC"}
        and all(set(token) <= BYTE_OF_CHAR.keys() for token in vocabulary)
        # With other merges the library would panic.
        and {"".join(pair).replace(" ", "") for pair in model.get("merges") or []} <= {*vocabulary}
    )
    if not is_supported:
        raise TextError(
            "Only byte-level BPE tokenizers without a prefix space that normalise text by NFC or "
            "not at all are supported: choose a checkpoint with one, such as Qwen2."
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
    if not step:
        return []
    if step.get("type") != "Sequence":
        return [step]
    return [part for part_of_step in step.get(inner) or [] for part in _parts(part_of_step, inner)]


def byte_characters() -> dict[int, str]:
    """Return GPT-2's map from each byte to its printable character (openai/gpt-2,
    ``bytes_to_unicode``).
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    shifted = {byte: chr(256 + index) for index, byte in enumerate(others)}
    return {byte: chr(byte) for byte in printable} | shifted


BYTE_OF_CHAR = {char: byte for byte, char in byte_characters().items()}
