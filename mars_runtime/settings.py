"""Settings of decoding: one pydantic dataclass with the limits and a description of each setting.

Command-line flags, endpoints, the page's controls and the types of its scripts are derived from
it. The module uses no model, tokenizer or torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from functools import wraps
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, get_args

from pydantic import BeforeValidator, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass

from mars_runtime.decoders.methods import AUTO, MAX_BLOCK_SIZE, METHODS, Method
from mars_runtime.errors import MarsError
from mars_runtime.files.json_values import MAX_INT, as_mapping, fault_of

if TYPE_CHECKING:
    MethodName = str
else:
    MethodName = Literal[tuple(METHODS)]
Metric = Literal["probability", "margin", "entropy"]
MaskLayout = Literal["last", "every"]
Masked = Literal["both", "draft", "target", "none"]
TauPolicy = Literal["fixed", "entropy", "agreement"]

METRICS: tuple[Metric, ...] = get_args(Metric)
MASK_LAYOUTS: tuple[MaskLayout, ...] = get_args(MaskLayout)
MASKED: tuple[Masked, ...] = get_args(Masked)
TAU_POLICIES: tuple[TauPolicy, ...] = get_args(TauPolicy)
MAX_FED = 64  # maximum number of tokens that one step feeds for a row, masks included
MAX_NEW_TOKENS = 4096
MAX_BIASES, MAX_BIAS = 300, 100
MAX_ADDITIVE_PENALTY = 2
MAX_NAME = 200  # maximum number of characters of a checkpoint's name
T = TypeVar("T")


class SettingsError(MarsError, ValueError):
    """A setting is invalid; the message is one sentence that explains what to do.

    ``field``: name of the setting; empty if the error concerns no single one.
    """

    def __init__(self, message: str, field: str = "") -> None:
        super().__init__(message)
        self.field = field

    @classmethod
    def of(cls, error: ValidationError) -> SettingsError:
        cause = error.errors()[0].get("ctx", {}).get("error")
        if isinstance(cause, cls):  # from __post_init__
            return cause
        field, sentence = fault_of(error)
        return cls(sentence, field.partition(".")[0])


def plain(value: Any) -> Any:
    """Return a scalar of NumPy or PyTorch as Python's type, and a whole float as an int.

    JSON and sliders do not distinguish 4 and 4.0.
    """
    if type(value) in (int, str, bool):
        return value
    if getattr(value, "shape", None) == ():
        value = value.item()
    return int(value) if isinstance(value, float) and value.is_integer() else value


def as_logit_bias(value: Any) -> Any:
    """Return a mapping of token ids, or pairs from JSON, as a ``LogitBias``.

    Any other value is returned unchanged, and validation rejects it.
    """
    if isinstance(value, Mapping):
        try:
            value = sorted({int(token): plain(bias) for token, bias in value.items()}.items())
        except (TypeError, ValueError, OverflowError):
            return value
    if not isinstance(value, list | tuple):
        return value
    return tuple(tuple(pair) if isinstance(pair, list) else pair for pair in value)


def _raises_settings_error(cls: type[T]) -> type[T]:
    """Let the constructor accept values of NumPy, and raise SettingsError."""
    init: Any = cls.__init__

    @wraps(init)
    def validate(self: T, *args: Any, **values: Any) -> None:
        try:
            init(self, *args, **{name: plain(value) for name, value in values.items()})
        except ValidationError as error:
            raise SettingsError.of(error) from None

    cls.__init__ = validate  # type: ignore[assignment]
    return cls


AdditivePenalty = Annotated[float, Field(ge=-MAX_ADDITIVE_PENALTY, le=MAX_ADDITIVE_PENALTY)]
BlockSize = Annotated[int, Field(ge=1, le=MAX_BLOCK_SIZE)] | Literal["auto"]
Bias = tuple[
    Annotated[int, Field(ge=0, le=MAX_INT)], Annotated[float, Field(ge=-MAX_BIAS, le=MAX_BIAS)]
]
LogitBias = Annotated[
    tuple[Bias, ...],
    Field(max_length=MAX_BIASES),
    BeforeValidator(as_logit_bias),
]
"""Pairs of a token id and a value added to its logit, in ascending order of ids."""


@_raises_settings_error
@dataclass(
    frozen=True,
    slots=True,
    config=ConfigDict(
        strict=True, allow_inf_nan=False, extra="forbid", use_attribute_docstrings=True
    ),
)
class DecodeSettings:
    """Settings for decoding one row (arXiv 2604.07023). Raises SettingsError for an invalid value.

    Without lossless there are no drafts, so ``mask_layout`` "every" equals "last". With automatic
    B, "every" lets each forward pass choose the tokens that masks follow. Above temperature 0,
    tokens are sampled with noise that depends on (seed, position). ``top_k``, ``top_p`` and
    ``min_p`` are applied in this order (``predictions.filtered``). The repetition penalty is
    that of transformers' ``generate``, the additive penalties are OpenAI's. ``stop_loops`` ends AR
    and lossless decoding at the same token (``loops.py``).
    """

    method: MethodName = "mars"
    """mars, ar (one token per forward pass), jacobi (AR's text by Jacobi iteration; B must be a
    number), speculative (AR's text, drafted by a second model; B must be a number) or
    block_diffusion (needs a checkpoint trained for it)
    """
    tau: Annotated[float, Field(ge=0, le=1)] = 0.95
    """threshold from 0 to 1: proposals with at least this confidence are accepted"""
    block_size: BlockSize = 4
    """B, the number of proposals per forward pass, or auto"""
    metric: Metric = "probability"
    """confidence measure that is compared with tau: probability, margin or entropy"""
    lossless: bool = False
    """emit only what AR would write; tau then controls how much is drafted"""
    max_new_tokens: Annotated[int, Field(ge=1, le=MAX_NEW_TOKENS)] = 256
    """maximum number of tokens to generate for each prompt"""
    temperature: Annotated[float, Field(ge=0, le=2)] = 0.0
    """sampling temperature; 0 is greedy"""
    seed: Annotated[int, Field(ge=0, le=MAX_INT)] = 0
    """random seed, used only at temperatures above 0"""
    mask_layout: MaskLayout = "last"
    """where a lossless run feeds masks: after every drafted token (every) or only after the last
    one (last)
    """
    lookup: bool = False
    """prompt lookup: a lossless run also drafts the tokens that followed an earlier occurrence of
    its last tokens
    """
    draft: Annotated[str, Field(max_length=MAX_NAME)] = ""
    """name of the draft checkpoint for the method speculative; empty for the target's default"""
    masked: Masked = "both"
    """for the method speculative: which of the two models is fed masks; it must be trained for
    masks
    """
    top_p: Annotated[float, Field(ge=0.01, le=1)] = 1.0
    """above temperature 0: sample only from the most probable tokens, up to this total
    probability
    """
    tau_policy: TauPolicy = "fixed"
    """threshold rule of unverified runs: fixed, entropy (higher where AR's prediction is
    uncertain) or agreement (keeps agreement with AR at agreement_target); tau is the lower bound
    of the adaptive rules
    """
    agreement_target: Annotated[float, Field(ge=0.5, le=0.999)] = 0.95
    """for tau_policy agreement: target share of accepted mask proposals that AR would also have
    chosen
    """
    repetition_penalty: Annotated[float, Field(ge=1, le=2)] = 1.0
    """lowers the probability of tokens that already occur in the prompt or the answer; 1 disables
    it
    """
    stop_loops: bool = False
    """end a run when its text begins to repeat itself"""
    presence_penalty: AdditivePenalty = 0.0
    """subtracted once from the logit of each token that occurs in the answer so far; 0 disables
    it
    """
    frequency_penalty: AdditivePenalty = 0.0
    """subtracted from the logit of a token once for each time it occurs in the answer so far; 0
    disables it
    """
    logit_bias: LogitBias = ()
    """values added to the logits of tokens, by token id"""
    top_k: Annotated[int, Field(ge=-1, le=MAX_INT)] = 0
    """above temperature 0: sample from this many of the most probable tokens; 0 or -1 for all"""
    min_p: Annotated[float, Field(ge=0, le=1)] = 0.0
    """above temperature 0: sample only from tokens whose probability is at least this share of the
    highest one; 0 allows all
    """
    min_tokens: Annotated[int, Field(ge=0, le=MAX_NEW_TOKENS)] = 0
    """minimum number of tokens in an answer"""
    ignore_eos: bool = False
    """continue after the token that ends an answer"""

    def __post_init__(self) -> None:
        facts = self.facts
        if self.block_size == AUTO and not facts.has_auto and "block_size" in facts.obeys:
            raise SettingsError(f"{facts.title} needs a number as B.", "method")
        for name in facts.refuses:
            if getattr(self, name) != _DEFAULTS[name]:
                raise SettingsError(
                    f"{name} does not work with {facts.title}: leave it out.", "method"
                )

    @property
    def facts(self) -> Method:
        """The method itself."""
        return METHODS[self.method]

    @property
    def num_proposals(self) -> int:
        """Number of proposals per forward pass: one from AR and B - 1 from masks.

        It is 1 for a method without masks, and for automatic B until B is chosen.
        """
        return self.facts.num_proposals(self)

    @property
    def num_guesses(self) -> int:
        """Maximum number of drafts per forward pass from a draft model or from guesses."""
        return self.facts.num_guesses(self)

    @property
    def is_verified(self) -> bool:
        """Whether drafts are verified before they are emitted, so that the output equals AR's.

        False for AR, which has no drafts.
        """
        return self.facts.is_verified(self)

    @property
    def is_ar_lookup(self) -> bool:
        """Whether the settings are AR that verifies drafts from prompt lookup, without masks."""
        is_choice = "lossless" in self.facts.obeys
        return is_choice and self.lossless and self.lookup and self.block_size == 1

    @property
    def is_adaptive(self) -> bool:
        """Whether tau is only the lower bound of an adaptive threshold."""
        obeys = "tau_policy" in self.facts.obeys
        return obeys and self.tau_policy != "fixed" and not self.lossless

    @property
    def has_additive_penalty(self) -> bool:
        """Whether a penalty is subtracted from the logits of tokens in the answer so far."""
        return bool(self.presence_penalty or self.frequency_penalty)

    @property
    def has_logit_changes(self) -> bool:
        """Whether logits change before predictions are read from them (``predictions.Penalty``)."""
        return (
            self.repetition_penalty != 1
            or self.has_additive_penalty
            or bool(self.logit_bias or self.min_tokens)
        )

    @property
    def is_auto(self) -> bool:
        """Whether B is chosen automatically for each forward pass."""
        return self.block_size == AUTO and self.facts.has_auto


_DEFAULTS = {entry.name: entry.default for entry in fields(DecodeSettings)}
_SCHEMA = TypeAdapter(DecodeSettings).json_schema()["properties"]
SETTINGS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        name: {**schema, "description": " ".join(schema["description"].split())}
        for name, schema in _SCHEMA.items()
    }
)
"""Name of each setting -> its JSON schema: type, limits, default and description."""
_CHOSEN_FOR = frozenset({"method"}).union(*(facts.obeys for facts in METHODS.values()))
OBEYED_BY_ALL = tuple(name for name in SETTINGS if name not in _CHOSEN_FOR)
"""Settings that every method uses. ``METHODS`` lists the other settings of each method."""


