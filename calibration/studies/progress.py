"""The state of a sweep: what is done, waits, runs or has failed, and what each failure is charged to.

A run is given up after three failures without getting further. One node of a cluster that fails whatever it
is given would have every run given up within seconds, for it is always free first. So a run that failed on
a node is tried on another one, and a node on which three different runs have failed in a row is set aside:
what failed there is its fault, and charged to no run.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field

from calibration.studies.study import StudyRun

ATTEMPTS = 3


@dataclass
class Progress:
    """The state of a sweep, for whoever drives it and whoever shows it."""

    runs: Sequence[StudyRun]
    done: dict[str, StudyRun] = field(default_factory=dict)  # found or trained
    trained: dict[str, float] = field(default_factory=dict)  # in this sweep: seconds that each took
    running: dict[str, float] = field(default_factory=dict)  # and when it was started
    elsewhere: dict[str, float] = field(default_factory=dict)  # trained by somebody else; when to look again
    failed: dict[str, str] = field(default_factory=dict)  # for good
    failures: dict[str, list[str]] = field(default_factory=dict)  # why each attempt failed that did
    charged: dict[str, list[str]] = field(default_factory=dict)  # where it failed since its last checkpoint
    reached: dict[str, str] = field(default_factory=dict)  # that checkpoint
    blamed: dict[str, list[str]] = field(default_factory=dict)  # runs that failed on a node, in a row
    aside: dict[str, str] = field(default_factory=dict)  # nodes that get no more runs, and why
    began: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        self._flops = {run.name: run.flops for run in self.runs}
        self._places = {run.name: place for place, run in enumerate(self.runs)}
        self._trained_flops = 0.0
        self._left_flops = sum(flops for name, flops in self._flops.items() if name not in self.done)
        self._waiting: list[tuple[float, int]] = []
        for run in self.runs:
            if run.name not in self.done:
                self.queue(run.name)

    def queue(self, name: str) -> None:
        """Have a run wait for its turn, longest first: short runs fill the gaps at the end."""
        heapq.heappush(self._waiting, (-self._flops[name], self._places[name]))

    def take(self, most: int) -> Iterator[StudyRun]:
        """The next runs, no longer waiting."""
        for _ in range(min(most, len(self._waiting))):
            yield self.runs[heapq.heappop(self._waiting)[1]]

    @property
    def complete(self) -> bool:
        return len(self.done) + len(self.failed) >= len(self.runs)

    def finish(self, run: StudyRun, seconds: float | None = None) -> None:
        """A run is done: trained in so many seconds, or found."""
        self.done[run.name] = run
        self._left_flops -= self._flops[run.name]
        if seconds is not None:
            self.trained[run.name] = seconds
            self._trained_flops += self._flops[run.name]

    def give_up(self, name: str, reason: str) -> None:
        self.failed[name] = reason
        self._left_flops -= self._flops[name]

    def look_again(self) -> None:
        """Ask again for runs that somebody else was training a while ago."""
        now = time.monotonic()
        for name in [name for name, when in self.elsewhere.items() if when <= now]:
            del self.elsewhere[name]
            self.queue(name)

    def charge(self, name: str, node: str, reason: str, checkpoint: str) -> None:
        """Count a failure of a run on a node; one that got further than before is not the run's fault."""
        self.failures.setdefault(name, []).append(reason)
        if checkpoint != self.reached.get(name):
            self.charged.pop(name, None)
            self.reached[name] = checkpoint
        self.charged.setdefault(name, []).append(node)
        if node:
            self.blamed.setdefault(node, []).append(name)

    def suspicious(self, node: str) -> bool:
        """Whether so many different runs have failed there in a row that the node is to blame."""
        return len({*self.blamed.get(node, ())}) >= ATTEMPTS

    def set_aside(self, node: str, reason: str) -> None:
        self.aside[node] = reason

    def exhausted(self, name: str) -> bool:
        """Whether a run has had its attempts, those on nodes that are set aside not counted."""
        return len([node for node in self.charged.get(name, ()) if node not in self.aside]) >= ATTEMPTS

    def shunned(self, name: str) -> Collection[str]:
        """The nodes on which a run has failed."""
        return {node for node in self.charged.get(name, ()) if node}

    def seconds_left(self) -> float | None:
        """At the speed so far: what has been trained, per second of this sweep."""
        if not self._trained_flops:
            return None
        return self._left_flops * (time.monotonic() - self.began) / self._trained_flops
