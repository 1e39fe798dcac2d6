"""A finished run, or any causal language model in Hugging Face format, as transformers computes it.

    model = find(folder)                      what it is, without its weights: fingerprint, tokenizer, length
    model.load()                              its weights
    states, past = model.extend(ids, past)    continue sequences by some tokens, after those that `past` holds
    model.log_probabilities(states, picks)    of the (state, target) pairs that are scored

`past` is what makes shared beginnings cheap: it is computed once and then selected for every sequence that
continues it. A batch may hold sequences of different lengths, padded on the right; `Past.real` says which
positions are tokens, padding is never attended to.

No model is trusted to work this way (some scale their logits after the head, some keep no keys and values):
on loading, a few tokens are scored plainly and in parts, and where the two differ the plain way is used for
everything. One whose predictions depend on later tokens is refused.
"""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import torch

from planner.hardware import Architecture
from planner.inputs import InvalidInput
from trainer.config import RunConfig
from trainer.data import tokenizers
from trainer.errors import reason
from trainer.files import checksum
from trainer.model.loss import rows_per_chunk
from trainer.run.device import DTYPES
from trainer.run.export import hf_config, hf_weights, load_run
from trainer.run.result import read_result

LENGTH = 512  # tokens that a model is shown, as in the paper's protocol
BOS = ("auto", "always", "never")
_OWN: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}  # nothing from elsewhere is run
# What configs call a limited reach of attention.
REACH = ("sliding_window", "window_size", "attention_window_size", "attention_chunk_size")
MODEL_FILES = (".json", ".safetensors", ".bin", ".model", ".txt", ".jinja", ".tiktoken", ".spm", ".vocab")


@dataclass(frozen=True)
class Past:
    """Keys and values of tokens already seen: per layer a pair of tensors with one row per sequence."""

    layers: list[tuple[torch.Tensor, torch.Tensor]]
    real: torch.Tensor  # (sequences, positions), true where there is a token and not padding

    def select(self, rows: torch.Tensor) -> Past:
        """The same for other sequences: row i is that of sequence `rows[i]`."""
        if len(self.real) == 1:  # everything follows the same beginning, which need not be copied
            return Past(
                [(k.expand(len(rows), -1, -1, -1), v.expand(len(rows), -1, -1, -1)) for k, v in self.layers],
                self.real[rows],
            )
        return Past([(key[rows], value[rows]) for key, value in self.layers], self.real[rows])


