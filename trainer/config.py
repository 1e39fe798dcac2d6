"""What a run is: one frozen object, from keywords or a TOML file, checked whole before anything starts.

The defaults are the recipe of the paper's appendix "Training details"; `micro` is the same science for a
laptop. Fields fall into two groups. Those that say **what** is trained (shape, data, recipe, seed) are the
identity of the run: a checkpoint of one identity is never continued with another. Those in `Execution` say
only **how** it is run (device, memory, files, logging).

    RunConfig(preset="micro", params="100k", unique_tokens="128k", epochs=4, weight_decay=1.0)
"""

from __future__ import annotations

import difflib
import hashlib
import json
import os
import tomllib
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)

from planner.hardware import LARGEST_VOCAB, Architecture, preset, run_length, shape_for
from planner.inputs import InvalidInput, count
from trainer.errors import reason

VALIDATION_STEPS = 500  # whose tokens bound those of validation, where a config does not
STANDARD_LIBRARY = "python-stdlib"  # the source of the running Python's standard library, without its tests

Count = Annotated[int, BeforeValidator(lambda value: round(count(value, "a count")))]
Switch = Annotated[
    Literal["auto", "on", "off"],
    BeforeValidator(lambda v: {True: "on", False: "off"}.get(v, v) if isinstance(v, bool) else v),
]
Texts = Annotated[tuple[str, ...], BeforeValidator(lambda v: (v,) if isinstance(v, str) else v)]  # or one
T = TypeVar("T")
Execution = Annotated[T, "execution"]  # how a run is trained, not what
Later = Annotated[T, "later"]  # left out of the identity at its default, as by versions that did not have it


