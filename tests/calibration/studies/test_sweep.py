"""What the driver makes of what an engine says: which runs count, whose fault a failure is, and its cost."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path

import pytest

from calibration.fitting.runs.tables import read_runs, warnings_of
from calibration.studies import sweep as driving
from calibration.studies.directory import VALIDATION, StudyDirectory, begin, table
from calibration.studies.engine import Outcome, Task
from calibration.studies.heartbeat import FILE
from calibration.studies.provenance import origin_of
from calibration.studies.study import Study, load
from calibration.studies.sweep import sweep
from calibration.studies.worker import train_task
from planner.inputs import InvalidInput
from trainer import train
from trainer.errors import TrainingStopped
from trainer.run.store import Store

Behaviour = Callable[[Task, str], Outcome]


class Nodes:
    """An engine of nodes that each take one run at a time and do with it what they are told, instantly."""

    def __init__(self, **behaviours: Behaviour):
        self.behaviours = behaviours
        self.ended: list[Outcome] = []
        self.given: dict[str, list[str]] = {node: [] for node in behaviours}

    def __enter__(self) -> Nodes:
        return self

    def __exit__(self, *error: object) -> None: ...

    def room(self) -> int:
        return 1

    def start(self, task: Task, avoided_nodes: Collection[str] = ()) -> None:
        node = next(node for node in self.behaviours if node not in avoided_nodes)
        self.given[node].append(task.name)
        self.ended.append(self.behaviours[node](task, node))

    def wait(self, seconds: float) -> Collection[Outcome]:
        ended, self.ended = self.ended, []
        return ended

    def abandon(self, name: str) -> None: ...

    def nodes(self) -> set[str]:
        return {*self.behaviours}

    def describe(self) -> str:
        return "nodes that obey"


def good(task: Task, node: str) -> Outcome:
    Path(task.folder).mkdir(parents=True)
    (Path(task.folder) / "result.json").touch()
    return Outcome(task.name, "done", node=node)


def broken(task: Task, node: str) -> Outcome:
    return Outcome(task.name, "failed", "the driver of its GPU is too old", node)


def blind(task: Task, node: str) -> Outcome:
    return Outcome(task.name, "blind", f"{node} sees another directory", node)


def apart(task: Task, node: str) -> Outcome:
    """Trains on a disk of its own."""
    return Outcome(task.name, "done", node=node)


@pytest.fixture
def tiny(study: Path) -> Study:
    return load(study)


@pytest.fixture
def folder(tiny: Study, tmp_path: Path) -> StudyDirectory:
    return begin(tiny, tmp_path / "out")


def test_a_node_that_fails_everything_is_set_aside_and_no_run_is_charged(
    tiny: Study, folder: StudyDirectory
) -> None:
    engine = Nodes(bad=broken, good=good)
    progress = sweep(tiny.runs, folder, engine)
    assert (len(progress.done), progress.failed) == (8, {})
    assert list(progress.aside) == ["bad"]
    assert "the driver of its GPU is too old" in progress.aside["bad"]
    assert len(engine.given["bad"]) == 3  # different runs, each once
    assert len(set(engine.given["bad"])) == 3


def test_a_run_that_fails_everywhere_is_given_up_and_no_node_set_aside(
    tiny: Study, folder: StudyDirectory
) -> None:
    hopeless = tiny.runs[3].name

    def picky(task: Task, node: str) -> Outcome:
        return broken(task, node) if task.name == hopeless else good(task, node)

    engine = Nodes(one=picky, two=picky)
    progress = sweep(tiny.runs, folder, engine)
    assert set(progress.failed) == {hopeless}
    assert not progress.aside
    assert sorted(node for node, given in engine.given.items() for name in given if name == hopeless) == [
        "one",
        "one",
        "two",
    ]


def test_on_the_only_node_runs_are_given_up_one_by_one(tiny: Study, folder: StudyDirectory) -> None:
    progress = sweep(tiny.runs, folder, Nodes(bad=broken))
    assert len(progress.failed) == 8
    assert not progress.aside


def test_a_node_that_sees_another_directory_gets_no_runs(tiny: Study, folder: StudyDirectory) -> None:
    engine = Nodes(blind=blind, good=good)
    progress = sweep(tiny.runs, folder, engine)
    assert (len(progress.done), progress.failed, progress.failures) == (8, {}, {})
    assert len(engine.given["blind"]) == 1
    with pytest.raises(TrainingStopped, match="blind sees another directory; once that is mended"):
        sweep(tiny.runs, begin(tiny, folder.path.parent / "other"), Nodes(blind=blind))


def test_a_machine_that_lacks_something_gives_no_run_up(
    tiny: Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tokenizer file or tokens that are not there, or a device that is too small, is that machine's
    fault.
    """

    def small(task: Task, node: str) -> Outcome:
        with monkeypatch.context() as here:
            here.setattr("trainer.run.device.total_memory", lambda device: 1e3)
            return replace(train_task(task), node=node)

    def without_tokenizer(task: Task, node: str) -> Outcome:
        lacking = task.config | {"tokenizer": f"{tmp_path}/nowhere/tokenizer.json"}
        return replace(train_task(replace(task, config=lacking)), node=node)

    def without_tokens(task: Task, node: str) -> Outcome:
        return replace(train_task(replace(task, tokens=f"{tmp_path}/nowhere")), node=node)

    for number, (lacking, sentence) in enumerate(
        (
            (small, "GiB on each device and"),
            (without_tokenizer, "there is no file"),
            (without_tokens, "is not a complete token set"),
        )
    ):
        engine = Nodes(lacking=lacking, good=good)
        progress = sweep(tiny.runs, begin(tiny, tmp_path / f"out-{number}"), engine)
        assert (len(progress.done), progress.failed) == (8, {})
        assert sentence in progress.aside["lacking"]
        assert len(engine.given["lacking"]) == 3
        alone = sweep(tiny.runs, begin(tiny, tmp_path / f"alone-{number}"), Nodes(lacking=lacking))
        assert len(alone.failed) == 8  # nowhere else to try


