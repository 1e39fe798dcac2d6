"""How the threads of one process wait for each other: asleep.

OpenMP has them spin. That saves microseconds where every thread has a core of its own, but beside another
busy process the one that is waited for does not get to run, and a process loses not its share of the machine
but nearly all of it. Both libraries of OpenMP read this from the environment when torch is first imported.
"""

from __future__ import annotations

import os

ENVIRONMENT = {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "0", "KMP_BLOCKTIME": "0"}


def sleep_while_waiting() -> None:
    """For this process, unless its user has said otherwise."""
    if not ENVIRONMENT.keys() & os.environ.keys():
        os.environ.update(ENVIRONMENT)
