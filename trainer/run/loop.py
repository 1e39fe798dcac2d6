"""Train one run, from its configuration to `result.json`, resumable at any instant.

    check everything -> tokens -> model -> (checkpoint) -> steps -> validation -> result

A run lives in a directory:

    config.json        what is trained; never changes once something has been
    tokenizer/         loadable by transformers
    metrics.jsonl      one line every few steps
    checkpoints/       the last complete one while the run is unfinished
    final/             the weights of a finished run
    result.json        written last, at once; a directory that has it is never trained again

The state of a run is weights, moments and the number of steps done: the data order is a function of the seed
and the step, and nothing else is random. That is why a run that was killed and continued ends in the same
bits as one that was not.
"""

from __future__ import annotations

import hashlib
import logging
import math
import os
import shutil
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from planner.hardware import Architecture
from planner.inputs import InvalidInput
from trainer.config import RunConfig, differences
from trainer.data import corpus, tokenizers, tokens
from trainer.data.batches import Batches
from trainer.errors import Interrupted, TrainingStopped, Unfit, or_unfit, reason
from trainer.model import attention, optimizer, products
from trainer.model.llama import Llama, materialise, outline
from trainer.run import averaging, checkpoints, device, directory, distributed, teachers, watch
from trainer.run.device import (
    DTYPES,
    Execution,
    check_memory,
    flops_per_token,
    peak_flops,
    resolve,
    resolve_device,
)
from trainer.run.evaluation import Evaluation, autocast, bounded, evaluate
from trainer.run.prefetch import Prefetcher, pass_width, passes_of
from trainer.run.readings import Reading, Readings
from trainer.run.result import RunResult, write_result
from trainer.run.store import is_url, staged

_LOG = logging.getLogger("trainer")
_RECENT = 50  # steps over which the reported training loss is a mean
_LOWER = "earlier checkpoints are intact and a lower learning_rate would do."
_SKIPPED = 5  # steps in a row whose loss is no number, after which a run stops


def train(
    config: RunConfig,
    out: str | Path,
    *,
    progress: bool = False,
    should_stop: Callable[[], bool] = lambda: False,
    during_steps: AbstractContextManager[Any] | None = None,
    data: tokens.TokenSet | None = None,
) -> RunResult:
    """Train a run in directory `out`, or continue it, or return its result where it is finished.

    With `data`, a token set that was made before, the corpus is not looked at: all runs of a sweep train on
    the same tokens, whatever happens to the files meanwhile. `should_stop` is asked after every step; when it
    says yes, a checkpoint is written and Interrupted raised. `during_steps` is entered while steps are
    trained, and only then. A URL that fsspec knows is a directory too (see `trainer.run.store`).
    """
    place = staged(os.fspath(out)) if is_url(out) else nullcontext(Path(os.path.expanduser(out)).absolute())
    with place as folder, distributed.joined(resolve_device(config.device)) as world:
        if done := distributed.decided(world, lambda: directory.finished(folder, config, data)):
            return done
        with or_unfit():
            spec, architecture, execution, remarks = distributed.all_succeed(
                world, lambda: check(config, data)
            )
            besides = averaging.bytes_of(config, architecture.params, execution)
            besides += teachers.check(config, architecture)
            check_memory(architecture, config.sequence_length, execution, besides)
        with directory.held(folder, config, world):
            # perhaps finished by the process that held it until now
            if done := distributed.decided(world, lambda: directory.finished(folder, config, data)):
                return done
            say = watch.say if progress and world.first else None
            found_data = data or distributed.all_succeed(world, lambda: tokens.prepare(config, spec, say))
            _same_tokens(found_data, world)
            batches = _batches(config, found_data)
            found, passed_over = _newest(folder, config, found_data, batches, world)
            if found and (began := found.state["execution"]["dtype"]) != execution.dtype:
                # "auto" at the start: as it began, whatever this machine would choose
                execution = check(config.having(dtype=began), found_data)[2]
            starts = distributed.decided(world, lambda: directory.claim(folder, config))
            with _deterministic(execution), _many_shapes(execution.compiled):
                said = [*remarks, *passed_over]
                run = _Run(config, folder, architecture, execution, found_data, batches, world, said, starts)
                run.start(found)
                return run.until_done(progress, should_stop, during_steps)


