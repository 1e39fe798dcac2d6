"""A run whose directory is on object storage: continued anywhere, to the same bits, and never half there."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Any

import pytest

from planner.inputs import InvalidInput
from tests.trainer.run.test_loop import stop_after
from trainer import RunConfig, TrainingStopped, train
from trainer.errors import Busy
from trainer.run import store as stores
from trainer.run.repeating import repeating
from trainer.run.store import Lease, Mirror, Store, staged


def test_a_run_goes_on_from_the_store_to_the_same_bits(
    settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATABOUND_SCRATCH", str(tmp_path))
    settings |= {"epochs": 0.5}
    whole = train(RunConfig(**settings), tmp_path / "whole")
    url = f"memory://bucket/{tmp_path.name}/whole"
    with pytest.raises(TrainingStopped, match="stopped at step 4"):
        train(RunConfig(**settings), url, should_stop=stop_after(4))
    assert "checkpoints/step-00000004/state.json" in Store(url).names()
    result = train(RunConfig(**settings), url)
    assert (result.loss, result.weights_checksum, result.run) == (whole.loss, whole.weights_checksum, "whole")
    assert result.starts == 2
    assert train(RunConfig(**settings), url) == result  # done is done
    left = Store(url).names()
    assert {"result.json", "config.json", "final/model.safetensors"} <= {*left}
    assert not [name for name in left if name.startswith(("checkpoints/", "."))]
    assert [path.name for path in tmp_path.iterdir() if path.name != "databound-tokens"] == ["whole"]


class Recorded(Store):
    """A store that remembers what was done to it, and fails when told to."""

    def __init__(self, url: str):
        super().__init__(url)
        self.done: list[tuple[str, str]] = []

    def send(self, folder: Path, name: str) -> None:
        super().send(folder, name)
        self.done.append(("send", name))

    def delete(self, name: str) -> None:
        super().delete(name)
        self.done.append(("delete", name))


def test_what_says_that_others_are_there_comes_last_and_goes_first(tmp_path: Path) -> None:
    store = Recorded(f"memory://bucket/{tmp_path.name}")
    mirror = Mirror(tmp_path, store)
    for name in (
        "checkpoints/step-1/part",
        "checkpoints/step-1/state.json",
        "result.json",
        "weights",
        ".lock",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    mirror.update()
    assert [name for _, name in store.done] == [
        "checkpoints/step-1/part",
        "weights",
        "checkpoints/step-1/state.json",
        "result.json",
    ]
    store.done.clear()
    mirror.update()  # nothing has changed
    assert store.done == []
    for name in ("part", "state.json"):
        (tmp_path / "checkpoints" / "step-1" / name).unlink()
    mirror.update()
    assert store.done == [("delete", f"checkpoints/step-1/{name}") for name in ("state.json", "part")]
    assert sorted(store.names()) == ["result.json", "weights"]


def test_a_store_that_cannot_be_used_is_one_sentence(
    tmp_path: Path, settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InvalidInput, match="nosuch://bucket cannot be used as storage"):
        Store("nosuch://bucket")
    (tmp_path / "file").write_text("")
    with pytest.raises(TrainingStopped, match=r"file://.*/run cannot be read \("):
        train(RunConfig(**settings | {"epochs": 0.1}), f"file://{tmp_path}/file/run")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(InvalidInput, match="several processes need a directory"), staged("memory://run"):
        pass


def test_tokens_are_copied_to_a_machine_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABOUND_SCRATCH", str(tmp_path))
    store = Store(f"memory://bucket/{tmp_path.name}/tokens/abc")
    store.write("train.bin", b"123")
    folder = stores.fetched_once(store.url)
    assert (folder / "train.bin").read_bytes() == b"123"
    store.write("train.bin", b"other")
    assert (stores.fetched_once(store.url) / "train.bin").read_bytes() == b"123"


def test_a_process_that_was_given_up_writes_nothing_once_another_has_taken_over(
    settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store has no lock: the one before may wake up at any time, and only one of them may finish a run."""
    monkeypatch.setenv("DATABOUND_SCRATCH", str(tmp_path))
    monkeypatch.setattr(stores, "_STILL", 0.4)
    monkeypatch.setattr(stores, "_EVERY", 0.1)
    url, config = "memory://given-up/run", RunConfig(**settings)
    store = Store(url)
    store.write(".owner", b"somebody 1")
    alive = repeating(lambda: store.write(".owner", secrets.token_bytes(4)), 0.02, "alive")
    with alive, pytest.raises(Busy, match="is being trained by another process"):
        train(config, url)

    def taken_over() -> bool:
        monkeypatch.setattr(Lease, "renew", lambda self: None)  # it sleeps, and another finds it still
        store.write(".owner", b"another 1")
        return False

    store.delete(".owner")
    with pytest.raises(Busy, match="was taken over by another process"):
        train(config, url, should_stop=taken_over)
    assert "result.json" not in store.names()
    monkeypatch.undo()
    monkeypatch.setenv("DATABOUND_SCRATCH", str(tmp_path))
    monkeypatch.setattr(stores, "_STILL", 0.4)
    train(config, url)  # what it left is still
    assert "result.json" in store.names()
    assert ".owner" not in store.names()
