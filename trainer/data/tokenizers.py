"""Text to token numbers and back: a Hugging Face tokenizer.json, a SentencePiece model, bytes, or a BPE
trained on the corpus.

    bytes              one token per byte, and one that ends a document: 257
    bpe:1024           a byte-level BPE of 1,024 tokens trained on the training documents only
    path/to/tokenizer.json
    path/to/tokenizer.model

Every tokenizer can be saved into a folder that `transformers.AutoTokenizer` loads.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from planner.inputs import InvalidInput
from trainer.errors import reason
from trainer.files import checksum, read_json

END = "<|endoftext|>"
_LARGEST_BPE = 1_000_000
_HALF = re.compile("[\ud800-\udfff]")
_KNOWN_ENDS = ("</s>", "<|endoftext|>", "<|end_of_text|>", "<eos>", "<|eos|>", "[EOS]")


class Tokenizer(Protocol):
    eos: int  # ends every document
    size: int  # how many tokens there are

    def encode(self, texts: Sequence[str]) -> list[np.ndarray]: ...

    def decode(self, tokens: Sequence[int]) -> str: ...

    def save(self, folder: Path) -> None: ...


class Spec:
    """A tokenizer as it is asked for: checked, sized and fingerprinted before any text is read."""

    def __init__(self, text: str, eos_token: str | None = None):
        self.text, self.eos_token = text, eos_token
        self.ready: Tokenizer | None = None
        self.bpe_size = 0
        match = re.fullmatch(r"bpe:(\d{1,30})", text)
        if text == "bytes":
            self.ready = byte_tokenizer()
            self.fingerprint = text
        elif match:
            self.bpe_size = int(match[1])
            if not 257 <= self.bpe_size <= _LARGEST_BPE:
                raise InvalidInput(
                    "tokenizer 'bpe:N' needs N of at least 257 (256 bytes and the end of a document) and "
                    f"at most {_LARGEST_BPE:,}; got {text!r}."
                )
            self.fingerprint = text
        else:
            path = Path(os.path.expanduser(text))
            if not path.is_file():
                kinds = "'bytes', 'bpe:1024', or the path of a tokenizer.json or a SentencePiece .model"
                raise InvalidInput(f"tokenizer must be {kinds}; there is no file {text!r}.")
            pieces = path.suffix == ".model"
            self.ready = SentencePiece(path) if pieces else HuggingFace.from_file(path, eos_token)
            self.fingerprint = f"{checksum(path)}:{self.ready.eos}"

    @property
    def size(self) -> int:
        return self.ready.size if self.ready else self.bpe_size

    def tokenizer(self, texts: Iterable[str]) -> Tokenizer:
        """The tokenizer itself; `texts` are what a BPE is trained on."""
        return self.ready or train_bpe(texts, self.bpe_size)


class HuggingFace:
    """Any tokenizer of the `tokenizers` library."""

    def __init__(self, inner: Any, eos: int):
        self.inner, self.eos = inner, eos
        self.size = max(inner.get_vocab(with_added_tokens=True).values()) + 1

    @classmethod
    def from_file(cls, path: Path, eos_token: str | None = None) -> HuggingFace:
        import tokenizers

        try:
            inner = tokenizers.Tokenizer.from_file(str(path))
        except Exception as error:
            raise InvalidInput(f"{path} is not a tokenizer.json: {reason(error)}.") from None
        inner.no_truncation()
        inner.no_padding()
        candidates = [eos_token] if eos_token else [_configured_end(path), *_KNOWN_ENDS]
        for candidate in filter(None, candidates):
            number = inner.token_to_id(candidate)
            if number is not None:
                return cls(inner, number)
        if eos_token:
            raise InvalidInput(f"eos_token {eos_token!r} is not a token of {path}.")
        raise InvalidInput(f"{path} does not say which token ends a document; set eos_token.")

    def encode(self, texts: Sequence[str]) -> list[np.ndarray]:
        made = self.inner.encode_batch_fast([_whole(text) for text in texts], add_special_tokens=False)
        return [np.array(encoded.ids, dtype=np.int64) for encoded in made]

    def decode(self, tokens: Sequence[int]) -> str:
        return str(self.inner.decode([int(t) for t in tokens], skip_special_tokens=False))

    def save(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.inner.save(str(folder / "tokenizer.json"))
        end = self.inner.id_to_token(self.eos)
        how = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": end}
        _write_config(folder, how | {"clean_up_tokenization_spaces": False})


class Bytes(HuggingFace):
    """A byte-level BPE without merges: the number of a token is the byte itself."""

    def encode(self, texts: Sequence[str]) -> list[np.ndarray]:
        raw = (text.encode("utf-8", "surrogatepass") for text in texts)
        return [np.frombuffer(text, dtype=np.uint8).astype(np.int64) for text in raw]


class SentencePiece:
    """A SentencePiece model, such as that of Llama-2."""

    def __init__(self, path: Path):
        import sentencepiece

        self.path = path
        try:
            self.inner = sentencepiece.SentencePieceProcessor(model_file=str(path))
            self.eos, self.size = int(self.inner.eos_id()), int(self.inner.vocab_size())
        except Exception as error:
            raise InvalidInput(f"{path} is not a SentencePiece model: {reason(error)}.") from None
        if self.eos < 0:
            raise InvalidInput(f"{path} has no end-of-sequence token; documents could not be told apart.")

    def encode(self, texts: Sequence[str]) -> list[np.ndarray]:
        return [np.array(ids, dtype=np.int64) for ids in self.inner.encode([_whole(text) for text in texts])]

    def decode(self, tokens: Sequence[int]) -> str:
        return str(self.inner.decode([int(t) for t in tokens]))

    def save(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(self.path, folder / "tokenizer.model")
        special = {f"{name}_token": getattr(self.inner, f"{name}_id")() for name in ("bos", "eos", "unk")}
        pieces = {name: self.inner.id_to_piece(number) for name, number in special.items() if number >= 0}
        how = {"tokenizer_class": "LlamaTokenizer", "add_bos_token": False, "add_eos_token": False}
        _write_config(folder, how | pieces)


def byte_tokenizer() -> Bytes:
    import tokenizers

    printable, others = {*range(33, 127), *range(161, 173), *range(174, 256)}, iter(range(256, 512))
    # the printable character that stands for each byte in byte-level tokenizers
    vocabulary = {chr(byte if byte in printable else next(others)): byte for byte in range(256)}
    inner = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=vocabulary, merges=[]))
    inner.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    inner.decoder = tokenizers.decoders.ByteLevel()
    inner.add_special_tokens([END])
    return Bytes(inner, 256)


def train_bpe(texts: Iterable[str], size: int) -> HuggingFace:
    """A byte-level BPE of `size` tokens, the last of which ends a document."""
    import tokenizers

    inner = tokenizers.Tokenizer(tokenizers.models.BPE())
    inner.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = tokenizers.decoders.ByteLevel()
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=size - 1, initial_alphabet=sorted(alphabet), show_progress=False
    )
    inner.train_from_iterator(map(_whole, texts), trainer)
    inner.add_special_tokens([END])
    tokenizer = HuggingFace(inner, inner.get_vocab(with_added_tokens=True)[END])
    tokenizer.size = size  # as was asked for: a tiny corpus may give fewer merges
    return tokenizer


def load(folder: Path) -> Tokenizer:
    """A tokenizer that was saved with `save`."""
    if (folder / "tokenizer.model").is_file():
        return SentencePiece(folder / "tokenizer.model")
    loaded = HuggingFace.from_file(folder / "tokenizer.json")
    if loaded.size == 257 and loaded.eos == 256:
        return Bytes(loaded.inner, loaded.eos)
    return loaded


def _whole(text: str) -> str:
    """JSON may hold half of a surrogate pair: a replacement character stands for it."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return _HALF.sub("\ufffd", text)
    return text


def _configured_end(path: Path) -> str | None:
    """The end-of-sequence token that the tokenizer_config.json next to a tokenizer.json names."""
    try:
        named = read_json(path.parent / "tokenizer_config.json").get("eos_token")
    except (OSError, ValueError, AttributeError):
        return None
    return named.get("content") if isinstance(named, dict) else named


def _write_config(folder: Path, values: dict[str, Any]) -> None:
    (folder / "tokenizer_config.json").write_text(json.dumps(values, indent=2) + "\n", encoding="utf-8")
