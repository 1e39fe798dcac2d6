"""Train every run of a list that is not trained yet: longest first, each exactly once, whatever happens.

Two sweeps of one study may run at the same time, even on different machines that share its directory: who
holds the lock of a run directory trains it, and the other goes on with the next run and looks again later.
A run counts as done when its result is here, where the driver can read it, whatever the engine says.
"""

from __future__ import annotations

import math
import os
import time
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from calibration.studies.directory import GRID, StudyDirectory, adopt, damaged, prepare, unfinished
from calibration.studies.engine import Engine, Outcome, Task
from calibration.studies.heartbeat import FILE, last_sign
from calibration.studies.progress import Progress
from calibration.studies.study import StudyRun
from trainer.errors import TrainingStopped

_LOOK_AGAIN = 2.0  # seconds after which a run that somebody else trains is asked for again
_SILENCE = float(os.environ.get("DATABOUND_SILENCE", 180.0))  # seconds without a sign that are too long
_ARRIVAL = 20.0  # seconds that shared storage may take to show what another machine has written


def sweep(
    runs: Sequence[StudyRun],
    directory: StudyDirectory,
    engine: Engine,
    *,
    part: Callable[[StudyRun], str] = lambda run: GRID,
    watch: Callable[[Progress], None] = lambda progress: None,
) -> Progress:
    """Train what is missing of `runs`; `watch` is called at least every second.

    `part` says where a run belongs. Two sweeps must agree on it, or each would train the run in its own
    place. A run that fails three times without getting further is put aside with its reason, and so is one
    whose result is damaged. Ctrl-C ends the sweep and leaves checkpoints.
    """
    directory.fetch(runs, part)
    missing = {run.name for run in unfinished(directory, runs)}
    progress = Progress(runs, done={run.name: run for run in runs if run.name not in missing})
    for name, reason in damaged(directory, progress.done).items():
        del progress.done[name]
        progress.give_up(name, reason)
    watch(progress)
    if progress.complete:
        return progress
    driver = _Driver(progress, directory, engine, part)
    data = prepare(runs, directory)
    with engine:
        progress.began = time.monotonic()
        while not progress.complete:
            progress.requeue_waiting()
            driver.start(data)
            for outcome in engine.wait(1.0):
                driver.handle_outcome(outcome)
            driver.abandon_silent_runs()
            if not progress.running and progress.elsewhere:
                time.sleep(0.2)
            watch(progress)
    return progress


