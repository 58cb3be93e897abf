"""Settings of decoding, defined in one table and validated on construction.

Each field of ``DecodeSettings`` is one entry of the table. Validation, command-line flags,
endpoints, the page's controls and the types of its scripts are derived from it. The module uses no
model, tokenizer or torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import reduce
from operator import attrgetter, or_
from reprlib import repr as shown
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, get_args, get_type_hints

from pydantic import BeforeValidator, ConfigDict, Field, TypeAdapter, ValidationError

from mars_runtime.decoders.methods import AUTO, MAX_BLOCK_SIZE, METHODS, Method
from mars_runtime.errors import MarsError
from mars_runtime.files.json_values import MAX_INT, as_mapping

if TYPE_CHECKING:
    MethodName = str
else:
    MethodName = Literal[tuple(METHODS)]
Metric = Literal["probability", "margin", "entropy"]
MaskLayout = Literal["last", "every"]
Masked = Literal["both", "draft", "target", "none"]
TauPolicy = Literal["fixed", "entropy", "agreement"]
AutoObjective = Literal["time", "passes"]
BlockSize = int | Literal["auto"]
LogitBias = tuple[tuple[int, float], ...]
"""Pairs of a token id and a value added to its logit, in ascending order of ids."""

METRICS: tuple[Metric, ...] = get_args(Metric)
MASK_LAYOUTS: tuple[MaskLayout, ...] = get_args(MaskLayout)
MASKED: tuple[Masked, ...] = get_args(Masked)
TAU_POLICIES: tuple[TauPolicy, ...] = get_args(TauPolicy)
AUTO_OBJECTIVES: tuple[AutoObjective, ...] = get_args(AutoObjective)
MIN_CACHE_BLOCK, MAX_CACHE_BLOCK = 4, 256  # positions per block of the block cache
MAX_FED = 64  # maximum number of tokens that one step feeds for a row, masks included
MAX_NEW_TOKENS = 4096
MAX_BIASES, MAX_BIAS = 300, 100
MAX_ADDITIVE_PENALTY = 2
MAX_DIGITS = 20  # longer integers are parsed as floats: no setting allows them
MAX_NAME = 200  # maximum number of characters of a checkpoint's name
T = TypeVar("T")


class SettingsError(MarsError, ValueError):
    """A setting is invalid; the message is one sentence that explains what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One entry of the table of settings.

    what: how its error messages name it.
    says: its description in one line, for flags and schemas.
    low, high: its range, inclusive.
    label, info, step: label, hint and step of its control on the page; step 0 makes it a text
        field.
    titles: titles of its choices on the page.
    link: its name in links; empty if the page has no control for it.
    is_steered: whether it may change during a run.
    """

    what: str
    says: str
    low: float | None = None
    high: float | None = None
    label: str = ""
    info: str = ""
    titles: Mapping[str, str] = field(default_factory=dict)
    step: float = 1
    link: str = ""
    is_steered: bool = False
    name: str = ""
    default: Any = None
    type: Any = None

    @property
    def choices(self) -> tuple[str, ...]:
        """The allowed words; empty if the setting is a number, a switch or a name."""
        return tuple(word for word in get_args(self.type) if isinstance(word, str))

    @property
    def schema_type(self) -> Any:
        """The type with its range and allowed words, from which pydantic builds validators and
        schemas.
        """
        if self.type == LogitBias:
            return Annotated[_LOGIT_BIAS, Field(description=self.says)]
        is_name = self.type is str
        limits = Field(max_length=MAX_NAME) if is_name else Field(ge=self.low, le=self.high)
        types = get_args(self.type) if self.type == BlockSize else (self.type,)
        ranged = [
            Annotated[type_, limits] if type_ in (int, float, str) else type_ for type_ in types
        ]
        return Annotated[reduce(or_, ranged), Field(description=self.says)]

    @property
    def refusal(self) -> str:
        """The error message for an invalid value; it does not contain that value."""
        if self.choices:
            return f"{self.what} must be one of {', '.join(self.choices)}."
        if self.type == LogitBias:
            limits = f"numbers from {-MAX_BIAS} to {MAX_BIAS}"
            return f"{self.what} must map at most {MAX_BIASES} token ids to {limits}."
        if self.type is bool:
            return f"{self.what} must be on or off."
        if self.type is str:
            return (
                f"{self.what} must be the name of a checkpoint, at most {MAX_NAME} characters long."
            )
        if self.type is float:
            return f"{self.what} must be a number from {self.low:g} to {self.high:g}."
        alternative = f", or {AUTO}" if self.type == BlockSize else ""
        return f"{self.what} must be a whole number from {self.low} to {self.high}{alternative}."


def plain(value: Any) -> Any:
    """Return a scalar of NumPy or PyTorch as Python's type, and any other value unchanged."""
    return value.item() if getattr(value, "shape", None) == () else value


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


