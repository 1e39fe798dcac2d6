"""Nothing lost, nothing twice: drivers and workers killed at random,
two drivers at once, Ctrl-C, runs that never succeed, a full disk.
"""

from __future__ import annotations

import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.calibration.studies.conftest import (
    STEPS,
    begin,
    children,
    ended,
    endings,
    environment,
    failures,
    finished,
    holder,
    midway,
    run,
    starts,
    steps,
    until,
)
from trainer.files import locked

pytestmark = pytest.mark.slow


def reached(process: subprocess.Popen[str], out: Path, point: int) -> bool:
    return steps(out) >= point and any(children(process.pid, "spawn_main"))


def prepared_for_ctrl_c(pid: int) -> bool:
    """Whether SIGINT is caught, ignored or blocked there; before that it ends a process without a word."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return False
    masks = [int(line.split()[1], 16) for line in lines if line.startswith(("SigBlk", "SigIgn", "SigCgt"))]
    return any(mask >> (signal.SIGINT - 1) & 1 for mask in masks)


def test_driver_and_workers_killed_twice_at_random(
    study: Path, tmp_path: Path, undisturbed: dict[str, Any]
) -> None:
    out, points = tmp_path / "out", []
    before: dict[str, int] = {}
    for _ in range(2):
        process = begin(study, out, "--workers", "2", "--quiet")
        for victim in ("worker", "driver"):
            points.append(steps(out) + random.randrange(10, STEPS // 10))
            assert until(partial(reached, process, out, points[-1]), process), points
            os.kill(
                process.pid if victim == "driver" else random.choice([*children(process.pid, "spawn_main")]),
                signal.SIGKILL,
            )
        assert ended(process).returncode == -signal.SIGKILL
        assert before.items() <= finished(out).items(), points
        before = finished(out)
    done = run(study, out, "--quiet")
    assert done.returncode == 0, done.stderr
    assert before.items() <= finished(out).items(), points
    assert endings(out) == undisturbed, points
    assert {failure["reason"].split(";")[0] for failure in failures(out)} <= {
        "its process was killed by signal 9"
    }


def test_two_sweeps_at_once_share_the_runs(study: Path, tmp_path: Path, undisturbed: dict[str, Any]) -> None:
    out = tmp_path / "out"
    drivers = [begin(study, out, "--workers", "2", "--json") for _ in range(2)]
    facts = []
    for driver in drivers:
        done = ended(driver)
        assert done.returncode == 0, done.stderr
        facts.append(json.loads(done.stdout))
    assert [fact["done"] for fact in facts] == [8, 8]
    assert starts(out) == dict.fromkeys(
        undisturbed, 1
    )  # nobody took a run from the other, or trained it again
    assert endings(out) == undisturbed
    assert not failures(out)


def tokenise(study: Path, out: Path) -> Path:
    """The folder of the tokens that `planner tokenise` makes."""
    command = [sys.executable, "-m", "planner", "tokenise", str(study), "-o", str(out), "--json"]
    made = subprocess.run(command, env=environment(), capture_output=True, text=True, check=True)
    return Path(json.loads(made.stdout)["folder"])


def test_tasks_of_a_slurm_array_wait_for_the_tokens_and_share_the_runs(
    study: Path, tmp_path: Path, undisturbed: dict[str, Any]
) -> None:
    """Each is a driver of its own node; while one of them, or `planner tokenise`, makes the tokens, the
    others wait for as long as that takes, and none of them leaves.
    """
    out = tmp_path / "out"
    made = tokenise(study, out)
    (lock,) = made.parent.glob(".work-*.lock")
    shutil.move(made, tmp_path / "made")
    with locked(lock):  # as whoever makes them holds it
        tasks = [begin(study, out, "--workers", "1", "--json") for _ in range(2)]
        for task in tasks:
            with pytest.raises(subprocess.TimeoutExpired):
                task.wait(15)
        shutil.move(tmp_path / "made", made)
    done = [ended(task) for task in tasks]
    assert [task.returncode for task in done] == [0, 0], [task.stderr for task in done]
    assert sum(json.loads(task.stdout)["trained"] for task in done) == 8
    assert endings(out) == undisturbed
    assert not failures(out)


def test_a_corpus_that_changes_meanwhile(
    study: Path, corpus: Path, tmp_path: Path, undisturbed: dict[str, Any]
) -> None:
    """What began on some tokens ends on them; the next sweep says that the files have others."""
    out = tmp_path / "out"
    texts = shutil.copytree(corpus, tmp_path / "texts")
    study.write_text(study.read_text().replace(str(corpus), str(texts)))
    process = begin(study, out, "--workers", "1", "--quiet")
    assert until(lambda: finished(out), process)
    (texts / "000.txt").write_text("Something else altogether.")
    (texts / "001.txt").unlink()
    assert ended(process).returncode == 0
    assert endings(out) == undisturbed
    again = run(study, out)
    assert again.returncode == 2
    assert again.stderr.startswith("Error: the corpus has changed since the study in ")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_ctrl_c_leaves_checkpoints_and_one_line(
    number: int, study: Path, tmp_path: Path, undisturbed: dict[str, Any]
) -> None:
    out = tmp_path / "out"
    rare = (
        "--set",
        "checkpoint_every=100000",
    )  # so that whatever is there was written because of the interruption
    workers = "2" if number == signal.SIGINT else "1"
    process = begin(study, out, "--workers", workers, "--quiet", *rare)
    assert until(lambda: midway(out), process)
    os.killpg(process.pid, number)  # as a terminal does, and a scheduler that takes the machine back
    stopped = ended(process)
    assert stopped.returncode == 128 + number  # as schedulers expect: 143 for SIGTERM
    assert stopped.stderr.splitlines() == ["stopped; the same command goes on from here."]
    assert any((out / "runs").glob("*/checkpoints/step-*/state.json"))
    assert not failures(out)
    if number == signal.SIGINT:  # what both leave is the same
        assert run(study, out, "--quiet").returncode == 0
        assert endings(out) == undisturbed
        assert max(starts(out).values()) == 2


def test_ctrl_c_while_workers_are_starting_is_one_line(study: Path, tmp_path: Path) -> None:
    process = begin(study, tmp_path / "out", "--workers", "2", "--quiet")
    assert until(
        lambda: any(prepared_for_ctrl_c(child) for child in children(process.pid, "spawn_main")), process
    )
    os.killpg(process.pid, signal.SIGINT)
    stopped = ended(process)
    assert stopped.returncode == 130
    assert stopped.stderr.splitlines() == ["stopped; the same command goes on from here."]


def test_a_run_that_always_fails_is_put_aside(study: Path, tmp_path: Path) -> None:
    text = study.read_text()
    study.write_text(
        text.replace("epochs = [2, 4]", "epochs = [2]\nlearning_rates = [0.01, 1e12]").replace(
            "[0, 1]", "[0]"
        )
    )
    out = tmp_path / "out"
    done = run(study, out, "--json")
    assert done.returncode == 1
    facts = json.loads(done.stdout)
    bad = {name for name in facts["failed"] if name.endswith("lr1e+12")}
    assert (facts["done"], facts["runs"], len(bad), set(facts["failed"])) == (2, 4, 2, bad)
    assert all("a lower learning_rate would do" in reason for reason in facts["failed"].values())
    assert sorted(failure["run"] for failure in failures(out)) == sorted([*bad] * 3)
    assert len([line for line in done.stderr.splitlines() if " failed: " in line]) == 2
    assert "Traceback" not in done.stderr


def test_a_run_whose_process_dies_each_time_is_put_aside(
    study: Path, tmp_path: Path, undisturbed: dict[str, Any]
) -> None:
    """As one that takes more memory than there is would be."""
    out, name = tmp_path / "out", next(name for name in undisturbed if "e4" in name)
    process = begin(study, out, "--workers", "2")
    killed: set[int | None] = {None}
    for _ in range(3):
        assert until(lambda: holder(out, name) not in killed, process)
        killed.add(holder(out, name))
        os.kill(holder(out, name) or 0, signal.SIGKILL)
    done = ended(process)
    assert done.returncode == 1
    assert set(finished(out)) == set(undisturbed) - {name}
    assert (
        f"{name} failed: its process was killed by signal 9; if memory ran out, fewer --workers would do"
        in done.stderr
    )
    assert [failure["run"] for failure in failures(out)] == [name] * 3
    assert run(study, out, "--quiet").returncode == 0  # what killed it has gone
    assert endings(out) == undisturbed


def test_a_process_that_hangs_is_noticed_and_its_run_trained_by_another(
    study: Path, tmp_path: Path, undisturbed: dict[str, Any]
) -> None:
    out, name = tmp_path / "out", next(name for name in undisturbed if "e4" in name)
    process = begin(study, out, "--workers", "2", env=environment() | {"DATABOUND_SILENCE": "15"})
    stuck = until(lambda: holder(out, name), process)
    os.kill(stuck, signal.SIGSTOP)
    done = ended(process)
    assert done.returncode == 0, done.stderr
    assert endings(out) == undisturbed
    assert (name, "its process showed no sign of life any more") in [
        (failure["run"], failure["reason"]) for failure in failures(out)
    ]


def test_a_full_disk_stops_the_sweep_and_damages_nothing(
    study: Path, tmp_path: Path, undisturbed: dict[str, Any]
) -> None:
    out = tmp_path / "out"
    process = begin(study, out, "--workers", "2", "--quiet")
    assert until(lambda: finished(out), process)
    for worker in children(
        process.pid, "spawn_main"
    ):  # from here on no file of theirs may grow beyond a kilobyte
        resource.prlimit(worker, resource.RLIMIT_FSIZE, (1000, resource.RLIM_INFINITY))
    full = ended(process)
    assert full.returncode == 1
    assert "Traceback" not in full.stderr
    assert full.stderr.startswith(f"Error: the disk of {out} is full (")
    assert len(full.stderr.splitlines()) == 1
    before = finished(out)
    assert before
    assert run(study, out, "--quiet").returncode == 0
    assert before.items() <= finished(out).items()
    assert endings(out) == undisturbed
