"""Trains one run for an engine and says how it ended; nothing that goes wrong in a run leaves this file as an
exception.
"""

from __future__ import annotations

import errno
import os
import platform
import re
from collections.abc import Callable
from pathlib import Path

from calibration.studies.engine import Outcome, Task
from calibration.studies.heartbeat import heartbeats
from planner.inputs import InvalidInput
from trainer import waiting
from trainer.errors import Busy, Interrupted, TrainingStopped, Unfit, or_unfit
from trainer.run.store import fetched_once, is_url

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def train_task(task: Task, should_stop: Callable[[], bool] = lambda: False) -> Outcome:
    """Train a run, or continue it, or find it done."""
    from trainer.config import RunConfig
    from trainer.data.tokens import open_set
    from trainer.run.loop import train

    try:
        if task.processes > 1:
            from calibration.studies.ranks import train_on_several  # each of which ends here again

            return train_on_several(task, should_stop)
        with heartbeats(task.folder, should_stop) as asked:
            with or_unfit():
                data = open_set(tokens_here(task))
            train(RunConfig(**task.config), task.folder, should_stop=asked, data=data)
    except Busy as error:
        return Outcome(task.name, "busy", str(error))
    except Unfit as error:
        return Outcome(task.name, "unfit", str(error))
    except InvalidInput as error:
        return Outcome(task.name, "disk" if _disk_is_full(error.__context__) else "refused", str(error))
    except Interrupted as error:
        return Outcome(task.name, "stopped", str(error))
    except TrainingStopped as error:
        return Outcome(task.name, "disk" if _disk_is_full(error.__cause__) else "failed", str(error))
    except OSError as error:
        return Outcome(task.name, "disk" if _disk_is_full(error) else "failed", str(error))
    except Exception as error:  # one run's trouble, whatever it is, must not end the others
        return Outcome(task.name, "failed", f"{type(error).__name__}: {' '.join(str(error).split())[:300]}")
    return Outcome(task.name, "done")


def tokens_here(task: Task) -> Path:
    """The folder of its tokens on this machine."""
    return fetched_once(task.tokens) if is_url(task.tokens) else Path(task.tokens)


def prepare_process(threads: int, compiled: str, gpus: float) -> None:
    """Have this process train in so many threads on a GPU or part of one, and keep there what it compiles."""
    os.environ |= waiting.ENVIRONMENT | {
        "OMP_NUM_THREADS": str(threads),
        "DATABOUND_GPU_SHARE": str(min(1.0, gpus)),
        "TORCHINDUCTOR_CACHE_DIR": os.path.join(compiled, platform.node()),  # compiled for its kind of CPU
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
    }
    import torch  # which reads the environment then

    torch.set_num_threads(threads)


def _disk_is_full(error: BaseException | None) -> bool:
    """Whether nothing more can be written; safetensors, which writes checkpoints, has its number as text."""
    found = re.search(r"\(os error (\d+)\)", str(error))
    number = error.errno if isinstance(error, OSError) else int(found[1]) if found else None
    return number in _FULL