_LOGIT_BIAS = Annotated[
    tuple[
        tuple[
            Annotated[int, Field(ge=0, le=MAX_INT)],
            Annotated[float, Field(ge=-MAX_BIAS, le=MAX_BIAS)],
        ],
        ...,
    ],
    Field(max_length=MAX_BIASES),
    BeforeValidator(as_logit_bias, json_schema_input_type=dict[str, float]),
]


def setting(default: T, what: str, says: str, **options: Any) -> T:
    """Define a field of DecodeSettings. ``options`` are further arguments of ``Setting``."""
    line = Setting(what=what, says=says, default=default, **options)
    return field(default=default, metadata={"line": line})


@dataclass(frozen=True, slots=True)
class DecodeSettings:
    """Settings for decoding one row (arXiv 2604.07023). Each field is an entry of the table of
    settings.

    method: ``ar`` emits one token per forward pass. ``mars`` accepts proposals from left to right.
        ``jacobi`` verifies guesses, which are the predictions of the previous forward pass.
        ``speculative`` verifies the drafts of a second, smaller model
        (``decoders/draft_model.py``). ``block_diffusion`` fills blocks in order of confidence
        (``decoders/diffusion.py``).
    tau: minimum confidence of an accepted proposal. The first proposal is always accepted.
    block_size: the block size B. B - 1 of the proposals of a forward pass come from masks, or are
        guesses of ``jacobi``. ``auto`` chooses the B with the most expected tokens per second; it
        uses the costs of forward passes on the device and the row's acceptance so far. With
        ``speculative`` it is also the number of tokens to draft.
    metric: the confidence measure that is compared with tau (``model/predictions.py``).
    max_new_tokens: maximum number of tokens in the answer, EOS included.
    temperature: 0 is greedy. Above 0, tokens are sampled with noise that depends on (seed,
        position).
    mask_layout: the tokens after which masks are fed. ``last``: B - 1 masks after the last pending
        token. ``every``: B - 1 masks after each draft as well, so proposals are available no matter
        which draft is the last accepted one. Without lossless there are no drafts, so ``every``
        equals ``last``. With automatic B, ``every`` lets each forward pass choose the tokens that
        masks follow.
    lookup: also draft tokens that followed an earlier occurrence of the last tokens; lossless only.
    draft: name of the draft model for ``speculative``; empty for the checkpoint's default.
    masked: which models are fed masks with ``speculative``: the draft model (to propose several
        tokens per forward pass), the target (to propose tokens that the draft model continues),
        both or none. A model must be trained for masks.
    repetition_penalty: lowers the logits of tokens that occur in the prompt or the answer so far
        (``predictions.Penalty``). Greedy output equals that of transformers' ``generate`` with the
        parameter of this name.
    presence_penalty, frequency_penalty: subtracted from the logit of each token of the answer so
        far, once and per occurrence. The prompt does not count (OpenAI's definition).
    logit_bias: values added to the logits of tokens.
    top_k, top_p, min_p: filters for sampling, applied in this order (``predictions.draw_tokens``).
    min_tokens: minimum number of tokens before EOS.
    ignore_eos: treat EOS like any other token, so only the limit or a repetition ends a row.
    stop_loops: end a row when its text repeats itself (``loops.py``). AR and lossless decoding end
        at the same token, and no earlier token changes.
    tau_policy: ``fixed``, or an adaptive threshold with ``tau`` as its lower bound
        (``decoders/plan.py``). ``entropy`` raises the threshold with the entropy of AR's own
        prediction. ``agreement`` raises it until AR would have chosen the share
        ``agreement_target`` of the accepted tokens. Only for ``mars`` without lossless.
    auto_objective: what automatic B minimises: time, or the number of forward passes
        (``decoders/drafting.py``).

    Raises SettingsError for an invalid value.
    """

    method: MethodName = setting(
        "mars",
        "The method",
        "mars, ar (one token per forward pass), jacobi (AR's text by Jacobi iteration; B must "
        "be a number), speculative (AR's text, drafted by a second model; B must be a number) or "
        "block_diffusion (needs a checkpoint trained for it)",
    )
    tau: float = setting(
        0.95,
        "The threshold τ",
        "threshold from 0 to 1: proposals with at least this confidence are accepted",
        low=0,
        high=1,
        step=0.01,
        label="τ threshold",
        link="tau",
        is_steered=True,
    )
    block_size: BlockSize = setting(
        4,
        "The block size B",
        "B, the number of proposals per forward pass, or auto",
        low=1,
        high=MAX_BLOCK_SIZE,
        label="B proposals",
        link="block_size",
        is_steered=True,
    )
    metric: Metric = setting(
        "probability",
        "The confidence measure",
        "confidence measure that is compared with tau: probability, margin or entropy",
        label="Confidence measure",
        titles={"margin": "top-2 margin"},
        link="metric",
        is_steered=True,
    )
    lossless: bool = setting(
        False,
        "Lossless",
        "emit only what AR would write; tau then controls how much is drafted",
        label="Lossless: exactly plain AR's text",
        link="lossless",
        is_steered=True,
    )
    max_new_tokens: int = setting(
        256,
        "The number of tokens to generate",
        "maximum number of tokens to generate for each prompt",
        low=1,
        high=MAX_NEW_TOKENS,
        label="Max tokens",
        link="max_new_tokens",
    )
    temperature: float = setting(
        0.0,
        "The temperature",
        "sampling temperature; 0 is greedy",
        low=0,
        high=2,
        step=0.05,
        label="Temperature",
        info="0 is greedy.",
        link="temperature",
    )
    seed: int = setting(
        0,
        "The seed",
        "random seed, used only at temperatures above 0",
        low=0,
        high=2**31 - 1,
        step=0,
        label="Seed",
        link="seed",
        info="Used only at temperatures above 0.",
    )
    mask_layout: MaskLayout = setting(
        "last",
        "The mask layout",
        "where a lossless run feeds masks: after every drafted token (every) or only after the "
        "last one (last)",
        label="Masks in lossless runs",
        link="mask_layout",
        is_steered=True,
        titles={"last": "after the last draft", "every": "after every draft"},
    )
    lookup: bool = setting(
        False,
        "Prompt lookup",
        "prompt lookup: a lossless run also drafts the tokens that followed an earlier "
        "occurrence of its last tokens",
        label="MARS with prompt lookup: also draft by copying earlier text (lossless only)",
        link="lookup",
        is_steered=True,
    )
    draft: str = setting(
        "",
        "The draft model",
        "name of the draft checkpoint for the method speculative; empty for the target's default",
    )
    masked: Masked = setting(
        "both",
        "The setting masked",
        "for the method speculative: which of the two models is fed masks",
    )
    top_p: float = setting(
        1.0,
        "Top-p",
        "above temperature 0: sample only from the most probable tokens, up to this total "
        "probability",
        low=0.01,
        high=1,
        step=0.05,
        label="Top-p",
        link="top_p",
        info="1 samples from the whole vocabulary.",
    )
    tau_policy: TauPolicy = setting(
        "fixed",
        "The threshold rule",
        "threshold rule of unverified runs: fixed, entropy (higher where AR's prediction is "
        "uncertain) or agreement (keeps agreement with AR at agreement_target); tau is the lower "
        "bound of the adaptive rules",
        label="Threshold rule (unverified runs)",
        info="Adaptive thresholds never go below τ.",
        titles={"entropy": "by AR's entropy", "agreement": "by agreement with AR"},
        link="tau_policy",
        is_steered=True,
    )
    agreement_target: float = setting(
        0.95,
        "The agreement target",
        "for tau_policy agreement: target share of accepted mask proposals that AR would also have "
        "chosen",
        low=0.5, high=0.999, step=0.01, label="Target agreement with AR",
        info="Only tokens predicted by masks count.", link="agreement_target", is_steered=True,
    )  # fmt: skip
    auto_objective: AutoObjective = setting(
        "time",
        "The objective of auto",
        "objective when B is auto: least time on this machine, or fewest forward passes (the "
        "same number on every machine)",
    )
    repetition_penalty: float = setting(
        1.0,
        "The repetition penalty",
        "lowers the probability of tokens that already occur in the prompt or the answer; 1 "
        "disables it",
        low=1,
        high=2,
        step=0.05,
        label="Repetition penalty",
        info="Applies to tokens of the prompt and the answer; 1 is off.",
        link="repetition_penalty",
    )
    stop_loops: bool = setting(
        False,
        "The setting stop_loops",
        "end a run when its text begins to repeat itself",
        label="Stop when the text starts to loop",
        link="stop_loops",
    )
    presence_penalty: float = setting(
        0.0,
        "The presence penalty",
        "subtracted once from the logit of each token that occurs in the answer so far; 0 disables "
        "it",
        low=-MAX_ADDITIVE_PENALTY,
        high=MAX_ADDITIVE_PENALTY,
    )
    frequency_penalty: float = setting(
        0.0,
        "The frequency penalty",
        "subtracted from the logit of a token once for each time it occurs in the answer so far; 0 "
        "disables it",
        low=-MAX_ADDITIVE_PENALTY,
        high=MAX_ADDITIVE_PENALTY,
    )
    logit_bias: LogitBias = setting(
        (), "The logit bias", "values added to the logits of tokens, by token id"
    )
    top_k: int = setting(
        0,
        "Top-k",
        "above temperature 0: sample from this many of the most probable tokens; 0 or -1 for all",
        low=-1,
        high=2**31 - 1,
    )
    min_p: float = setting(
        0.0,
        "Min-p",
        "above temperature 0: sample only from tokens whose probability is at least this share of "
        "the highest one; 0 allows all",
        low=0,
        high=1,
    )
    min_tokens: int = setting(
        0,
        "The minimum number of tokens",
        "minimum number of tokens in an answer",
        low=0,
        high=MAX_NEW_TOKENS,
    )
    ignore_eos: bool = setting(
        False, "The setting ignore_eos", "continue after the token that ends an answer"
    )

    def __post_init__(self) -> None:
        """Validate tau, block_size and all other settings. Raises SettingsError."""
        for name in SETTINGS:
            object.__setattr__(self, name, plain(getattr(self, name)))
        object.__setattr__(self, "logit_bias", as_logit_bias(self.logit_bias))
        try:
            _validate(_VALUES(self))
        except ValidationError as error:
            index = int(error.errors()[0]["loc"][0])
            value = shown(_VALUES(self)[index])
            refusal = _LINES[index].refusal.removesuffix(".")
            raise SettingsError(f"{refusal}, got {value}.") from None
        facts = self.facts
        if self.block_size == AUTO and not facts.has_auto and "block_size" in facts.obeys:
            raise SettingsError(f"{facts.title} needs a number as B.")
        for name in facts.refuses:
            line = SETTINGS[name]
            if getattr(self, name) != line.default:
                raise SettingsError(f"{line.what} does not work with {facts.title}: leave it out.")

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
    def is_auto(self) -> bool:
        """Whether B is chosen automatically for each forward pass."""
        return self.block_size == AUTO and self.facts.has_auto