class LanguageModel:
    """A causal language model that `transformers` loads from a folder."""

    kind = "hf"
    vocab_size: int  # known when the weights are
    shares = True  # whether beginnings can be shared
    past_bytes = 1.0  # memory that the past of one token takes
    limit: int | None  # the longest sequence it can see
    window: int | None = None  # how far back its attention reaches, where that is limited
    before: tuple[int, ...] = ()  # special tokens that begin every text
    fallback: int | None  # stands before a text that nothing precedes

    def __init__(self, path: Path, device: torch.device, dtype: torch.dtype, bos: str):
        self.path, self.name, self.device, self.dtype = path, str(path), device, dtype
        self._use_bos(bos, self._describe())

    def _describe(self) -> int | None:
        """Find out what can be known without the weights; the token that begins texts, if there is one."""
        _check_causal(self.path)
        self.config, self.tokenizer = _config_and_tokenizer(self.path)
        self.limit = self._setting("max_position_embeddings", "n_positions", "max_seq_len", "seq_length")
        self.window = self._setting(*REACH)
        own: int | None = self.tokenizer.bos_token_id
        self.fallback = own if own is not None else self.tokenizer.eos_token_id
        self.before = _begins_with(self.tokenizer)
        return own

    def _setting(self, *names: str) -> int | None:
        """The first of some settings that is a number."""
        values = (getattr(self.config, name, None) for name in names)
        return next((value for value in values if isinstance(value, int) and value > 0), None)

    @cached_property
    def fingerprint(self) -> str:
        """The same for the same weights and tokenizer, wherever they are."""
        return _digest(*_files(self.path))

    def encode(self, texts: list[str]) -> list[list[int]]:
        """Tokens of some texts, without special ones."""
        return self.tokenizer(texts, add_special_tokens=False, verbose=False)["input_ids"] if texts else []

    def load(self) -> LanguageModel:
        """Bring the weights into memory; everything above is known without."""
        self.model = self._loaded().to(self.device).eval()
        self.vocab_size = self.model.get_input_embeddings().weight.shape[0]
        self.base: Callable[..., Any] = self.model.base_model
        self.head: Callable[[torch.Tensor], torch.Tensor] = self.model.get_output_embeddings()
        self.takes_positions = "position_ids" in inspect.signature(self.model.base_model.forward).parameters
        self._find_out()
        return self

    def _loaded(self) -> Any:
        return _weights(self.path, self.dtype)

    @torch.inference_mode()
    def extend(
        self, ids: torch.Tensor, real: torch.Tensor, past: Past | None = None, keep: bool = False
    ) -> tuple[torch.Tensor, Past | None]:
        """States of new tokens that continue `past`; with `keep`, also the past that includes them."""
        from transformers import DynamicCache

        if past is None and not keep:
            return _states(self.base(input_ids=ids, use_cache=False)), None
        cache: Any = DynamicCache()
        options: dict[str, Any] = {}
        seen = real if past is None else torch.cat((past.real, real), dim=1)
        if past is not None:
            for i, (key, value) in enumerate(past.layers):
                cache.update(key, value, i)
            options["attention_mask"] = torch.cat((past.real, torch.ones_like(real)), dim=1).long()
            if self.takes_positions:
                positions = past.real.sum(1, keepdim=True) + torch.arange(ids.shape[1], device=self.device)
                options["position_ids"] = positions.clamp(max=(self.limit or 2**62) - 1)
        states = _states(self.base(input_ids=ids, past_key_values=cache, use_cache=True, **options))
        return states, Past([(layer.keys, layer.values) for layer in cache.layers], seen) if keep else None

    def logits(self, states: torch.Tensor) -> torch.Tensor:
        return self.head(states)

    def log_probabilities(self, states: torch.Tensor, picks: Sequence[tuple[int, int]]) -> list[float]:
        """Log-probability for each (state, target); the head sees each state once, some at a time."""
        step = rows_per_chunk(self.vocab_size)
        rows, targets = torch.tensor(picks, device=self.device).T
        found = torch.empty(len(picks), device=self.device)
        with torch.inference_mode():
            for start in range(0, len(states), step):
                here = (rows >= start) & (rows < start + step)
                logits, row = self.logits(states[start : start + step]).float(), rows[here] - start
                found[here] = logits[row, targets[here]] - logits.logsumexp(1)[row]
        return found.tolist()

    def see(self, length: int) -> None:
        """Get ready for so many tokens: padding between shared parts counts towards a limited reach."""
        if self.window is not None and self.window < 3 * length:
            self.shares = False

    def _use_bos(self, bos: str, own: int | None) -> None:
        """Whether texts begin with a special token: as the tokenizer has it, always, or never."""
        if bos not in BOS:
            raise InvalidInput(f"must be one of {', '.join(BOS)}; got {bos!r}.", field="bos")
        begin = own if own is not None else self.fallback
        if bos == "always":
            if begin is None:
                none = f"{self.name} has no token that begins or ends texts"
                raise InvalidInput(f"{none}, so bos = 'always' cannot work; 'never' would do.")
            self.before = (begin,)
        elif bos == "never":
            self.before = ()

    def _find_out(self) -> None:
        """Whether head and past can be used on their own, by scoring a few tokens plainly and in parts."""
        count = min(13, self.limit or 13)
        ids = torch.arange(2 * count, device=self.device).reshape(2, count) * 7919 % self.vocab_size
        tolerance = 1e-3 if self.dtype == torch.float32 else 0.05
        close = partial(torch.allclose, rtol=tolerance, atol=tolerance)
        with torch.inference_mode():
            plain = self.model(input_ids=ids, use_cache=False).logits.float()
            half = count // 2
            self._check_direction(ids, plain, half)
            try:
                parts = self.logits(self.base(input_ids=ids, use_cache=False).last_hidden_state).float()
                separate = close(parts, plain)
            except Exception:  # whatever a model does differently, its own forward pass still works
                separate = False
            if not separate:
                self.base, self.head = self.model, torch.nn.Identity()
            try:
                real = torch.ones(2, half + 2, dtype=torch.bool, device=self.device)
                real[:, half:] = False  # two columns of padding between the parts
                padded = torch.cat((ids[:, :half], ids[:, :2]), dim=1)
                _, past = self.extend(padded, real, keep=True)
                assert past is not None
                held = sum(key.nbytes + value.nbytes for key, value in past.layers)
                self.past_bytes = max(1.0, held / past.real.numel())
                rest, other = ids.flip(0)[:, half:], past.select(torch.tensor([1, 0], device=self.device))
                states, _ = self.extend(rest, torch.ones_like(rest, dtype=torch.bool), other)
                self.shares = close(self.logits(states).float(), plain.flip(0)[:, half:])
            except Exception:
                self.shares = False

    def _check_direction(self, ids: torch.Tensor, logits: torch.Tensor, half: int) -> None:
        """Other tokens after the first `half` must not change what is predicted there."""
        other = torch.cat((ids[:, :half], (ids[:, half:] + 1) % self.vocab_size), dim=1)
        change = self.model(input_ids=other, use_cache=False).logits.float()[:, :half] - logits[:, :half]
        if half and change.abs().max() > (1e-5 if self.dtype == torch.float32 else 1e-2) * logits.abs().max():
            later = f"what {type(self.model).__name__} predicts depends on later tokens"
            raise InvalidInput(f"{self.name} holds no causal language model: {later}.")