def parse_settings(texts: Mapping[str, str]) -> dict[str, Any]:
    """Return the values that texts contain, by name of the setting. Raises SettingsError."""
    validator: Any = DecodeSettings.__pydantic_validator__  # type: ignore[attr-defined]
    try:
        settings = validator.validate_strings(texts)
    except ValidationError as error:
        raise SettingsError.of(error) from None
    return {name: getattr(settings, name) for name in texts}


def read_settings(value: Any) -> DecodeSettings:
    """Return settings from a JSON object; unknown names are ignored.

    Raises SettingsError, or ValueError if the value is not an object.
    """
    if isinstance(value, DecodeSettings):
        return value
    values = as_mapping(value)
    return DecodeSettings(**{name: values[name] for name in SETTINGS if name in values})


RECOMMENDED = DecodeSettings(
    tau=0.0, lossless=True, block_size=AUTO, mask_layout="every", lookup=True
)
"""Defaults of programs (API, commands, endpoints): AR's own text, in the least time."""

FIXED_BLOCK_SIZE = 4
"""B of the page as it opens, and of methods that cannot choose B automatically."""
PAGE = DecodeSettings(tau=0.3, lossless=True, block_size=FIXED_BLOCK_SIZE)
"""Initial settings of the page: AR's own text by masks only, in the same passes on each run."""