_HINTS = get_type_hints(DecodeSettings)
SETTINGS: Mapping[str, Setting] = MappingProxyType(
    {
        entry.name: replace(entry.metadata["line"], name=entry.name, type=_HINTS[entry.name])
        for entry in fields(DecodeSettings)
    }
)
"""Name of each setting -> its description."""
_CHOSEN_FOR = frozenset({"method"}).union(*(facts.obeys for facts in METHODS.values()))
OBEYED_BY_ALL = tuple(name for name in SETTINGS if name not in _CHOSEN_FOR)
"""Settings that every method uses. ``METHODS`` lists the other settings of each method."""
STEERED = tuple(name for name, line in SETTINGS.items() if line.is_steered)
_LINES = tuple(SETTINGS.values())
_VALUES = attrgetter(*SETTINGS)
_VALUES_TYPE: Any = tuple[tuple(line.schema_type for line in _LINES)]  # type: ignore[misc]
_STRICT = ConfigDict(strict=True, allow_inf_nan=False)
_validate = TypeAdapter(_VALUES_TYPE, config=_STRICT).validator.validate_python


def number(text: str) -> object:
    """Return the integer or float that a text contains, else the text, for DecodeSettings to
    validate.
    """
    try:
        return int(text) if len(text) < MAX_DIGITS else float(text)
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        return text


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