class Run(LanguageModel):
    """A finished run of the trainer, whose shape is one that transformers knows."""

    kind = "run"

    def _describe(self) -> int | None:
        result = read_result(self.path)
        assert result is not None
        self.result, self.settings = result, RunConfig(**result.config)
        self.tokenizer = tokenizers.load(self.path / "tokenizer")
        self.limit, self.fallback = self.settings.sequence_length, self.tokenizer.eos
        return None

    @cached_property
    def fingerprint(self) -> str:
        shape = json.dumps(self.result.architecture, sort_keys=True)
        settings = (self.settings.sequence_length, self.settings.rope_theta, self.settings.norm_eps)
        return _digest(self.result.weights_checksum, shape, *settings, *_files(self.path / "tokenizer"))

    def encode(self, texts: list[str]) -> list[list[int]]:
        return [ids.tolist() for ids in self.tokenizer.encode(texts)]

    def _loaded(self) -> Any:
        shape = Architecture(**self.result.architecture)
        weights = hf_weights(load_run(self.path)[0].state_dict(), shape)
        with _loading(self.path, f"the model in {self.path} cannot be loaded") as transformers:
            config = transformers.LlamaConfig(**hf_config(shape, self.settings, self.tokenizer.eos))
            return transformers.LlamaForCausalLM.from_pretrained(
                None, config=config, state_dict=weights, dtype=self.dtype
            )


def find(
    folder: str | Path, *, device: torch.device | None = None, dtype: str = "fp32", bos: str = "auto"
) -> LanguageModel:
    """The model in a folder, a finished run or one in Hugging Face format, without its weights."""
    path = Path(folder)
    device = device or torch.device("cpu")
    if not path.is_dir():
        raise InvalidInput(f"there is no folder {path}.")
    if (path / "result.json").is_file():
        return Run(path, device, DTYPES[dtype], bos)
    if not (path / "config.json").is_file():
        neither = "a finished run (it has no result.json) nor a Hugging Face folder (it has no config.json)"
        raise InvalidInput(f"{path} is neither {neither}.")
    return LanguageModel(path, device, DTYPES[dtype], bos)


def _states(output: Any) -> torch.Tensor:
    """What the head reads; of a whole model, the logits themselves."""
    states: torch.Tensor = output.logits if hasattr(output, "logits") else output.last_hidden_state
    return states