@dataclass
class _Driver:
    """Starts runs where there is room for them and makes of each outcome what it means for the sweep."""

    progress: Progress
    directory: StudyDirectory
    engine: Engine
    part: Callable[[StudyRun], str]
    signs: dict[str, tuple[object, float]] = field(default_factory=dict)  # the last, and when it was seen
    looked: float = field(default_factory=time.monotonic)

    @cached_property
    def worth_compiling(self) -> set[int]:
        """Sizes of which all runs together earn back what compiling a model for a CPU takes: it is compiled
        once for all of them.
        """
        from trainer.run.device import COMPILE_PAYS

        work: Counter[int] = Counter()
        for run in self.progress.runs:
            work[run.params] += int(run.flops)
        return {size for size, flops in work.items() if flops >= COMPILE_PAYS}

    def start(self, data: Path) -> None:
        for run in self.progress.take(self.engine.room()):
            if not unfinished(self.directory, [run]):  # another sweep has finished it meanwhile
                self.progress.finish(run)
                continue
            part, directory = self.part(run), self.directory
            values = run.config.model_dump(mode="json", exclude_unset=True)
            # Paths absolute, token files of the study, models compiled as it pays unless the recipe says so.
            compiled = values.get("compile", "on" if run.params in self.worth_compiling else "auto")
            values |= {"cache": str(directory.tokens.absolute()), "compile": compiled}
            if trunk := self._trunk(run):
                values |= {"trunk": str(trunk.absolute())}
            folder, tokens = directory.run_folder(run.name, part), str(data.absolute())
            task = Task(run.name, values, str(folder.absolute()), tokens)
            if directory.store and (store := directory.stored(run.name, part)):
                task = replace(task, folder=store.url, tokens=f"{directory.store.url}/tokens/{data.name}")
            self.progress.running[run.name] = time.monotonic()
            # a sign of an earlier attempt is not one of this, which may have to wait for its turn
            self.signs[run.name] = self._sign(run), math.inf
            aside = {*self.progress.aside}
            failed = {*self.progress.avoided_nodes(run.name)}
            self.engine.start(task, aside | failed if self._others(failed) else aside)

    def _trunk(self, run: StudyRun) -> Path | None:
        """The run from whose checkpoint this one decays, where it has that very one; a run without trains the
        steps of the trunk itself, to the same bits.
        """
        if not run.trunk:
            return None
        from trainer.model.optimizer import decay_begins
        from trainer.run.checkpoints import place

        trunk = self.directory.run_folder(run.trunk, self.part(run))
        kept = place(trunk / "branches", decay_begins(run.steps, run.config))
        return trunk if (kept / "state.json").is_file() else None

    def abandon_silent_runs(self) -> None:
        """Give up on processes that show no sign of life any more: their runs are tried again."""
        now = time.monotonic()
        if now - self.looked < _SILENCE / 10:
            return
        self.looked = now
        for name in [*self.progress.running]:
            (last, when), sign = self.signs[name], self._sign(self.progress.by_name[name])
            if sign != last:
                self.signs[name] = sign, time.monotonic()
            elif now - when > _SILENCE:
                self.engine.abandon(name)
                self.handle_outcome(Outcome(name, "failed", "its process showed no sign of life any more"))

    def _sign(self, run: StudyRun) -> object:
        """The last sign of life of whoever trains a run, of which only whether it changes is looked at."""
        if (store := self.directory.stored(run.name, self.part(run))) is None:
            return last_sign(self.directory.run_folder(run.name, self.part(run)))
        try:
            return store.read(FILE)
        except TrainingStopped:  # it does not answer for a moment
            return self.signs.get(run.name, (None, 0.0))[0]

    def handle_outcome(self, outcome: Outcome) -> None:
        run, progress = self.progress.by_name[outcome.name], self.progress
        started = progress.running.pop(run.name)
        if outcome.kind == "done" and self._result_arrived(run):
            progress.blamed.pop(outcome.node, None)
            progress.finish(run, time.monotonic() - started)
            if self.part(run) == GRID:
                adopt([run], self.directory)
        elif outcome.kind == "done":
            where, here = outcome.node or "its worker", self.directory.path
            lost = f"{where} trained it and its result is not in {here} here"
            self._fail(outcome, f"{lost}; the study must be on shared storage")
        elif outcome.kind == "busy":
            progress.elsewhere[run.name] = time.monotonic() + _LOOK_AGAIN
        elif outcome.kind == "disk":
            raise TrainingStopped(
                f"the disk of {self.directory.path} is full ({outcome.reason.rstrip('.')}); "
                f"once there is room the same command goes on."
            )
        elif outcome.kind == "blind":
            self._set_aside(outcome.node, outcome.reason, or_stop=True)
            progress.queue(run.name)
        elif outcome.kind in ("stopped", "lost"):
            if outcome.kind == "lost":
                self.directory.record_failure(run.name, outcome.reason)
            progress.queue(run.name)
        else:
            self._fail(outcome, outcome.reason)

    def _result_arrived(self, run: StudyRun) -> bool:
        """Whether a run's result can be read here, which network storage may take a moment for."""
        deadline = time.monotonic() + _ARRIVAL
        self.directory.fetch_result(run.name, self.part(run))
        while unfinished(self.directory, [run]):
            if time.monotonic() > deadline:
                return False
            time.sleep(0.2)
            folder = self.directory.run_folder(run.name)
            if folder.is_dir():
                os.listdir(folder)  # has network storage look again
        return True

    def _fail(self, outcome: Outcome, reason: str) -> None:
        name, node, progress = outcome.name, outcome.node, self.progress
        self.directory.record_failure(name, reason)
        part = self.part(progress.by_name[name])
        progress.charge(name, node, reason, self.directory.checkpoint(name, part))
        if node and progress.suspicious(node):
            self._set_aside(node, f"{len(progress.blamed[node])} runs in a row failed there, last: {reason}")
        nowhere = outcome.kind == "unfit" and not self._others(progress.avoided_nodes(name))
        if outcome.kind == "refused" or nowhere or (outcome.kind != "unfit" and progress.exhausted(name)):
            progress.give_up(name, reason)
        else:
            progress.queue(name)

    def _others(self, nodes: Collection[str]) -> set[str]:
        """The nodes that runs may be given besides these."""
        return self.engine.nodes() - {*nodes} - {*self.progress.aside}

    def _set_aside(self, node: str, reason: str, *, or_stop: bool = False) -> None:
        """Give a node no more runs, where others are left to take them."""
        if node in self.progress.aside:
            return
        if self._others({node}):
            self.directory.record_failure(node, f"set aside: {reason}")
            self.progress.aside[node] = reason
        elif or_stop:
            raise TrainingStopped(f"{reason}; once that is mended the same command goes on.")
