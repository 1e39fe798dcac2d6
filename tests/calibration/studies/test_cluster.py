"""The Ray engine: a node that dies in the middle, a driver that dies,
Ctrl-C, a study that moves between engines, no cluster at all.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from calibration.studies import directory
from calibration.studies.study import load
from tests.calibration.studies import conftest as tiny

pytest.importorskip("ray", reason="the Ray engine needs ray")


@contextmanager
def node(*options: str, before: Sequence[str] = ()) -> Iterator[subprocess.Popen[str]]:
    """A node of a Ray cluster with one core, in processes of their own; `before` is what starts them."""
    command = [
        *before,
        sys.executable,
        "-m",
        "ray.scripts.scripts",
        "start",
        "--block",
        "--num-cpus=1",
        "--disable-usage-stats",
        *options,
    ]
    quiet: dict[str, Any] = {
        "stdout": subprocess.DEVNULL,
        "stderr": subprocess.DEVNULL,
        "text": True,
        "start_new_session": True,
    }
    process = subprocess.Popen(command, env=tiny.environment(), **quiet)
    try:
        yield process
    finally:
        slay(process)


def stopped_in_a_run(process: subprocess.Popen[str], out: Path) -> str | None:
    """The name of the run that a node is in the middle of, stopped
    there so that it cannot end meanwhile; None between two runs.
    """
    workers = {
        worker
        for raylet in tiny.children(process.pid, "raylet/raylet")
        for worker in tiny.children(raylet, "ray::")
    }
    for folder in (
        path.parent
        for path in (out / "runs").glob("*/metrics.jsonl")
        if path.parent.name not in tiny.finished(out)
    ):
        worker = tiny.holder(out, folder.name)
        if worker and worker in workers:
            os.kill(worker, signal.SIGSTOP)
            if folder.name not in tiny.finished(out):
                return folder.name
            os.kill(worker, signal.SIGCONT)
    return None


def slay(process: subprocess.Popen[str]) -> None:
    """kill -9 a node: its raylet, the workers that it has started, and whatever else belongs to it."""
    for raylet in tiny.children(process.pid, "raylet/raylet") if process.poll() is None else ():
        for victim in [raylet, *tiny.children(raylet, "")]:
            os.kill(victim, signal.SIGKILL)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@contextmanager
def cluster_head(*options: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """The address of a cluster with one node, and that node."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    address, here = f"127.0.0.1:{port}", ("--include-dashboard=false", "--node-ip-address=127.0.0.1")
    with node("--head", f"--port={port}", *here, *options) as process:
        assert tiny.until(lambda: nodes(address) == 1, process)
        yield address, process


def nodes(address: str) -> int:
    """How many nodes of a cluster are alive; none while it does not answer."""
    host, _, port = address.partition(":")
    with socket.socket() as door:
        if door.connect_ex((host, int(port))):
            return 0  # without a process that asks, which takes seconds of a core
    code = "import ray, sys; ray.init(sys.argv[1], log_to_driver=False); "
    code += "print('alive:', sum(node['Alive'] for node in ray.nodes()))"
    asked = [sys.executable, "-c", code, address]
    said = subprocess.run(asked, env=tiny.environment(), capture_output=True, text=True).stdout
    found = re.search(r"alive: (\d+)", said)  # among what Ray itself has to say
    return int(found[1]) if found else 0


@pytest.fixture(scope="module")
def head() -> Iterator[str]:
    """The address of a cluster with one node."""
    with cluster_head() as (address, _):
        yield address


@pytest.mark.slow
def test_a_node_dies_in_the_middle(
    head: str, study: Path, tmp_path: Path, undisturbed: dict[str, Any]
) -> None:
    out = tmp_path / "out"
    with node(f"--address={head}") as second:
        process = tiny.begin(study, out, "--engine", "ray", "--address", head, "--json")
        lost = tiny.until(lambda: stopped_in_a_run(second, out), process)
        slay(second)
        done = tiny.ended(process)
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    assert (facts["done"], facts["trained"], facts["failed"]) == (8, 8, {})
    assert tiny.endings(out) == undisturbed
    failed = [(failure["run"], failure["reason"]) for failure in tiny.failures(out)]
    assert failed == [(lost, "the node that it ran on died")]  # and charged to no run
    again = {name: count for name, count in tiny.starts(out).items() if count > 1}
    assert again in ({}, {lost: 2})  # from its beginning where it had no checkpoint yet


