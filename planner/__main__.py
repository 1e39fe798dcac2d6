"""`python -m planner` and the `planner` command.

These settings make the command start a third faster, without touching `import planner`: pydantic looks for
plug-ins in the metadata of every installed package unless told not to, numpy starts a thread per core for
products of matrices that are large, which ours are not, and collecting garbage while modules load finds none.
"""

from __future__ import annotations

import gc
import os

_THREADS = "OPENBLAS_NUM_THREADS"


def main() -> None:
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    threads = os.environ.get(_THREADS)
    os.environ.setdefault(_THREADS, "1")
    gc.disable()
    from planner.cli import planner

    if threads is None:  # numpy has read it; what is started from here may do as it likes
        del os.environ[_THREADS]
    gc.freeze()  # modules live until the end: neither a collection nor the exit needs to walk through them
    gc.set_threshold(50_000)  # a plan is made of fewer objects, and has no garbage worth a look
    gc.enable()
    planner.main(prog_name="planner")


if __name__ == "__main__":
    main()