def test_a_node_that_dies_again_and_again_is_charged_to_no_run(tiny: Study, folder: StudyDirectory) -> None:
    lost = Counter[str]()

    def spot(task: Task, node: str) -> Outcome:
        lost[task.name] += 1
        gone = lost[task.name] <= 5
        return Outcome(task.name, "lost", "the node that it ran on died") if gone else good(task, node)

    progress = sweep(tiny.runs, folder, Nodes(spot=spot))
    assert (len(progress.done), progress.failed, progress.failures) == (8, {}, {})


def test_a_result_that_is_not_here_does_not_count(
    tiny: Study, folder: StudyDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driving, "_ARRIVAL", 0.1)
    progress = sweep(tiny.runs, folder, Nodes(apart=apart, good=good))
    assert (len(progress.done), progress.failed) == (8, {})
    assert all((folder.run_folder(run.name) / "result.json").exists() for run in tiny.runs)
    assert "apart trained it and its result is not in " in progress.aside["apart"]


def test_the_longest_run_is_next_also_after_failures(tiny: Study, folder: StudyDirectory) -> None:
    flops = {run.name: run.flops for run in tiny.runs}
    stopped: set[str] = set()

    def hesitant(task: Task, node: str) -> Outcome:
        if task.name in stopped:
            return good(task, node)
        stopped.add(task.name)
        return Outcome(task.name, "stopped", node=node)

    engine = Nodes(one=hesitant)
    sweep(tiny.runs, folder, engine)
    order = [flops[name] for name in engine.given["one"]]
    assert order == sorted(order, reverse=True)