@pytest.mark.slow
def test_a_process_trains_one_run_where_there_are_gpus(study: Path, tmp_path: Path) -> None:
    """CUDA stays with the GPU that a process saw first, whatever Ray gives its next task: two runs would
    share one. These GPUs are Ray's word only.
    """
    out = tmp_path / "out"
    study.write_text(study.read_text().replace("epochs = [2, 4]", "epochs = [2]").replace("[0, 1]", "[0]"))
    with cluster_head("--num-gpus=2") as (address, _):
        done = tiny.ended(tiny.begin(study, out, "--engine", "ray", "--address", address, "--workers", "1"))
    assert done.returncode == 0, done.stderr
    assert len({tiny.holder(out, name) for name in tiny.finished(out)}) == 2


def elsewhere(out: Path, content: Path | None) -> list[str]:
    """What has a node see something else where the study directory is: a copy of it, or nothing."""
    over = f"mount --bind {content} {out}" if content else f"mount -t tmpfs nothing {out}"
    alone = ["unshare", "-rm", "sh", "-c", f'{over} && exec "$@"', "sh"]
    if subprocess.run([*alone, "true"], capture_output=True).returncode:
        pytest.skip("this system lets nobody mount anything")
    return alone


@pytest.mark.slow
@pytest.mark.parametrize("seen", ["a copy", "nothing"])
def test_a_node_that_does_not_share_the_directory_trains_nothing(
    seen: str, head: str, study: Path, tmp_path: Path, undisturbed: dict[str, Any]
) -> None:
    """It would train at the same path on a disk of its own, and nobody would ever see what it trained."""
    out, copy = tmp_path / "out", tmp_path / "copy"
    directory.begin(load(study), out)
    if seen == "a copy":
        shutil.copytree(out, copy)
    with node(f"--address={head}", before=elsewhere(out, copy if seen == "a copy" else None)) as second:
        assert tiny.until(lambda: nodes(head) == 2, second)
        done = tiny.ended(tiny.begin(study, out, "--engine", "ray", "--address", head))
    assert done.returncode == 0, done.stderr
    assert tiny.endings(out) == undisturbed
    assert not [*copy.glob("runs/*/metrics.jsonl")]
    assert [failure["reason"] for failure in tiny.failures(out) if "must share" in failure["reason"]] in (
        [],  # where it was too slow to be given any run
        [tiny.failures(out)[0]["reason"]],
    )


