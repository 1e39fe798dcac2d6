"""A file is read for its checksum once, and again when it changes."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.trainer.conftest import start
from trainer.data.checksums import checksums
from trainer.files import checksum, read_json


def test_checksums_are_remembered_until_a_file_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []
    monkeypatch.setattr(
        "trainer.data.checksums.checksum", lambda path: (read.append(path.name), checksum(path))[1]
    )
    files, notes = [tmp_path / "a", tmp_path / "b"], tmp_path / "notes"
    notes.mkdir()
    for path in files:
        path.write_text(path.name)
    fresh = checksums(files, notes)
    assert checksums(files, notes) == fresh
    assert read == ["a", "b"] * 2  # just written: not to be relied on yet
    monkeypatch.setattr("trainer.data.checksums._SETTLED", -(10**9))
    for _ in range(2):
        assert checksums(files, notes) == fresh == [checksum(path) for path in files]
    assert read == ["a", "b"] * 3
    files[0].write_text("c")
    assert checksums(files, notes) == [checksum(files[0]), fresh[1]] != fresh
    assert read[6:] == ["a"]
    for damage in (b"{", b"[]", b"\xff", b'{"x": 1}', b'{"x": [1, 2, 3, 4]}'):
        (notes / "checksums.json").write_bytes(damage)
        assert checksums(files, notes)[1] == fresh[1]
    files[0].unlink()
    checksums([Path(__file__)], notes)
    assert sorted(read_json(notes / "checksums.json")) == sorted(
        [str(files[1]), __file__]
    )  # without those that are gone
    assert checksums(files[1:], tmp_path / "nowhere") == fresh[1:]
    assert not (tmp_path / "nowhere").exists()


def test_processes_remember_checksums_together(tmp_path: Path) -> None:
    files = [tmp_path / str(number) for number in range(24)]
    for path in files:
        path.write_text(path.name)
    code = (
        "import sys; from pathlib import Path; import trainer.data.checksums as c; c._SETTLED = -10**9\n"
        "for name in sys.argv[2:]: c.checksums([Path(name)], Path(sys.argv[1]))"
    )
    with ThreadPoolExecutor() as pool:
        for done in pool.map(lambda part: start(code, str(tmp_path), *map(str, files[part::3])), range(3)):
            assert done.returncode == 0, done.stderr
    assert sorted(read_json(tmp_path / "checksums.json")) == sorted(map(str, files))