def _transformers(path: Path) -> Any:
    try:
        import transformers
    except ModuleNotFoundError:
        alone = f"{path} cannot be evaluated without transformers"
        raise InvalidInput(f"{alone}; pip install '.[eval]' would do.") from None
    return transformers


def _check_causal(path: Path) -> None:
    """Whether a folder claims to hold a causal language model that transformers knows."""
    _transformers(path)
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    facts = _config(path)
    kind, made_for = facts.get("model_type"), facts.get("architectures") or []
    if kind is None:
        reason = "its config.json has no model_type; an unfinished run must be trained to its end first"
        raise InvalidInput(f"{path} is neither a finished run nor a model in Hugging Face format ({reason}).")
    if not isinstance(made_for, list) or not all(isinstance(text, str) for text in (kind, *made_for)):
        needs = "needs a text as model_type and a list of texts as architectures"
        raise InvalidInput(f"{path / 'config.json'} {needs}.")
    what = ", ".join(made_for) or kind
    if kind not in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES and facts.get("auto_map"):
        code = f"{path} holds {what}, which needs program code from its own folder"
        raise InvalidInput(f"{code}; only models that transformers itself knows are run.")
    known = kind in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES and not facts.get("is_encoder_decoder")
    causal = any(
        name.endswith(("ForCausalLM", "LMHeadModel", "ForConditionalGeneration")) for name in made_for
    )
    if not known or (made_for and not causal):
        other = f"{what}, which cannot give the probability of a continuation"
        raise InvalidInput(f"{path} holds no causal language model but {other}.")


def _config_and_tokenizer(path: Path) -> tuple[Any, Any]:
    with _loading(path, f"{path / 'config.json'} cannot be used") as transformers:
        config = transformers.AutoConfig.from_pretrained(path, **_OWN).get_text_config(decoder=True)
    with _loading(path, f"the tokenizer in {path} cannot be loaded") as transformers:
        tokenizer = transformers.AutoTokenizer.from_pretrained(path, **_OWN)
    if not len(tokenizer):
        raise InvalidInput(f"{path} has no tokenizer files.")
    return config, tokenizer


def _weights(path: Path, dtype: torch.dtype) -> Any:
    with _loading(path, f"the model in {path} cannot be loaded") as transformers:
        auto: Any = transformers.AutoModelForCausalLM
        model, report = auto.from_pretrained(path, dtype=dtype, output_loading_info=True, **_OWN)
    missing = sorted(report["missing_keys"])
    if missing:
        raise InvalidInput(
            f"the weights in {path} are not those of {type(model).__name__}: {missing[0]} is missing."
        )
    return model


def _config(path: Path) -> dict[str, Any]:
    try:
        facts = json.loads((path / "config.json").read_text(encoding="utf-8"))
        if isinstance(facts, dict):
            return facts
    except (OSError, ValueError):
        pass
    raise InvalidInput(f"{path / 'config.json'} cannot be read as JSON.")


@contextmanager
def _loading(path: Path, failed: str) -> Iterator[Any]:
    """transformers, without progress bars or advice; it raises many kinds of errors, which are one here."""
    transformers = _transformers(path)
    logging = transformers.utils.logging
    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield transformers
    except Exception as error:
        raise InvalidInput(f"{failed}: {reason(error).split('. ')[0]}.") from None
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()


def _begins_with(tokenizer: Any) -> tuple[int, ...]:
    """The special tokens that a tokenizer puts before every text."""
    plain, whole = tokenizer("a", add_special_tokens=False)["input_ids"], tokenizer("a")["input_ids"]
    for start in range(len(whole) - len(plain) + 1):
        if whole[start : start + len(plain)] == plain:
            return tuple(whole[:start])
    return ()


def _files(folder: Path) -> list[str]:
    """Names and content hashes of the files that define a model or tokenizer."""
    files = sorted(file for file in folder.iterdir() if file.suffix in MODEL_FILES and file.is_file())
    return [f"{file.name} {checksum(file)}" for file in files]


def _digest(*parts: Any) -> str:
    return hashlib.blake2b("\n".join(map(str, parts)).encode(), digest_size=12).hexdigest()