@pytest.mark.slow
def test_a_head_that_dies_is_one_sentence_soon(study: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with cluster_head() as (address, process):
        sweeping = tiny.begin(study, out, "--engine", "ray", "--address", address, "--quiet")
        assert tiny.until(lambda: tiny.steps(out) > 20, sweeping)
        slay(process)
        stopped = tiny.ended(sweeping)
    assert stopped.returncode == 1, stopped.stderr
    assert (
        len(stopped.stderr.splitlines()) == 1
    )  # too late, and Ray would have ended it with a page of its own
    assert "the Ray cluster" in stopped.stderr
    assert "is gone" in stopped.stderr


@pytest.mark.slow
def test_a_study_moves_from_this_machine_to_ray_and_back(
    head: str, study: Path, tmp_path: Path, undisturbed: dict[str, Any]
) -> None:
    out, ray = tmp_path / "out", ("--engine", "ray", "--address", head)
    process = tiny.begin(study, out, "--workers", "2", "--quiet")
    assert tiny.until(lambda: tiny.finished(out), process)
    process.kill()
    tiny.ended(process)
    here = tiny.finished(out)
    process = tiny.begin(study, out, *ray, "--quiet")
    assert tiny.until(lambda: len(tiny.finished(out)) > len(here), process)
    process.kill()
    tiny.ended(process)
    there = tiny.finished(out)
    done = tiny.run(study, out, "--quiet")
    assert done.returncode == 0, done.stderr
    assert here.items() <= there.items() <= tiny.finished(out).items()
    assert tiny.endings(out) == undisturbed


@pytest.mark.slow
def test_ctrl_c_has_the_cluster_write_checkpoints(head: str, study: Path, tmp_path: Path) -> None:
    study.write_text(
        study.read_text()
        .replace("epochs = [2, 4]", "epochs = [200]")
        .replace("every = 10", "every = 1000000")
    )
    out = tmp_path / "out"
    process = tiny.begin(study, out, "--engine", "ray", "--address", head, "--quiet")
    assert tiny.until(lambda: tiny.steps(out) > 20, process)
    process.send_signal(signal.SIGINT)
    stopped = tiny.ended(process)
    assert (stopped.returncode, stopped.stderr.splitlines()) == (
        130,
        ["stopped; the same command goes on from here."],
    )
    assert len([*(out / "runs").glob("*/checkpoints/step-*/state.json")]) == 1
    assert not tiny.failures(out)


@pytest.mark.parametrize(
    ("address", "complaint"),
    [
        ("127.0.0.1:9", "no Ray cluster answers at 127.0.0.1:9"),
        ("nowhere", "the address of a Ray cluster is HOST:PORT; got 'nowhere'"),
    ],
)
def test_no_cluster_there(address: str, complaint: str, study: Path, tmp_path: Path) -> None:
    done = tiny.run(study, tmp_path / "out", "--engine", "ray", "--address", address, timeout=tiny.PATIENCE)
    assert done.returncode == 2
    assert done.stderr.startswith(f"Error: {complaint}")
    assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_another_token(head: str, study: Path, tmp_path: Path) -> None:
    process = tiny.begin(
        study,
        tmp_path / "out",
        "--engine",
        "ray",
        "--address",
        head,
        env=tiny.environment() | {"RAY_AUTH_TOKEN": "0" * 32},
    )
    done = tiny.ended(process)
    assert done.returncode == 2
    assert done.stderr.startswith(f"Error: the Ray cluster at {head} asks for another token")
    assert len(done.stderr.splitlines()) == 1


def test_something_else_listens_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from calibration.studies import cluster
    from planner.inputs import InvalidInput

    monkeypatch.setattr(cluster, "_ANSWER", 2.0)  # instead of what a busy cluster is given
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f"127.0.0.1:{other.getsockname()[1]}"
        with pytest.raises(InvalidInput) as refused:
            cluster.RayEngine(tmp_path, address=address)
    assert (
        str(refused.value)
        == f"no Ray cluster answers at {address}; `ray start --head` prints the address of one."
    )


def test_runs_wait_for_a_gpu_when_the_last_node_with_one_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import ray

    from calibration.studies import cluster
    from calibration.studies.cluster import RayEngine
    from calibration.studies.engine import Needs

    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    engine = RayEngine(tmp_path, per_gpu=2)
    nodes = [
        {"NodeID": "a", "Alive": True, "Resources": {"CPU": 8.0}},
        {"NodeID": "b", "Alive": True, "Resources": {"CPU": 8.0, "GPU": 4.0}},
    ]
    monkeypatch.setattr(ray, "nodes", lambda: nodes)
    monkeypatch.setattr(cluster, "_port_is_open", lambda address: True)
    engine._head = "head:1"
    assert engine._needed() == {"num_cpus": 0, "num_gpus": 0.5}
    nodes[1]["Alive"] = False
    assert engine._needed() == {"num_cpus": 0, "num_gpus": 0.5}
    engine.needs = Needs(gpus=2, memory=2**34)
    assert engine._needed() == {"num_cpus": 0, "num_gpus": 2, "memory": 2**34}
    assert engine.room() > 64  # what waits is what makes a cluster grow


def test_runs_wait_for_a_gpu_of_the_kind_that_they_need(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import ray

    from calibration.studies import cluster
    from calibration.studies.engine import Needs

    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(ray, "nodes", lambda: [{"NodeID": "a", "Alive": True, "Resources": {"CPU": 8.0}}])
    monkeypatch.setattr(cluster, "_port_is_open", lambda address: True)
    engine = cluster.RayEngine(tmp_path, per_gpu=2, needs=Needs(accelerator="H100"))
    engine._head = "head:1"
    assert engine._needed() == {"num_cpus": 0, "num_gpus": 0.5, "accelerator_type": "H100"}
    engine.needs = Needs(gpus=1, threads=4, accelerator="H100")
    assert engine._needed() == {"num_cpus": 4, "num_gpus": 1, "accelerator_type": "H100"}


def test_ray_is_not_installed(study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from calibration.studies import cluster
    from planner.inputs import InvalidInput

    monkeypatch.setattr(cluster, "find_spec", lambda name: None)
    with pytest.raises(InvalidInput, match=r"ray is not installed; pip install '\.\[cluster\]' would do"):
        cluster.RayEngine(tmp_path)