def test_a_size_is_compiled_where_all_its_runs_earn_that_back(
    study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study.write_text(study.read_text().replace('compile = "off"\n', ""))
    plan = load(study)
    work = Counter[int]()
    for run in plan.runs:
        work[run.params] += int(run.flops)
    small, large = sorted(work, key=lambda size: work[size])[:: len(work) - 1]
    monkeypatch.setattr("trainer.run.device.COMPILE_PAYS", work[large])
    asked: dict[int, set[str]] = {}

    def notes(task: Task, node: str) -> Outcome:
        asked.setdefault(next(run.params for run in plan.runs if run.name == task.name), set()).add(
            task.config["compile"]
        )
        return Outcome(task.name, "refused", "enough is known")

    sweep(plan.runs, begin(plan, tmp_path / "out"), Nodes(one=notes))
    assert (asked[small], asked[large]) == ({"auto"}, {"on"})


def test_the_cost_of_a_run_does_not_grow_with_their_number(study: Path, tmp_path: Path) -> None:
    """A thousand runs through the driver; if each were compared with all others, this would take minutes."""
    seeds = ", ".join(map(str, range(250)))
    study.write_text(study.read_text().replace("seeds = [0, 1]", f"seeds = [{seeds}]"))
    many = load(study)
    began = time.process_time()
    progress = sweep(many.runs, begin(many, tmp_path / "out"), Nodes(good=good))
    assert len(progress.done) == 1000
    assert time.process_time() - began < 10


def test_machines_that_share_no_disk_train_in_a_store(
    study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first attempt of every run stops on one machine, the second goes on where another left off."""
    monkeypatch.setenv("DATABOUND_SCRATCH", str(tmp_path))
    text = study.read_text().replace("epochs = [2, 4]", "epochs = [1]").replace("[0, 1]", "[0]")
    study.write_text(text.replace("checkpoint_every = 10", "checkpoint_every = 3"))
    plan, attempts = load(study), Counter[str]()

    def trains(task: Task, node: str) -> Outcome:
        assert task.folder.startswith("memory://study-store/runs/")
        attempts[task.name] += 1
        steps = iter(range(1, 1000))
        stops = (lambda: next(steps) >= 5) if attempts[task.name] == 1 else (lambda: False)
        return train_task(task, stops)

    folder = begin(plan, tmp_path / "out")
    directory = StudyDirectory(folder.path, Store("memory://study-store"))
    progress = sweep(plan.runs, directory, Nodes(one=trains))
    assert [*attempts.values()] == [2, 2]
    assert progress.failed == {}
    for run in plan.runs:
        result = directory.result(run.name)
        assert result is not None
        assert result.starts == 2
        alone = train(run.config.having(cache=str(directory.tokens), compile="off"), tmp_path / run.name)
        assert (result.loss, result.weights_checksum) == (alone.loss, alone.weights_checksum)
    # another driver, with nothing but the study and the store, finds everything done
    other = StudyDirectory(begin(plan, tmp_path / "other").path, directory.store)
    assert len(sweep(plan.runs, other, Nodes(one=trains)).done) == 2
    assert attempts.total() == 4


def test_a_process_that_falls_silent_in_a_store_is_given_up(
    study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driving, "_SILENCE", 0.5)
    run = load(study).runs[0]
    given_up: list[str] = []

    class Silent(Nodes):
        def start(self, task: Task, avoided_nodes: Collection[str] = ()) -> None:
            store = Store(task.folder)
            if not given_up:
                store.write(FILE, b"1")  # its first and last sign of life
                return
            store.write("config.json", b"{}")
            store.write("result.json", b"{}")
            self.ended.append(Outcome(task.name, "done"))

        def wait(self, seconds: float) -> Collection[Outcome]:
            time.sleep(0.05)
            return super().wait(seconds)

        def abandon(self, name: str) -> None:
            given_up.append(name)

    folder = begin(load(study), tmp_path / "out")
    directory = StudyDirectory(folder.path, Store("memory://silent-study"))
    progress = sweep([run], directory, Silent(), part=lambda run: VALIDATION)
    assert given_up == [run.name]
    assert progress.failures == {run.name: ["its process showed no sign of life any more"]}
    assert [*progress.done] == [run.name]


def trains(task: Task, node: str) -> Outcome:
    return replace(train_task(task), node=node)


def of_lengths(study: Path, epochs: str) -> None:
    """Make it one of three runs at most, which begin alike."""
    text = study.read_text().replace('params = ["12k", "20k"]', 'params = ["12k"]').replace("[2, 4]", epochs)
    wsd = '[recipe]\nschedule = "wsd"\nwarmup_steps = 4\n'
    study.write_text(text.replace("[recipe]", wsd).replace("seeds = [0, 1]", "seeds = [1]"))


def test_runs_that_differ_in_epochs_decay_from_checkpoints_of_the_longest(
    study: Path, tmp_path: Path
) -> None:
    of_lengths(study, "[1, 2, 4]")
    alone = load(study)
    study.write_text("trunks = true\n" + study.read_text())
    shared = load(study)
    assert [run.name for run in shared.runs] == [run.name for run in alone.runs]
    assert [run.config.fingerprint() for run in shared.runs] == [
        run.config.fingerprint() for run in alone.runs
    ]
    one, two = begin(alone, tmp_path / "alone"), begin(shared, tmp_path / "shared")
    assert sweep(alone.runs, one, Nodes(here=trains)).complete
    engine = Nodes(here=trains)
    progress = sweep(shared.runs, two, engine)
    assert (len(progress.done), progress.failed) == (3, {})
    trunk = next(run.name for run in shared.runs if not run.trunk)
    assert engine.given["here"][0] == trunk
    results = {found.run: found for found in two.results()}
    assert results[trunk].trunk is None
    for found in one.results():
        assert (results[found.run].loss, results[found.run].weights_checksum) == (
            found.loss,
            found.weights_checksum,
        )
        assert found.run == trunk or results[found.run].trunk == trunk
    said = {note.code: note.text for note in warnings_of(read_runs(table(two)))}
    assert "2 of 3 runs branch off from 1 others, whose noise they share" in said["shared_trunks"]
    assert origin_of(two).recipe is not None
    assert origin_of(two).recipe["schedule"].startswith("WSD to 10% of the peak over the last 20%")  # type: ignore[index]


def test_a_length_that_is_added_later_is_trained_alone(study: Path, tmp_path: Path) -> None:
    """The trunk is finished and keeps checkpoints for the lengths that there were."""
    of_lengths(study, "[1, 4]")
    study.write_text("trunks = true\n" + study.read_text())
    before, out = load(study), tmp_path / "out"
    assert len(sweep(before.runs, begin(before, out), Nodes(here=trains)).done) == 2
    study.write_text(study.read_text().replace("[1, 4]", "[1, 2, 4]"))
    longer = load(study)
    progress = sweep(longer.runs, begin(longer, out), Nodes(here=trains))
    assert (len(progress.done), progress.failed) == (3, {})
    found = {result.epochs: result.trunk is not None for result in begin(longer, out).results()}
    assert found == {1.0: True, 2.0: False, 4.0: False}


def test_a_trunk_that_fails_halfway_has_the_branches_that_it_reached(study: Path, tmp_path: Path) -> None:
    of_lengths(study, "[1, 2, 4]")
    study.write_text("trunks = true\n" + study.read_text())
    tiny = load(study)
    folder = begin(tiny, tmp_path / "out")
    trunk = next(run.name for run in tiny.runs if not run.trunk)

    def halfway(task: Task, node: str) -> Outcome:
        if task.name != trunk:
            return trains(task, node)
        stopped = train_task(task, lambda: any(Path(task.folder, "branches").glob("step-*/state.json")))
        return replace(stopped, kind="refused", reason="its folder is damaged")

    sweep(tiny.runs, folder, Nodes(here=halfway))
    found = {result.epochs: result.trunk for result in folder.results()}
    assert found == {1.0: trunk, 2.0: None}


def test_branches_of_a_trunk_that_failed_train_alone(study: Path, tmp_path: Path) -> None:
    wsd = 'trunks = true\n[recipe]\nschedule = "wsd"\nwarmup_steps = 4\n'
    study.write_text(study.read_text().replace("[recipe]", wsd))
    tiny = load(study)
    trunks = {run.name for run in tiny.runs if not run.trunk}
    assert len(trunks) == 4

    def picky(task: Task, node: str) -> Outcome:
        return broken(task, node) if task.name in trunks else good(task, node)

    progress = sweep(tiny.runs, begin(tiny, tmp_path / "out"), Nodes(here=picky))
    assert {*progress.failed} == trunks
    assert len(progress.done) == 4


def test_trunks_need_a_schedule_that_has_them(study: Path) -> None:
    study.write_text("trunks = true\n" + study.read_text())
    with pytest.raises(InvalidInput, match="trunks needs schedule = 'wsd' in the recipe"):
        load(study)
    study.write_text(study.read_text().replace("trunks = true", "trunks = 1"))
    with pytest.raises(InvalidInput, match="trunks must be true or false"):
        load(study)