EXACTNESS = {
    True: "lossless is bitwise exact",
    False: "lossless is exact except at near ties",
}
"""How exactly lossless text equals AR's, by ``Header.is_bitwise``."""


def recommended(values: Mapping[str, Any]) -> DecodeSettings:
    """Return settings with these values, by name.

    The others have the recommended values for MARS, and the defaults for any other method. Raises
    SettingsError.
    """
    is_usual = values.get("method", RECOMMENDED.method) == RECOMMENDED.method
    return replace(RECOMMENDED if is_usual else DecodeSettings(), **values)


AR_LOOKUP = DecodeSettings(tau=0.0, block_size=1, lossless=True, lookup=True)
"""Plain AR that verifies drafts from prompt lookup, without masks."""


def describe(settings: DecodeSettings) -> str:
    """Return a short name of the settings, without default values.

    Examples: ``AR``, ``AR + lookup``, ``MARS τ=0.95 B=4``, ``lossless τ=0 B=4 groups + lookup``,
    ``Jacobi B=4``, ``AR penalty 1.1``.
    """
    extras = [
        f" {word} {value:g}"
        for word, value, neutral in (
            ("penalty", settings.repetition_penalty, 1),
            ("presence", settings.presence_penalty, 0),
            ("frequency", settings.frequency_penalty, 0),
            ("min tokens", settings.min_tokens, 0),
        )
        if value != neutral
    ]
    extras += [" biased"] * bool(settings.logit_bias) + [" ignores EOS"] * settings.ignore_eos
    return "".join([settings.facts.describe(settings), *extras])
