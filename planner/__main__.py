"""`python -m planner` and the `planner` command.

Two settings make the command start faster, without touching `import planner`: pydantic looks for plug-ins in
the metadata of every installed package unless told not to, and numpy starts a thread per core for products of
matrices that are large, which ours are not.
"""

from __future__ import annotations

import os

_THREADS = "OPENBLAS_NUM_THREADS"


def main() -> None:
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    threads = os.environ.get(_THREADS)
    os.environ.setdefault(_THREADS, "1")
    from planner.cli import planner

    if threads is None:  # numpy has read it; what is started from here may do as it likes
        del os.environ[_THREADS]
    planner.main(prog_name="planner")


if __name__ == "__main__":
    main()
