"""Run directories on object storage, or any other place that fsspec knows, where machines share no disk.

A run is trained in a folder of this machine. Its checkpoints, metrics and result are copied to the store
while it goes on, and whoever continues it, anywhere, begins with a copy of what is there. Object storage has
neither renames nor locks: a checkpoint's `state.json` is copied last and deleted first, and without it there
is no checkpoint. Who trains a run leaves a file there that names it and that it renews every few seconds. As
long as that changes the run is busy; who finds it still takes it over, and the one before, should it go on,
sees another name there and writes nothing more.
"""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

from planner.inputs import InvalidInput
from trainer.errors import Busy, TrainingStopped, reason
from trainer.files import locked
from trainer.run.repeating import repeating

_EVERY = 5.0  # seconds between two looks for new checkpoints
OWNER = ".owner"
_STILL = 4 * _EVERY  # seconds without a change after which the owner of a run is taken for dead
_LAST = ("state.json", "result.json", "tokens.json")  # files that say of others that they are there


def is_url(place: str | os.PathLike[str]) -> bool:
    return "://" in os.fspath(place)


class Store:
    """A folder behind a URL, such as s3://bucket/study."""

    def __init__(self, url: str):
        self.url = url.rstrip("/")
        try:
            from fsspec.core import url_to_fs

            self.files, self.root = url_to_fs(self.url)
        except (ImportError, ValueError) as error:
            raise InvalidInput(f"{url} cannot be used as storage: {str(error).rstrip('.')}.") from None
        self.root = self.root.rstrip("/")

    def __truediv__(self, name: str) -> Store:
        return Store(f"{self.url}/{name}")

    def names(self) -> list[str]:
        """All files below, by their path from here."""
        with self._reached("read"):
            self.files.invalidate_cache()
            found = self.files.find(self.root) if self.files.exists(self.root) else []
            return [name[len(self.root) + 1 :] for name in found]

    def read(self, name: str) -> bytes | None:
        with self._reached("read"):
            try:
                return bytes(self.files.cat_file(f"{self.root}/{name}"))
            except FileNotFoundError:
                return None

    def write(self, name: str, content: bytes) -> None:
        with self._reached("written"):
            self.files.makedirs(f"{self.root}/{name}".rpartition("/")[0], exist_ok=True)
            self.files.pipe_file(f"{self.root}/{name}", content)

    def delete(self, name: str) -> None:
        with self._reached("written"), suppress(FileNotFoundError):
            self.files.rm_file(f"{self.root}/{name}")

    def fetch(self, folder: Path, names: list[str] | None = None) -> None:
        """Copy files from here into a folder, by default all."""
        for name in self.names() if names is None else names:
            with self._reached("read"):
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                self.files.get_file(f"{self.root}/{name}", str(folder / name))

    def send(self, folder: Path, name: str) -> None:
        with self._reached("written"):
            self.files.makedirs(f"{self.root}/{name}".rpartition("/")[0], exist_ok=True)
            self.files.put_file(str(folder / name), f"{self.root}/{name}")

    @contextmanager
    def _reached(self, what: str) -> Iterator[None]:
        """Say in one sentence that the store does not answer; clients raise errors of many kinds."""
        try:
            yield
        except (InvalidInput, TrainingStopped):
            raise
        except Exception as error:
            raise TrainingStopped(f"{self.url} cannot be {what} ({reason(error)}).") from error


class Mirror:
    """Keeps a store as a folder is: what changed is copied, what went away is deleted."""

    def __init__(self, folder: Path, store: Store, lease: Lease | None = None):
        self.folder, self.store, self.lease = folder, store, lease
        self.sent = {name: _look(folder / name) for name in _names(folder)}

    def update(self) -> None:
        """Bring the store up to date; a file that vanishes meanwhile belongs to an older checkpoint."""
        now = {}
        for name in _names(self.folder):
            with suppress(FileNotFoundError):
                now[name] = _look(self.folder / name)
        gone = [name for name in self.sent if name not in now]
        for name in sorted(gone, key=lambda name: not name.endswith(_LAST)):
            self._check_owner(name)
            self.store.delete(name)
            del self.sent[name]
        changed = [name for name, look in now.items() if self.sent.get(name) != look]
        for name in sorted(changed, key=lambda name: name.endswith(_LAST)):
            if (self.folder / name).exists():
                self._check_owner(name)
                self.store.send(self.folder, name)
                self.sent[name] = now[name]

    def _check_owner(self, name: str) -> None:
        """Before files that say of others that they are there, and before anything is deleted."""
        if self.lease and (name.endswith(_LAST) or name in self.sent):
            self.lease.check()