def _same_tokens(data: tokens.TokenSet, world: distributed.World) -> None:
    """Raise where processes have other tokens: a dataset may have changed between two machines' caches."""
    everybodys = distributed.everybodys(world, (data.fingerprint, data.content))
    other = [rank for rank, theirs in enumerate(everybodys) if theirs != everybodys[0]]
    if other:
        raise InvalidInput(
            f"process {other[0]} has other tokens than process 0, of the same corpus; one cache that all "
            "processes share would do."
        )


def _newest(
    folder: Path, config: RunConfig, data: tokens.TokenSet, batches: Batches, world: distributed.World
) -> tuple[checkpoints.Checkpoint | None, list[str]]:
    """The checkpoint to go on from, its own or its trunk's; damaged ones are told at once."""
    belongs = {"identity": config.identity(), "data": data.fingerprint}
    found, remarks = checkpoints.newest(folder / "checkpoints", belongs, world)
    if found and data.content != (found.state.get("tokens") or data.content):
        raise InvalidInput(
            f"checkpoint {found.folder} belongs to a run on other tokens of the same name: the dataset has "
            "changed, or the tokenizer's version; another run directory would do."
        )
    for remark in remarks if world.first else ():
        _LOG.warning(remark)
    if found is None and config.trunk:
        found = _from_trunk(config, data, batches, world)
    return found, remarks


