"""Several finished runs as one model: the mean of their probabilities, token by token.

    members(folders)      finished runs that predict the same held-out tokens, before any weight is read
    score(folders)        validation loss and bits per byte of their mean, and of each

One model is in memory at a time. Each makes one pass over the held-out tokens, and what is kept of it is one
number per token: with log p_k(token) of every member,

    log p(token) = logsumexp_k log p_k(token) - log K
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch

from planner.inputs import InvalidInput, perplexity
from trainer.config import RunConfig
from trainer.data import tokenizers, tokens
from trainer.data.batches import windows
from trainer.data.joined import Tokens
from trainer.model.llama import Llama
from trainer.model.loss import rows_per_chunk
from trainer.run.device import DTYPES, resolve_device
from trainer.run.evaluation import Tell, autocast, bounded
from trainer.run.export import finished, load_run
from trainer.run.result import RunResult

TOGETHER = 2048  # tokens of a pass: little memory, and enough for products at full speed


@dataclass(frozen=True)
class Member:
    """A finished run, and the tokens it belongs to."""

    folder: Path
    result: RunResult
    data: tokens.TokenSet

    @property
    def name(self) -> str:
        return str(self.folder)

    @property
    def config(self) -> RunConfig:
        return RunConfig(**self.result.config)

    def held_out(self, name: str = "validation") -> tuple[Tokens, dict[str, int]]:
        """The tokens that the run's own loss is over, and their documents and bytes."""
        counts, most = self.data.facts["streams"][name], self.config.most_validation_tokens
        return bounded(self.data.stream(name), counts, most, self.data.tokenizer)


@dataclass(frozen=True)
class MemberScore:
    run: str
    loss: float
    bits_per_byte: float


@dataclass(frozen=True)
class EnsembleScore:
    """The mean of the members' probabilities on the validation set."""

    members: list[MemberScore]
    loss: float
    perplexity: float
    bits_per_byte: float
    mean_member_loss: float
    gain: float  # by how much that is better than the members are on average
    tokens: int
    documents: int
    bytes: int


def members(folders: Sequence[str | Path]) -> list[Member]:
    """Runs that can be averaged; raises in one sentence where they cannot."""
    names = [str(folder).rstrip("/") for folder in folders]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InvalidInput(f"member {twice} is given twice.")
    if not names:
        raise InvalidInput("an ensemble needs members; give at least one finished run.")
    results = {Path(name): finished(Path(name)) for name in names}
    for folder in results:
        if not (folder / "final").is_dir():
            raise InvalidInput(f"{folder} has a result but no weights (there is no {folder / 'final'}).")
    found = [Member(folder, result, _tokens(folder, result)) for folder, result in results.items()]
    for other in found[1:]:
        _same(found[0], other)
    return found


def score(
    folders: Sequence[str | Path],
    *,
    device: str = "auto",
    dtype: str = "fp32",
    progress: Callable[[str, int, int], None] = lambda name, done, of: None,
) -> EnsembleScore:
    """Validation loss and bits per byte of the mean of the runs' probabilities."""
    found = members(folders)
    stream, counts = found[0].held_out()
    mixed, each = np.full(len(stream) - 1, -np.inf), []
    per_byte = (len(stream) - 1) / math.log(2) / counts["bytes"]
    for member in found:
        tell = partial(progress, member.name)
        nats = member_nats(member, stream, device=device, dtype=dtype, tell=tell)
        np.logaddexp(mixed, -nats, out=mixed)
        loss = float(nats.mean())
        each.append(MemberScore(member.name, loss, loss * per_byte))
    loss, mean = math.log(len(found)) - float(mixed.mean()), sum(one.loss for one in each) / len(each)
    return EnsembleScore(
        members=each,
        loss=loss,
        perplexity=perplexity(loss),
        bits_per_byte=loss * per_byte,
        mean_member_loss=mean,
        gain=mean - loss,
        tokens=len(stream) - 1,
        documents=counts["documents"],
        bytes=counts["bytes"],
    )


def member_nats(
    member: Member,
    stream: Tokens,
    *,
    device: str = "auto",
    dtype: str = "fp32",
    tell: Tell = lambda done, of: None,
) -> np.ndarray:
    """Minus the log-probability that a run gives each token of a stream but the first."""
    if dtype not in DTYPES:
        raise InvalidInput(f"must be one of {', '.join(DTYPES)}; got {dtype!r}.", field="dtype")
    where, config = resolve_device(device), member.config
    model = load_run(member.folder)[0].to(where)
    predicted, length = len(stream) - 1, config.sequence_length
    rows = math.ceil(TOGETHER / length)
    found = np.empty(predicted)
    with torch.no_grad(), autocast(where, DTYPES[dtype]):
        for start in range(0, math.ceil(predicted / length), rows):
            arrays = windows(stream, range(start, start + rows), length)
            inputs, targets = (torch.from_numpy(array).to(where) for array in arrays)
            first = start * length
            done = min(first + rows * length, predicted)
            found[first:done] = _nats(model, inputs, targets)[: done - first]
            tell(done, predicted)
    return found


def _nats(model: Llama, inputs: torch.Tensor, targets: torch.Tensor) -> np.ndarray:
    """Of every target, the head applied to a chunk of states at a time; padding comes last."""
    states, wanted = model.hidden(inputs).flatten(0, 1), targets.flatten().clamp(min=0)
    step, parts = rows_per_chunk(model.shape.vocab_size, states.device.type), []
    for start in range(0, len(states), step):
        logits = model.head(states[start : start + step]).float()
        chosen = logits.gather(1, wanted[start : start + step].unsqueeze(1)).squeeze(1)
        parts.append((torch.logsumexp(logits, 1) - chosen).double().cpu().numpy())
    return np.concatenate(parts)


def _tokens(folder: Path, result: RunResult) -> tokens.TokenSet:
    """The token set of a run: where it was, next to the other runs of its study, or made again."""
    config, wanted = RunConfig(**result.config), result.data["fingerprint"]
    homes = (tokens.cache_folder(config.cache), folder.absolute().parents[1] / "tokens")
    place = next((home / wanted for home in homes if (home / wanted).is_dir()), None)
    if place is not None:
        return tokens.open_set(place)
    made = tokens.prepare(config, tokenizers.Spec(config.tokenizer, config.eos_token))
    if made.fingerprint != wanted:
        changed = f"has changed since it was trained ({wanted}, now {made.fingerprint})"
        raise InvalidInput(f"the corpus of {folder} {changed}; bring the old one back.")
    return made


def _same(one: Member, other: Member) -> None:
    """Raise where two runs do not predict the same tokens."""
    ours, theirs = one.data.facts, other.data.facts
    if ours["vocabulary"] != theirs["vocabulary"]:
        raise InvalidInput(
            f"{one.name} has a vocabulary of {ours['vocabulary']:,} tokens and {other.name} of "
            f"{theirs['vocabulary']:,}; members of one ensemble need the same tokenizer."
        )
    lengths = [len(member.held_out()[0]) for member in (one, other)]
    if content(one.data) != content(other.data) or lengths[0] != lengths[1]:
        need = "members of one ensemble need the same corpus, tokenizer and held-out documents"
        raise InvalidInput(f"{one.name} and {other.name} were validated on different tokens; {need}.")


def content(data: tokens.TokenSet) -> str:
    """The same for the same held-out tokens."""
    return (data.content or {}).get("validation.bin") or data.fingerprint