class Lease:
    """That this process trains a run of the store, and nobody else."""

    def __init__(self, store: Store):
        self.store, self.name, self.beats = store, secrets.token_hex(8), 0

    def take(self) -> None:
        """Raise Busy where another process shows that it is alive."""
        found, deadline = self.store.read(OWNER), time.monotonic() + _STILL
        while found is not None and time.monotonic() < deadline:
            time.sleep(_STILL / 20)
            if (now := self.store.read(OWNER)) not in (None, found):
                raise Busy(f"{self.store.url} is being trained by another process.")
            found = now
        self._write()
        time.sleep(_STILL / 20)  # whoever found it free at the same moment has written now; the last has it
        self.check()

    def renew(self) -> None:
        self.check()
        self._write()

    def check(self) -> None:
        """Raise where another process has taken the run over."""
        if (self.store.read(OWNER) or b"").partition(b" ")[0] != self.name.encode():
            raise Busy(f"{self.store.url} was taken over by another process.")

    def _write(self) -> None:
        self.beats += 1
        self.store.write(OWNER, f"{self.name} {self.beats}".encode())

    def free(self) -> None:
        with suppress(Busy, TrainingStopped):
            self.check()
            self.store.delete(OWNER)


def _names(folder: Path) -> list[str]:
    """The files of a run directory, drafts and locks aside; a result comes after all others."""
    found = (path for path in sorted(folder.rglob("*")) if path.is_file())
    named = [path.relative_to(folder) for path in found]
    kept = [str(name) for name in named if not any(part.startswith(".") for part in name.parts)]
    return sorted(kept, key=lambda name: name == "result.json")


def _look(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_size, found.st_mtime_ns


@contextmanager
def staged(url: str) -> Iterator[Path]:
    """A folder of this machine that begins as the store's copy of a run, and is copied back."""
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise InvalidInput(f"{url}: several processes need a directory that all of them share.")
    store = Store(url)
    place = tempfile.mkdtemp(prefix="databound-", dir=os.environ.get("DATABOUND_SCRATCH"))
    folder = Path(place, store.url.rpartition("/")[2])
    folder.mkdir()
    lease = Lease(store)
    try:
        lease.take()
        store.fetch(folder, [name for name in store.names() if not name.startswith(".")])
        mirror = Mirror(folder, store, lease)

        def trying(act: Callable[[], None]) -> None:
            with suppress(
                Busy, TrainingStopped
            ):  # who has lost it is told when it writes, at the latest below
                act()

        try:
            # apart: a large checkpoint takes longer to copy than an owner may be still
            renewing = repeating(partial(trying, lease.renew), _EVERY, "owner")
            with renewing, repeating(partial(trying, mirror.update), _EVERY, "store"):
                yield folder
        finally:
            mirror.update()
    finally:
        lease.free()
        shutil.rmtree(place, ignore_errors=True)


def fetched_once(url: str) -> Path:
    """A folder of the store that never changes, such as a token set, copied to this machine once."""
    store = Store(url)
    room = Path(os.environ.get("DATABOUND_SCRATCH") or tempfile.gettempdir(), "databound-tokens")
    room.mkdir(parents=True, exist_ok=True)
    folder = room / store.url.rpartition("/")[2]
    with locked(room / f".{folder.name}.lock"):
        if not folder.is_dir():
            draft = room / f".{folder.name}.{os.getpid()}"
            shutil.rmtree(draft, ignore_errors=True)
            store.fetch(draft)
            os.rename(draft, folder)
    return folder