def _from_trunk(
    config: RunConfig, data: tokens.TokenSet, batches: Batches, world: distributed.World
) -> checkpoints.Checkpoint:
    """The checkpoint of another run from which this one decays; both were the same up to there."""
    start, trunk = optimizer.decay_begins(batches.steps, config), Path(os.path.expanduser(config.trunk or ""))
    place = checkpoints.place(trunk / "branches", start)
    every = config.average_every or max(1, batches.steps // 100)
    if config.average_last and batches.steps - (config.average_last - 1) * every <= start:
        raise InvalidInput(
            "reaches back before the decay begins, which a trunk does not keep; fewer would do.",
            field="average_last",
        )
    if not distributed.decided(world, place.is_dir):
        raise Unfit(
            f"{trunk} keeps no checkpoint at step {start}; branches = [{config.epochs:g}] in its config "
            f"would do.",
            field="trunk",
        )
    with or_unfit():
        found = distributed.decided(world, lambda: checkpoints.read_state(place, {"data": data.fingerprint}))
        distributed.all_succeed(world, partial(found.verify, world.rank, world.size))
    theirs, ours = (identity | {"epochs": 0} for identity in (found.state["identity"], config.identity()))
    if differs := differences(theirs, ours):
        raise InvalidInput(f"{trunk} was trained with another {differs}.", field="trunk")
    state = found.state | {"seconds": 0.0, "starts": 0, "remarks": [], "trunk": trunk.name}
    measured = [one for one in state["validations"] if config.validate_every]
    return checkpoints.Checkpoint(found.folder, state | {"validations": measured})


def check(
    config: RunConfig, data: tokens.TokenSet | None = None
) -> tuple[tokenizers.Spec, Architecture, Execution, list[str]]:
    """Everything that can be wrong before data is read."""
    optimizer.check(config)
    watch.check(config)
    distributed.check(config.batch_size)
    spec = tokenizers.Spec(config.tokenizer, config.eos_token)
    architecture = config.architecture(spec.size)
    execution, remarks = resolve(config, architecture, config.length()[2], distributed.world_size())
    if data is None:
        corpus.check(config.corpus)
    return spec, architecture, execution, remarks


@dataclass
class _Run:
    """A run in progress."""

    config: RunConfig
    folder: Path
    architecture: Architecture
    execution: Execution
    data: tokens.TokenSet
    batches: Batches
    world: distributed.World
    remarks: list[str]
    starts: int

    def __post_init__(self) -> None:
        config, world = self.config, self.world
        self.device = torch.device(self.execution.device)
        self.dtype = DTYPES[self.execution.dtype]
        self.step, self.seconds = 0, 0.0
        self.defers = device.defers(self.architecture, config.sequence_length, self.execution)
        self.recent: deque[float] = deque(maxlen=_RECENT)
        # steps looked at; left out, and of those without another
        self.read = self.skipped = self.in_a_row = 0
        # tokens and seconds up to the last line of metrics, and to the first step of a start, which compiles
        self.logged = (0, 0.0)
        self.compiled: tuple[int, float] | None = None
        self.watchers: list[watch.Watcher] = []
        self.validations: list[dict[str, float]] = []  # on the way, before the last step
        self.held_out: dict[str, tuple[Any, dict[str, int]]] = {}
        self.trunk: str | None = None
        self.branches = {optimizer.decay_begins(config.length(e)[2], config) for e in config.branches}
        self.pace = checkpoints.Pace(config)
        self.prefetcher = Prefetcher(self.batches, world, self.device)
        self.readings = Readings(late=self.device.type == "cuda")
        self.writer = checkpoints.Writer(self.folder / "checkpoints", world)

    def start(self, found: checkpoints.Checkpoint | None) -> None:
        """Build model and optimiser, from a checkpoint where there is one."""
        self.model = build(self.config, self.architecture, self.execution, self.world)
        self.optimizer = optimizer.Optimizer(self.model, self.config)
        self.average = averaging.average(self.model, self.config, self.batches.steps)
        members = (self.config, self.data, self.device)
        self.teachers = teachers.Teachers(*members) if self.config.distill else None
        if found:
            self._restore(found)

    def until_done(
        self, progress: bool, should_stop: Callable[[], bool], during: AbstractContextManager[Any] | None
    ) -> RunResult:
        """Train the remaining steps, validate, and write the result."""
        try:
            if self.world.first:
                self._open(progress)
            with during or nullcontext():
                self._steps(should_stop)
            return self._finish()
        except Exception as error:
            self.writer.leave()
            if not isinstance(error, OSError):
                raise
            raise TrainingStopped(
                f"{self.folder} cannot be written ({reason(error)}); checkpoints before step "
                f"{self.step} are intact."
            ) from error
        finally:
            self.prefetcher.close()
            for watcher in self.watchers:
                watcher.close()

    def _steps(self, should_stop: Callable[[], bool]) -> None:
        """Train to the last step, which has no checkpoint: validation must find numbers first."""
        every = self.config.checkpoint_every
        while self.step < self.batches.steps:
            self._train_step()
            if self._validation_due():
                self._validate()
            if self.step in self.branches:
                self._checkpoint(must=True, kept_in=self.folder / "branches")
            flags = (not every and self.pace.late(), should_stop(), self.writer.pending())
            late, stop, writing = distributed.anywhere(flags, self.world)
            if self.writer.thread and not writing:
                self.writer.wait()
            due = late or (every is not None and self.step % every == 0)
            if (due or stop) and self.step < self.batches.steps:
                self._checkpoint(must=stop)
            if stop and self.step < self.batches.steps:
                self.writer.wait()
                distributed.everybodys(self.world, None)  # all are there
                raise Interrupted(
                    f"stopped at step {self.step} of {self.batches.steps} with a checkpoint; the same "
                    "command continues from there."
                )
        self.writer.wait()

    def _validation_due(self) -> bool:
        """Whether the step that was done is one to validate after: every so many, or the end of an epoch."""
        every, step, rows = self.config.validate_every, self.step, self.config.batch_size
        if every is None or step == self.batches.steps:
            return False
        ends = step * rows // self.batches.chunks > (step - 1) * rows // self.batches.chunks
        return ends or (every != "epoch" and step % every == 0)

    def _validate(self) -> None:
        """Validation loss on the way, before a checkpoint that may follow, which has it then."""
        found = self._evaluate("validation")
        place = self._place()
        self.validations.append(place | {"loss": found.loss})
        self._tell(place | {"validation_loss": found.loss, "bits_per_byte": found.bits_per_byte})

    def _tell(self, values: dict[str, Any]) -> None:
        for watcher in self.watchers:
            watcher.record(values)

    def _place(self) -> dict[str, float]:
        """How far the run is."""
        seen = min(self.step * self.config.batch_size, self.batches.total)
        epoch, tokens = seen / self.batches.chunks, seen * self.batches.length
        return {"step": self.step, "epoch": epoch, "tokens": tokens}

    def _done(self) -> tuple[int, float]:
        """Tokens and seconds up to here."""
        return int(self._place()["tokens"]), self.seconds

    def _speed(self, since: tuple[int, float]) -> float:
        """Tokens per second from there to here."""
        tokens, seconds = self._done()
        return (tokens - since[0]) / max(seconds - since[1], 1e-9)

    def _check_weights(self) -> None:
        if not distributed.finite(self.model.parameters(), self.world):
            raise TrainingStopped(f"the weights after step {self.step} are not numbers; {_LOWER}")

    def _open(self, progress: bool) -> None:
        # of another one, perhaps, until something was trained; times stay, so that a store has it already
        shutil.rmtree(self.folder / "tokenizer", ignore_errors=True)
        shutil.copytree(self.data.folder / "tokenizer", self.folder / "tokenizer")
        self.watchers = watch.watchers(
            self.config, self.folder, start=self.step, steps=self.batches.steps, progress=progress
        )
        self.peak = peak_flops(self.device) * self.world.size

    def _train_step(self) -> None:
        """One optimiser step over one batch, in as many passes as its rows need."""
        start = time.perf_counter()
        step, real = self.step, self.batches.real_tokens(self.step)
        summed = self._gradients(real)
        norm = distributed.clip(list(self.model.parameters()), self.config.clip)
        loss = distributed.total(summed, self.world) / real
        known = self._judged(self.readings.add(Reading(loss, norm)))
        rate = optimizer.learning_rate(step, self.batches.steps, self.config)
        wrong = ~(torch.isfinite(loss) & torch.isfinite(norm))
        self.optimizer.update(rate, wrong, ask=self.device.type == "cpu" or self.world.size > 1)
        self.step += 1
        if self.average:
            self.average.update(self.step)
        logged = self.step % self.config.log_every == 0 or self.step == self.batches.steps
        known += self._judged(self.readings.all()) if logged else []
        self.seconds += time.perf_counter() - start
        self.compiled = self.compiled or self._done()
        if logged:
            self._log(*known[-1], rate)

    def _judged(self, known: list[tuple[float, float]]) -> list[tuple[float, float]]:
        """Losses and norms of steps, in their order; stops where several in a row are no numbers."""
        for loss, norm in known:
            self.read += 1
            if math.isfinite(loss) and math.isfinite(norm):
                self.recent.append(loss)
                self.in_a_row = 0
                continue
            self.skipped, self.in_a_row = self.skipped + 1, self.in_a_row + 1
            if self.in_a_row == _SKIPPED:
                first = self.read - _SKIPPED + 1
                epoch = first * self.config.batch_size / self.batches.chunks
                raise TrainingStopped(
                    f"the losses of steps {first} to {self.read} (epoch {epoch:.2f}) are not numbers (loss "
                    f"{loss}, gradient norm {norm}{self._where()}); the last checkpoint is intact and a "
                    f"lower learning_rate would do."
                )
        return known

    def _where(self) -> str:
        """The first tensor whose weights, or else gradients, are not all numbers."""
        for what in ("data", "grad"):
            for name, p in self.model.named_parameters():
                rows = getattr(p, what)
                rows = getattr(rows, "_local_tensor", rows)
                if rows is not None and not torch.isfinite(rows).all():
                    return f", first in {'weights' if what == 'data' else 'gradients'} of {name}"
        return ""

    def _gradients(self, real: int) -> torch.Tensor:
        """Gradients of a batch, and its summed loss; in smaller passes where memory runs out."""
        # CUDA graphs give gradients in memory that the next pass overwrites: they are added to memory of ours
        one = passes_of(self.config.batch_size, self.world, self.execution.micro_batch) == 1
        while True:
            self.model.zero_grad(set_to_none=one or not self.execution.graphs)
            for p in self.model.parameters() if self.execution.graphs and not one else ():
                p.grad = torch.zeros_like(p) if p.grad is None else p.grad
            try:
                return self._passes(real)
            except torch.OutOfMemoryError:
                rows = self.execution.micro_batch
                if rows == 1 or self.world.size > 1:
                    raise TrainingStopped(
                        f"a pass of {rows} rows does not fit the memory of {self.execution.name}; the last "
                        f"checkpoint is intact and a smaller micro_batch would do."
                    ) from None
            self.execution = replace(self.execution, micro_batch=max(1, rows // 2))
            self.remarks.append(
                f"passes of {rows} rows did not fit the memory at step {self.step + 1}; it went on with "
                f"{self.execution.micro_batch}"
            )
            if self.device.type == "cuda":
                torch.cuda.empty_cache()

    def _passes(self, real: int) -> torch.Tensor:
        summed = torch.zeros((), dtype=torch.float64, device=self.device)
        count = passes_of(self.config.batch_size, self.world, self.execution.micro_batch)
        passes = self.prefetcher.step(self.step, self.execution.micro_batch)
        for number, (inputs, targets) in enumerate(passes, 1):
            distributed.synchronise(self.model, self.world, number == count or not self.defers)
            if self.execution.graphs:
                torch.compiler.cudagraph_mark_step_begin()  # type: ignore[no-untyped-call]
            with self._drawing(number):
                with autocast(self.device, self.dtype):
                    distillation = self.teachers.loss(inputs) if self.teachers else None
                    nats = self.model(inputs, targets, distillation)
                (nats * (self.world.size / real)).backward()
            summed += nats.detach()
        return summed

    @contextmanager
    def _drawing(self, number: int) -> Iterator[None]:
        """Dropout draws by seed, step, pass and rank alone: a run that goes on draws the same."""
        if not self.config.dropout:
            yield
            return
        key = f"{self.config.seed}/dropout/{self.step}/{number}/{self.world.rank}".encode()
        with torch.random.fork_rng([self.device] if self.device.type == "cuda" else []):
            torch.manual_seed(int.from_bytes(hashlib.blake2b(key, digest_size=7).digest(), "big"))
            yield

    def _log(self, loss: float, norm: float, rate: float) -> None:
        """A line of metrics. A GPU has been waited for: what was done since the last line took that time."""
        if not self.watchers:
            return
        speed, self.logged = self._speed(self.logged), self._done()
        figures = {"loss": loss, "gradient_norm": norm} if math.isfinite(loss + norm) else {}
        skipped = {"skipped_steps": self.skipped} if self.skipped else {}
        values = self._place() | figures | skipped
        values |= {"learning_rate": rate, "tokens_per_second": speed, "seconds": self.seconds}
        self._tell(values | {"mfu": self._utilisation(speed)})

    def _utilisation(self, speed: float) -> float:
        """Of the devices' peak, at so many tokens per second."""
        return speed * flops_per_token(self.architecture, self.batches.length) / self.peak

    def _checkpoint(self, must: bool, kept_in: Path | None = None) -> None:
        """Begin to write this step's state; while losses are no numbers it waits, unless it must."""
        self._judged(self.readings.all())
        if self.in_a_row and not must:
            return
        self._check_weights()
        state = {
            "step": self.step,
            "identity": self.config.identity(),
            "data": self.data.fingerprint,
            "tokens": self.data.content,
            "execution": asdict(self.execution),
            "seconds": self.seconds,
            "starts": self.starts,
            "recent_losses": list(self.recent),
            "validations": self.validations,
            "skipped_steps": self.skipped,
            "trunk": self.trunk,
            "remarks": [*self.remarks],
        }
        self.writer.begin(state, held(self.model, self.optimizer, self.average, self.world), kept_in)
        self.pace.wrote(self.writer.cost)

    def _restore(self, found: checkpoints.Checkpoint) -> None:
        """Read the rows that this process holds, and what was known besides."""
        self.skipped, self.trunk = found.state.get("skipped_steps", 0), found.state.get("trunk")
        self.optimizer.updated(found.step - self.skipped)
        with found.rows() as stored:
            for name, (rows, first) in held(self.model, self.optimizer, self.average, self.world).items():
                if len(rows):
                    rows.copy_(stored.read(name, first, first + len(rows)))
        state = found.state
        self.step, self.read, self.seconds = found.step, found.step, state["seconds"]
        self.logged = self._done()
        self.starts = max(self.starts, state["starts"] + 1)
        self.recent.extend(state["recent_losses"])
        self.validations = state.get("validations", [])
        before = {"products": "torch"} | state["execution"]  # an older version knew fewer facts
        changed = [name for name, value in asdict(self.execution).items() if before.get(name, value) != value]
        self.remarks = list(dict.fromkeys((*state["remarks"], *self.remarks)))
        if changed:
            self.remarks.append(
                f"continued at step {self.step} with another {', '.join(changed)}; its bits may differ from "
                f"an uninterrupted run"
            )

    def _finish(self) -> RunResult:
        """Validate, keep the weights, and write the result last."""
        self._check_weights()
        last = self._evaluate("validation", averaged=False).loss if self.average else None
        names = [name for name in ("validation", "development") if name in self.data.facts["streams"]]
        found = {name: self._evaluate(name) for name in names}
        self.unaveraged_loss = last
        kept = self.average.weights.items() if self.average else self.model.named_parameters()
        weights = distributed.gathered(kept, self.world)
        return distributed.decided(self.world, lambda: self._written(found, weights))

    def _written(self, found: dict[str, Evaluation], weights: dict[str, torch.Tensor]) -> RunResult:
        """What the first process leaves on disk."""
        state = {"step": self.step, "identity": self.config.identity(), "data": self.data.fingerprint}
        result = self._result(found, checkpoints.write_final(self.folder, state, weights))
        found_last = {"validation_loss": result.loss, "bits_per_byte": result.bits_per_byte}
        self._tell({"step": self.step} | found_last)
        write_result(self.folder, result)
        shutil.rmtree(self.folder / "checkpoints", ignore_errors=True)
        (self.folder / directory.STARTS).unlink(missing_ok=True)
        return result

    def _result(self, found: dict[str, Evaluation], weights_checksum: str) -> RunResult:
        config, batches, shape = self.config, self.batches, self.architecture
        validation, development = found["validation"], found.get("development")
        measured = [*self.validations, self._place() | {"loss": validation.loss}]
        best = min(measured, key=lambda one: one["loss"]) if self.validations else None
        since = self.compiled if self.compiled and self.compiled != self._done() else (0, 0.0)
        speed = self._speed(since)
        sets = {f"{name}_set": asdict(value) for name, value in found.items()}
        return RunResult(
            run=self.folder.name,
            params=shape.params,
            unique_tokens=batches.unique_tokens,
            epochs=batches.epochs,
            tokens=batches.tokens,
            weight_decay=config.weight_decay,
            loss=validation.loss,
            perplexity=validation.perplexity,
            bits_per_byte=validation.bits_per_byte,
            train_loss=sum(self.recent) / len(self.recent),
            development_loss=development.loss if development else None,
            unaveraged_loss=self.unaveraged_loss,
            trunk=self.trunk,
            skipped_steps=self.skipped,
            best_loss=best["loss"] if best else None,
            best_epochs=best["tokens"] / batches.unique_tokens if best else None,
            validations=measured if best else [],
            seed=config.seed,
            learning_rate=config.learning_rate,
            flops=6.0 * shape.params * batches.tokens,
            counted_flops=flops_per_token(shape, batches.length) * batches.tokens,
            steps=batches.steps,
            seconds=self.seconds,
            tokens_per_second=speed,
            mfu=self._utilisation(speed),
            starts=self.starts,
            non_embedding_params=shape.non_embedding_params,
            architecture=shape.model_dump(),
            execution=asdict(self.execution),
            data={"fingerprint": self.data.fingerprint, **sets},
            recipe=self._recipe(),
            config=config.model_dump(mode="json"),
            config_fingerprint=config.fingerprint(),
            weights_checksum=weights_checksum,
            remarks=self.remarks,
        )

    def _evaluate(self, name: str, averaged: bool = True) -> Evaluation:
        """Of the averaged weights, where there are any; nothing is dropped."""

        def tell(done: int, of: int) -> None:
            for watcher in self.watchers:
                watcher.validating(name, done, of)

        drops = self.config.dropout > 0
        self.model.train(not drops)
        with self.average.used(self.step) if self.average and averaged else nullcontext():
            found = evaluate(
                self.model,
                *self._held_out(name),
                tell=tell,
                sequence_length=self.batches.length,
                rows=pass_width(self.config.batch_size, self.world, self.execution.micro_batch),
                device=self.device,
                dtype=self.dtype,
                world=self.world,
                compiled=self.execution.compiled and self.world.size == 1 and not drops,
            )
            distributed.reshard(self.model, self.world)
        self.model.train()
        if not math.isfinite(found.loss):
            where = f"the {name} loss after step {self.step}"
            raise TrainingStopped(f"{where} is not a number ({found.loss}); {_LOWER}")
        return found

    def _held_out(self, name: str) -> tuple[Any, dict[str, int]]:
        """A held-out set, as far as it is predicted."""
        if name not in self.held_out:
            most, whole = self.config.most_validation_tokens, self.data.stream(name)
            kept = bounded(whole, self.data.facts["streams"][name], most, self.data.tokenizer)
            remark = (
                f"the {name} loss is over the first {most:,} of {len(whole) - 1:,} held-out tokens; "
                f"validation_tokens sets how many"
            )
            if len(kept[0]) < len(whole) and remark not in self.remarks:
                self.remarks.append(remark)
            self.held_out[name] = kept
        return self.held_out[name]

    def _recipe(self) -> dict[str, Any]:
        """The choices that the configuration only names."""
        named = [(name, p) for name, p in self.model.named_parameters()]
        decayed, shuffled = optimizer.decayed_names(named, self.config.decay), self.config.order == "shuffle"
        return {
            "asked_unique_tokens": self.config.unique_tokens,
            "asked_epochs": self.config.epochs,
            "chunks_per_epoch": self.batches.chunks,
            "chunks_seen": self.batches.total,
            "tail": "tokens that do not fill a sequence are left out; the last batch is padded with rows "
            "that do not count",
            "order": "a new order every epoch, from the seed"
            if shuffled
            else "the corpus order, every epoch",
            "decayed": decayed,
            "not_decayed": [name for name, _ in named if name not in decayed],
        }


def build(
    config: RunConfig,
    architecture: Architecture,
    execution: Execution,
    world: distributed.World = distributed.ALONE,
) -> Llama:
    """The model of a run with its first weights, compiled and sharded as the run will use it; a sharded one
    is never whole on a device, but filled tensor by tensor.
    """
    model = outline(
        architecture,
        config.sequence_length,
        rope_theta=config.rope_theta,
        norm_eps=config.norm_eps,
        init=config.init,
        attend=attention.function(execution.attention, execution.deterministic),
        multiply=products.function(execution.products),
        recompute=execution.recompute,
        dropout=config.dropout,
    )
    # a tied matrix is known as one only outside of the meta device
    late = world.size > 1 and not architecture.tied_embeddings
    if not late:
        materialise(model, "cpu", config.seed)
        model.to(torch.device(execution.device))
    # on a CPU softmax by PyTorch's own kernel is the faster one
    model.compiled_loss = execution.compiled and execution.device.startswith("cuda")
    if execution.compiled:
        for part in [model.body] if world.size == 1 else model.body.layers:
            part.compile(dynamic=False, **({"mode": "reduce-overhead"} if execution.graphs else {}))
    distributed.shard(model, world, execution.dtype)
    if late:
        materialise(model, execution.device, config.seed, distributed.place)
    return model


def held(
    model: Llama,
    steps: optimizer.Optimizer,
    average: averaging.Average | None = None,
    world: distributed.World = distributed.ALONE,
) -> checkpoints.Held:
    """The rows of weights, moments and averages that this process holds, and which row is the first."""
    tensors: dict[str, torch.Tensor] = {}
    for name, p in model.named_parameters():
        tensors[name] = p
        tensors |= {f"{moment}/{name}": value for moment, value in steps.moments[name].items()}
    tensors |= {f"average/{name}": value for name, value in (average.weights if average else {}).items()}
    return {name: distributed.held(one, world) for name, one in tensors.items()}


def _batches(config: RunConfig, data: tokens.TokenSet) -> Batches:
    return Batches(
        data.stream("train"),
        unique_tokens=config.unique_tokens,
        epochs=config.epochs,
        batch_size=config.batch_size,
        sequence_length=config.sequence_length,
        seed=config.seed,
        order=config.order,
    )


@contextmanager
def _many_shapes(compiled: bool) -> Iterator[None]:
    """Let one process compile many shapes: by default torch stops compiling, without a word, at the ninth."""
    if not compiled:
        yield
        return
    import torch._dynamo.config

    with torch._dynamo.config.patch(recompile_limit=256):
        yield


@contextmanager
def _deterministic(execution: Execution) -> Iterator[None]:
    """Deterministic kernels on CUDA for the duration of a run; CPU kernels used here already are."""
    if not execution.device.startswith("cuda") or not execution.deterministic:
        yield
        return
    how: Any = torch.utils.deterministic
    before = torch.are_deterministic_algorithms_enabled(), how.fill_uninitialized_memory
    torch.use_deterministic_algorithms(True)
    how.fill_uninitialized_memory = False
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before[0])
        how.fill_uninitialized_memory = before[1]