class _Checked(BaseModel):
    """Frozen, no unknown keys, and mistakes named in one sentence."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
    inside: ClassVar[str] = ""  # the table that the fields are written in

    def __init__(self, **values: Any):
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise InvalidInput(_explain(error, type(self))) from None


class Corpus(_Checked):
    """Where the text comes from: local files, or a Hugging Face dataset by name."""

    inside: ClassVar[str] = "corpus."
    # files, folders or glob patterns; "python-stdlib" is the running Python's library
    paths: Texts = ()
    dataset: str | None = None  # a Hugging Face dataset, streamed; never runs code of the dataset
    subset: str | None = None
    split: str = "train"
    revision: str | None = None
    text_field: str = "text"  # of JSON lines, Parquet and datasets
    format: Literal["auto", "text", "jsonl", "parquet"] = "auto"  # auto: by the file's name
    separator: str | None = None  # splits text files into documents; without it a file is a document
    exclude: Texts = ()  # glob patterns of files to leave out
    # of documents; auto: shuffled by content for files, interleaved file by file for datasets
    order: Literal["auto", "shuffled", "as-is", "interleaved"] = "auto"
    # stop tokenising after so many training tokens; default: all of local files, what is needed of datasets
    tokens: Count | None = None

    @model_validator(mode="after")
    def _one_source(self) -> Corpus:
        if bool(self.paths) == bool(self.dataset):
            both = "paths (files, folders, patterns) or dataset (a Hugging Face name)"
            raise ValueError(f"corpus needs either {both}")
        if self.order == "interleaved" and not self.streamed:
            raise ValueError("corpus.order 'interleaved' is for datasets; 'shuffled' would do for files")
        return self

    @property
    def streamed(self) -> bool:
        return self.dataset is not None

    @property
    def interleaved(self) -> bool:
        return self.streamed and self.order in ("auto", "interleaved")

    @property
    def shuffled(self) -> bool:
        return self.order == "shuffled" or (self.order == "auto" and not self.streamed)

    def describe(self) -> str:
        names = (self.dataset, self.subset, self.split) if self.dataset else self.paths
        return ", ".join(filter(None, names))


class Shape(_Checked):
    """A Llama-2 shape of one's own; the size of a head follows."""

    inside: ClassVar[str] = "shape."
    d_model: int = Field(gt=0, le=2**40)
    layers: int = Field(gt=0, le=2**40)
    heads: int = Field(gt=0, le=2**40)
    d_ff: int = Field(gt=0, le=2**40)

    @model_validator(mode="after")
    def _heads_divide(self) -> Shape:
        if self.d_model % self.heads:
            raise ValueError(f"heads must divide d_model; got {self.heads} heads for d_model {self.d_model}")
        if (self.d_model // self.heads) % 2:
            raise ValueError(
                f"d_model / heads must be even for rotary positions; got {self.d_model} / {self.heads}"
            )
        return self


class Distillation(_Checked):
    """An ensemble whose predictions are part of the loss; see trainer.model.distillation_loss."""

    inside: ClassVar[str] = "distill."
    members: Texts = Field(min_length=1)  # directories of finished runs
    weight: float = Field(0.9, ge=0, le=1)  # of the members in the loss; the rest is the data's
    temperature: float = Field(1.0, gt=0)
    checksums: tuple[str, ...] = ()  # of the members' weights, so that they may move

    @model_validator(mode="after")
    def _checksum_each(self) -> Distillation:
        if self.checksums and len(self.checksums) != len(self.members):
            raise ValueError("distill.checksums must be as many as distill.members, or none")
        return self


FINEWEB = Corpus.model_construct(dataset="HuggingFaceFW/fineweb", subset="sample-10BT")

PRESETS: dict[str, dict[str, Any]] = {
    "paper": {},
    "micro": {
        "corpus": {"paths": STANDARD_LIBRARY},
        "tokenizer": "bpe:1024",
        "sequence_length": 128,
        "batch_size": 4,
        "learning_rate": 1e-2,
        # at widths of 32 to 128 and this rate, the ordinary one takes half of a short run to get going
        "init": "scaled",
        "validation_documents": 48,
        "development_documents": 16,
    },
}


class RunConfig(_Checked):
    """One run. Give `shape` (a preset name or a table) or `params`, `unique_tokens`, and a tokenizer."""

    preset: Execution[str] = "paper"

    # Model
    shape: str | Shape | None = None
    params: Count | None = None
    # rows of the embedding; default: the preset's 32,100, else the tokenizer's size
    vocab_size: int | None = Field(None, gt=1, le=LARGEST_VOCAB)
    tied_embeddings: bool = False
    rope_theta: float = Field(10_000.0, gt=0)
    norm_eps: float = Field(1e-5, gt=0)
    # first weights: 0.02 for all matrices, or by width and depth; see trainer.model.llama
    init: Literal["normal", "scaled"] = "normal"

    # Data
    corpus: Corpus = FINEWEB
    tokenizer: str = Field(min_length=1)  # "bytes", "bpe:1024", a tokenizer.json, or a SentencePiece .model
    eos_token: str | None = None  # only where a tokenizer.json does not say which token ends a document
    sequence_length: int = Field(512, gt=1, le=2**20)
    unique_tokens: Count
    epochs: float = Field(1.0, gt=0, le=1_000_000)
    order: Literal["shuffle", "fixed"] = "shuffle"
    validation_documents: int = Field(6400, gt=0)
    # of each held-out set at most so many tokens are predicted; default: as many as VALIDATION_STEPS steps
    validation_tokens: Later[Count | None] = Field(None, gt=0)
    # a second held-out set, for choosing settings without touching the reported one
    development_documents: int = Field(0, ge=0)

    # Recipe
    batch_size: int = Field(128, gt=0, le=2**20)
    learning_rate: float = Field(2e-4, gt=0)
    min_lr_ratio: float = Field(0.1, ge=0, le=1)
    warmup_ratio: float = Field(0.01, ge=0, lt=1)
    betas: tuple[float, float] = (0.9, 0.95)
    adam_eps: float = Field(1e-8, gt=0)
    weight_decay: float = Field(0.1, ge=0)
    decay: Literal["matrices", "matrices-without-embeddings", "all"] = "matrices"
    clip: float = Field(1.0, gt=0)
    optimizer: Later[Literal["adamw", "muon"]] = "adamw"  # muon: for the matrices of the body
    muon_weight_decay: Later[float | None] = Field(None, ge=0)  # of those matrices; default: weight_decay
    dropout: Later[float] = Field(0.0, ge=0, lt=1)  # of the embedding and of what each block adds to it
    # wsd: warm-up, stable, decay over the last `decay_ratio`
    schedule: Later[Literal["cosine", "wsd"]] = "cosine"
    warmup_steps: Later[int | None] = Field(None, ge=0)  # in place of warmup_ratio
    decay_ratio: Later[float] = Field(0.2, gt=0, le=1)
    # averages of the weights, see trainer.run.averaging
    ema_decay: Later[float | None] = Field(None, gt=0, lt=1)
    average_last: Later[int | None] = Field(None, gt=1)
    average_every: Later[int | None] = Field(None, gt=0)  # steps; default: a hundredth of all
    seed: int = Field(0, ge=0)

    # An ensemble to learn from; without it the data alone teaches
    distill: Later[Distillation | None] = None

    # Execution
    device: Execution[str] = "auto"
    dtype: Literal["auto", "fp32", "bf16"] = "auto"
    attention: Execution[Literal["auto", "sdpa", "flash"]] = "auto"
    products: Execution[Literal["auto", "torch", "onednn"]] = "auto"  # library of matrix products on a CPU
    compile: Execution[Switch] = "auto"
    # layers going backward, to save memory; auto: where one row does not fit
    recompute: Execution[Switch] = "auto"
    # on a GPU: kernels that give the same bits each time, without which a run that goes on may differ
    deterministic: Execution[bool] = True
    micro_batch: Execution[int | None] = Field(None, gt=0)  # rows per forward pass; default: as many as fit
    # a finished or running run with schedule "wsd" and the same settings, whose checkpoint before the decay
    # begins is gone on from: the same bits as from the start
    trunk: Execution[str | None] = None
    branches: Execution[tuple[float, ...]] = ()  # numbers of epochs for which this run keeps such checkpoints
    checkpoint_every: Execution[int | None] = Field(None, gt=0)  # steps
    checkpoint_seconds: Execution[float | None] = Field(None, gt=0)  # default: as often as they cost little
    log_every: Execution[int] = Field(10, gt=0)
    # steps between validations while training, with which epoch ends are validated too; "epoch": those alone
    validate_every: Execution[int | Literal["epoch"] | None] = None
    tensorboard: Execution[bool] = False
    wandb: Execution[str | None] = None  # a Weights & Biases project
    # folder of token files; default: DATABOUND_CACHE or ~/.cache/databound
    cache: Execution[str | None] = None

    def __init__(self, **values: Any):
        name = values.get("preset", "paper")
        if not isinstance(name, str) or name not in PRESETS:
            raise InvalidInput(f"must be one of {', '.join(PRESETS)}; got {name!r}.", field="preset")
        super().__init__(**PRESETS[name] | values)

    @field_validator("corpus", mode="before")
    @classmethod
    def _paths_alone(cls, value: Any) -> Any:
        found = _as_corpus(value)
        if not isinstance(found, dict | Corpus):
            kinds = "a path, a list of paths, or a table of paths or dataset"
            raise ValueError(f"corpus must be {kinds}; got {value!r}")
        return found

    @field_validator("shape", mode="before")
    @classmethod
    def _name_or_table(cls, value: Any) -> Any:
        if not isinstance(value, str | dict | Shape | None):
            kinds = "a name such as '15M' or a table of d_model, layers, heads, d_ff"
            raise ValueError(f"shape must be {kinds}; got {value!r}")
        return Shape(**value) if isinstance(value, dict) else value

    @field_validator("betas", mode="before")
    @classmethod
    def _two_betas(cls, value: Any) -> Any:
        if not isinstance(value, list | tuple) or len(value) != 2:
            raise ValueError(f"betas must be two numbers, such as [0.9, 0.95]; got {value!r}")
        return value

    @field_validator("betas")
    @classmethod
    def _below_one(cls, value: tuple[float, float]) -> tuple[float, float]:
        if not all(0 <= beta < 1 for beta in value):
            raise ValueError(f"betas must be at least 0 and below 1; got {value}")
        return value

    @field_validator("validate_every", mode="before")
    @classmethod
    def _steps_or_epoch(cls, value: Any) -> Any:
        if value in (None, "epoch") or (type(value) is int and value > 0):
            return value
        raise ValueError(f"validate_every must be a number of steps, or 'epoch'; got {value!r}")

    @model_validator(mode="after")
    def _one_shape(self) -> RunConfig:
        if (self.shape is None) == (self.params is None):
            raise ValueError(
                "give either shape (such as '15M' or a table of d_model, layers, heads, d_ff) or params "
                "(such as '100k')"
            )
        if isinstance(self.shape, str):
            preset(self.shape)
        if self.muon_weight_decay is not None and self.optimizer != "muon":
            raise ValueError("muon_weight_decay needs optimizer = 'muon'")
        if self.ema_decay and self.average_last:
            raise ValueError("give either ema_decay or average_last: a run has one average of its weights")
        if self.schedule == "wsd" and self.warmup_steps is None:
            alike = "so that runs of any length begin alike; such as 100"
            raise ValueError(f"schedule 'wsd' needs warmup_steps, {alike}")
        if self.schedule != "wsd" and (self.trunk or self.branches):
            raise ValueError("trunk and branches need schedule = 'wsd', whose runs begin alike")
        if self.unique_tokens < self.sequence_length:
            raise ValueError(
                f"unique_tokens must fill at least one sequence of {self.sequence_length} tokens; got "
                f"{self.unique_tokens}"
            )
        return self

    @classmethod
    def from_toml(cls, path: str | Path, **changes: Any) -> RunConfig:
        """The run described by a TOML file; relative paths in it are relative to the file.

        A change named `corpus.tokens` changes one field of a table.
        """
        path = Path(path)
        try:
            values = tomllib.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise InvalidInput(f"there is no file {path}; give the path of a run's TOML file.") from None
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidInput(f"{path} cannot be read: {reason(error)}.") from None
        except tomllib.TOMLDecodeError as error:
            raise InvalidInput(f"{path} is not TOML: {_lower(str(error))}.") from None
        try:
            return cls(**changed(anchored(values, path.parent), changes))
        except InvalidInput as error:
            raise InvalidInput(f"{path}: {error}") from None

    def having(self, **changes: Any) -> RunConfig:
        """A copy with some fields changed, checked again."""
        return type(self)(**self.model_dump(exclude_unset=True) | changes)

    def architecture(self, tokenizer_size: int) -> Architecture:
        """The model's shape, once the size of the vocabulary is known."""
        if isinstance(self.shape, str):
            known = preset(self.shape)
            vocab = self.vocab_size or known.vocab_size
            built = known.model_copy(update={"vocab_size": vocab, "tied_embeddings": self.tied_embeddings})
            if built != known:
                built = built.model_copy(update={"preset": None})  # no longer the paper's shape
        else:
            vocab = self.vocab_size or tokenizer_size
            how: dict[str, Any] = {"vocab_size": vocab, "tied_embeddings": self.tied_embeddings}
            if self.shape is None:
                built = shape_for(self.params, **how)
            else:
                d_head = self.shape.d_model // self.shape.heads
                built = Architecture(**self.shape.model_dump(), d_head=d_head, **how)
        if vocab < tokenizer_size:
            too_small = f"{vocab:,} is smaller than the tokenizer's {tokenizer_size:,} tokens"
            raise InvalidInput(f"{too_small}; a larger one would do.", field="vocab_size")
        return built

    def length(self, epochs: float | None = None) -> tuple[int, int, int]:
        """Sequences of an epoch, of the run or one of other epochs, and its steps."""
        epochs = self.epochs if epochs is None else epochs
        return run_length(self.unique_tokens, epochs, self.sequence_length, self.batch_size)

    @property
    def most_validation_tokens(self) -> int:
        """Tokens of a held-out set that are predicted: of one recipe the same, however long a run is."""
        return self.validation_tokens or VALIDATION_STEPS * self.batch_size * self.sequence_length

    def identity(self) -> dict[str, Any]:
        """The fields that say what is trained; a checkpoint belongs to exactly one identity."""
        identity = self.model_dump(mode="json", exclude=EXECUTION)
        for name in LATER:
            if identity[name] == type(self).model_fields[name].default:
                del identity[name]
        if "distill" in identity and (checksums := identity["distill"].pop("checksums")):
            identity["distill"]["members"] = checksums
        # which files there are is in the fingerprint of the data, by content
        del identity["corpus"]["paths"], identity["corpus"]["exclude"]
        if self.tokenizer != "bytes" and not self.tokenizer.startswith("bpe:"):
            identity["tokenizer"] = "a file"  # likewise
        return identity

    def fingerprint(self) -> str:
        known = json.dumps(self.identity(), sort_keys=True).encode()
        return hashlib.blake2b(known, digest_size=8).hexdigest()


EXECUTION, LATER = (
    {name for name, field in RunConfig.model_fields.items() if mark in field.metadata}
    for mark in ("execution", "later")
)


def changed(values: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """Values with some replaced; a name with a dot is that of a field of a table."""
    # whole tables, then fields of them
    for name, value in sorted(changes.items(), key=lambda change: "." in change[0]):
        table, dot, field = name.partition(".")
        if dot:
            before = values.get(table, PRESETS.get(str(values.get("preset")), {}).get(table))
            if table == "corpus":
                before = _as_corpus(before) if before is not None else FINEWEB.model_dump(exclude_unset=True)
            value = (before if isinstance(before, dict) else {}) | {field: value}
        values = values | {table: value}
    return values


def _as_corpus(value: Any) -> Any:
    """Paths alone are a corpus."""
    return {"paths": value} if isinstance(value, str | list | tuple) else value


def differences(stored: dict[str, Any], asked: dict[str, Any]) -> str:
    """The fields in which two identities differ, at most three, with both values."""
    one, two = _flat(stored), _flat(asked)
    names = [name for name in {**one, **two} if one.get(name) != two.get(name)]
    return ", ".join(f"{name} ({one.get(name)!r}, now {two.get(name)!r})" for name in names[:3])


def _flat(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in values.items():
        flat |= _flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {prefix + name: value}
    return flat


def anchored(values: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Relative paths of a TOML file, made relative to its folder."""

    def anchor(path: Any) -> Any:
        if isinstance(path, list):
            return [anchor(one) for one in path]
        there = isinstance(path, str) and path != STANDARD_LIBRARY
        return str(folder / os.path.expanduser(path)) if there else path

    corpus, distill = _as_corpus(values.get("corpus")), values.get("distill")
    for name, field, table in (("corpus", "paths", corpus), ("distill", "members", distill)):
        if isinstance(table, dict) and field in table:
            values = values | {name: table | {field: anchor(table[field])}}
    tokenizer = values.get("tokenizer")
    is_file = isinstance(tokenizer, str) and (folder / os.path.expanduser(tokenizer)).is_file()
    plain = ("trunk", "cache", "tokenizer") if is_file else ("trunk", "cache")
    return values | {name: anchor(values[name]) for name in plain if name in values}


def _explain(error: ValidationError, model: type[_Checked]) -> str:
    """The first mistake, as a sentence with the field's name, what was given and what would do."""
    # a typo explains the rest
    first = min(error.errors(include_url=False), key=lambda found: found["type"] != "extra_forbidden")
    parts = (str(part) for part in first["loc"])
    place = model.inside + ".".join(p for p in parts if not p.startswith(("function-", "Shape", "str")))
    if first["type"] == "extra_forbidden":
        close = difflib.get_close_matches(place.split(".")[-1], model.model_fields, n=1)
        meant = f"; did you mean {model.inside}{close[0]}" if close else ""
        return f"{place} is not a setting of a run{meant}."
    if first["type"] == "missing":
        return f"{place} is missing; a run needs it."
    if first["type"] == "value_error":
        text = str(first["ctx"]["error"]).replace("a count", place or "the count").rstrip(".")
        return f"{text}."
    given = " ".join(repr(first["input"]).split())
    return f"{place}: {_lower(first['msg'])}; got {given if len(given) <= 60 else given[:57] + '...'}."


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:].rstrip(".")
