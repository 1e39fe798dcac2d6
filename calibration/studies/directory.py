"""Where a study lives: a directory that both engines write and that survives whoever writes it.

    study.json            the recipe, and the fingerprint of the data it trains on once there are tokens of it
    runs/NAME/            one run directory per cell, as `planner train` makes it
    validation/NAME/      runs that laws prescribed; no law is ever fitted to them
    tokens/               the token files that all runs share
    compiled/             compiled models, shared by all processes of a machine
    scored/NAME/          what members of ensembles gave each held-out token; see `ensembles`
    ensembles.csv         what ensembles reach, where `planner calibrate ensemble` trained them
    failures.jsonl        what went wrong, one line each
    runs.csv              the run table, written when a sweep ends

What is done is only ever read off the run directories, so nothing here can disagree with them.
"""

from __future__ import annotations

import json
import os
import shlex
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from calibration.studies.study import Study, StudyRun
from planner.inputs import InvalidInput
from trainer.config import differences
from trainer.files import locked, read_json, write_json
from trainer.run.result import RunResult, read_result
from trainer.run.store import Mirror, Store

FORMAT = 1
STUDY = "study.json"
_LOCK = ".study.json.lock"
GRID, VALIDATION = "runs", "validation"


@dataclass(frozen=True)
class StudyDirectory:
    """The directory of a study."""

    path: Path
    store: Store | None = None  # where runs are trained, where machines share no disk

    @property
    def tokens(self) -> Path:
        return self.path / "tokens"

    @property
    def compiled(self) -> Path:
        return self.path / "compiled"

    def run_folder(self, name: str, part: str = GRID) -> Path:
        """Where a run is, wherever it was trained first; where it will be in `part` otherwise."""
        root = os.fspath(self.path)  # as text: this is asked several times for each of thousands of runs
        homes = (f"{root}/{home}/{name}" for home in (GRID, VALIDATION))
        return Path(
            next((home for home in homes if os.path.exists(f"{home}/config.json")), f"{root}/{part}/{name}")
        )

    def result(self, name: str) -> RunResult | None:
        """The result of a run, or None while it is unfinished."""
        return read_result(self.run_folder(name))

    def results(self, part: str = GRID, without: Collection[str] = ()) -> list[RunResult]:
        """All finished runs of a part but some, by name; raises where one is damaged."""
        folders = (folder for folder in self.finished(part) if folder.name not in without)
        return [found for folder in folders if (found := read_result(folder)) is not None]

    def finished(self, part: str) -> list[Path]:
        """The directories of all runs of a part that have a result, damaged or not."""
        return [path.parent for path in sorted((self.path / part).glob("*/result.json"))]

    def stored(self, name: str, part: str = GRID) -> Store | None:
        """The directory of a run in the store, where there is one."""
        folder = self.run_folder(name, part)
        return self.store and self.store / f"{folder.parent.name}/{name}"

    def fetch(self, runs: Iterable[StudyRun], part: Callable[[StudyRun], str]) -> None:
        """Bring the results that the store has of these runs here, where everything else looks for them."""
        there = {*self.store.names()} if self.store else ()
        for run in runs if there else ():
            folder = self.run_folder(run.name, part(run))
            if f"{folder.parent.name}/{run.name}/result.json" in there:
                self.fetch_result(run.name, part(run))

    def fetch_result(self, name: str, part: str = GRID) -> None:
        """The same of one run, where it is finished."""
        folder, store = self.run_folder(name, part), self.stored(name, part)
        if store and not (folder / "result.json").exists() and store.read("result.json") is not None:
            store.fetch(folder, ["config.json", "result.json"])

    def fetch_weights(self, name: str) -> None:
        """Bring a finished run whole, where only its result is here."""
        folder, store = self.run_folder(name), self.stored(name)
        if store and not (folder / "final").is_dir():
            store.fetch(folder)

    def checkpoint(self, name: str, part: str = GRID) -> str:
        """The name of a run's newest checkpoint; nothing where it has none."""
        if store := self.stored(name, part):
            return max((one for one in store.names() if one.endswith("/state.json")), default="")
        there = self.run_folder(name, part) / "checkpoints"
        return max((path.name for path in there.glob("step-*")), default="")

    def record_failure(self, name: str, reason: str) -> None:
        with open(self.path / "failures.jsonl", "a", encoding="utf-8") as stream:
            stream.write(json.dumps({"time": round(time.time(), 1), "run": name, "reason": reason}) + "\n")

    def facts(self) -> dict[str, Any]:
        return _stored(self.path) or {}


def is_study(path: str | os.PathLike[str]) -> bool:
    return (Path(path) / STUDY).is_file()


def open_directory(path: str | Path) -> StudyDirectory:
    """The directory of a study that was begun."""
    if not is_study(path):
        raise InvalidInput(
            f"{path} is not the directory of a study; "
            f"`planner calibrate sweep STUDY.toml -o {shlex.quote(str(path))}` makes one."
        )
    _stored(Path(path))
    return StudyDirectory(Path(path))


def begin(study: Study, path: str | Path) -> StudyDirectory:
    """The directory of a study, made or continued; refuses one of another recipe, or whose corpus has changed
    since there are tokens of it.
    """
    folder = Path(path)
    stored = check_recipe(study, folder)
    fingerprint = _fingerprint(study)
    try:
        if stored is None:
            folder.mkdir(parents=True, exist_ok=True)
            with locked(folder / _LOCK):
                stored = check_recipe(study, folder)  # unless somebody else was first
                if stored is None:
                    # First of all, or a directory whose making was cut short would not be known again.
                    stored = {"format": FORMAT, "study": study.name, "title": study.title}
                    stored |= {"recipe": study.identity(), "data": ""}
                    write_json(folder / "study.json", stored)
        if stored["data"] not in ("", fingerprint):
            raise _changed(folder, stored["data"], fingerprint)
        for part in (GRID, VALIDATION):
            (folder / part).mkdir(exist_ok=True)
    except OSError as error:
        raise InvalidInput(
            f"study directory {folder} cannot be written: {error.strerror or error}."
        ) from None
    return StudyDirectory(folder)


def _fix_data(directory: StudyDirectory, fingerprint: str) -> None:
    """Have a study trained on these tokens only, from the time that there are some: a corpus that could not
    be made into tokens may still be mended.
    """
    if directory.facts()["data"] == "":
        with locked(directory.path / _LOCK):
            stored = directory.facts()
            if stored["data"] == "":
                write_json(directory.path / "study.json", stored | {"data": fingerprint})
    if fingerprint != directory.facts()["data"]:
        raise _changed(directory.path, directory.facts()["data"], fingerprint)


def check_recipe(study: Study, path: str | Path) -> dict[str, Any] | None:
    """The facts of a directory where the study was begun, None where it was not; raises where there is
    something else.
    """
    folder = Path(path)
    try:  # before study.json, which is written first: whoever sees anything else here sees that, too
        foreign = [name for name in os.listdir(folder) if not name.startswith(".study.json.")]
    except FileNotFoundError:
        foreign = []
    except OSError:
        foreign = [folder.name]
    stored = _stored(folder)
    if stored is not None:
        differs = differences(_without_paths(stored["recipe"]), _without_paths(study.identity()))
        if differs:
            raise InvalidInput(f"{folder} holds a study with another {differs}; another directory would do.")
    elif foreign:
        raise InvalidInput(
            f"{folder} is not the directory of a study, and not empty; name a new one with ‹out›."
        )
    return stored


def token_set(paths: Sequence[str]) -> Path | None:
    """The token set that stands in the place of text: its folder, or one that holds nothing else such as the
    `tokens` of a study.
    """
    root = Path(paths[0]).expanduser() if len(paths) == 1 else None
    if root is None or not root.is_dir():
        return None
    found = [file.parent for file in (root / "tokens.json", *root.glob("*/tokens.json")) if file.is_file()]
    return found[0] if len(found) == 1 else None


def adopt(runs: Iterable[StudyRun], directory: StudyDirectory) -> None:
    """Count runs of the grid that laws prescribed before: as part of the grid, laws are fitted to them."""
    for run in runs:
        prescribed, home = (directory.path / part / run.name for part in (VALIDATION, GRID))
        if (prescribed / "result.json").exists() and not home.exists():
            prescribed.rename(home)


def prepare(runs: Sequence[StudyRun], directory: StudyDirectory) -> Path:
    """The token set that all runs of the study train on, made once; raises where it is too small for one."""
    from trainer.data.tokenizers import Spec
    from trainer.data.tokens import open_set
    from trainer.data.tokens import prepare as prepare_tokens

    config = runs[0].config.having(cache=str(directory.tokens))
    made = token_set(config.corpus.paths)
    found = open_set(made) if made else prepare_tokens(config, Spec(config.tokenizer, config.eos_token))
    available = found.facts["streams"]["train"]["tokens"] - 1
    largest = max(runs, key=lambda run: run.config.unique_tokens)
    if largest.config.unique_tokens > available:
        raise InvalidInput(
            f"run {largest.name} asks for {largest.config.unique_tokens:,} unique tokens and the corpus has "
            f"{available:,}; smaller unique_tokens would do."
        )
    _fix_data(directory, found.fingerprint)
    if directory.store:
        store = directory.store / f"tokens/{found.folder.name}"
        if "tokens.json" not in store.names():  # which says what is in the others, and is sent last
            mirror = Mirror(found.folder, store)
            mirror.sent.clear()
            mirror.update()
    return found.folder


def _changed(folder: Path, before: str, now: str) -> InvalidInput:
    return InvalidInput(
        f"the corpus has changed since the study in {folder} began ({before}, now {now}); "
        f"bring the old one back, or name a new directory with ‹out›."
    )


def damaged(directory: StudyDirectory, names: Iterable[str] | None = None) -> dict[str, str]:
    """The runs whose results cannot be read or were changed, and what would do; of all by default."""
    if names is None:
        folders = [*directory.finished(GRID), *directory.finished(VALIDATION)]
    else:
        folders = [directory.run_folder(name) for name in names]
    found = {}
    for folder in folders:
        try:
            read_result(folder)
        except InvalidInput as error:
            found[folder.name] = str(error)
    return found


def table(directory: StudyDirectory, part: str = GRID, without: Collection[str] = ()) -> pd.DataFrame:
    """The run table of all finished runs but some."""
    return pd.DataFrame([result.row() for result in directory.results(part, without)])


def write_table(directory: StudyDirectory, without: Collection[str] = ()) -> None:
    """Write the run table for people and other programs, at once; one that says the same already is left
    alone, so that a finished study may be read where nothing can be written.
    """
    write_if_changed(directory.path / "runs.csv", table(directory, without=without).to_csv(index=False))


def write_if_changed(path: Path, text: str) -> None:
    """Write a file at once, unless it says the same already."""
    if path.exists() and path.read_text(encoding="utf-8") == text:
        return
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_text(text, encoding="utf-8")
    os.replace(draft, path)


def unfinished(directory: StudyDirectory, runs: Iterable[StudyRun]) -> list[StudyRun]:
    return [run for run in runs if not os.path.exists(f"{directory.run_folder(run.name)}/result.json")]


def _fingerprint(study: Study) -> str:
    from trainer.data import tokens

    config = study.runs[0].config
    if made := token_set(config.corpus.paths):
        return tokens.open_set(made).fingerprint
    return tokens.fingerprint(config)


def _without_paths(recipe: dict[str, Any]) -> dict[str, Any]:
    """A recipe without the places of its files: what is in them is in the fingerprint, so a study may move
    with its corpus.
    """
    corpus = {
        name: value for name, value in recipe.get("corpus", {}).items() if name not in ("paths", "exclude")
    }
    return {**recipe, "corpus": corpus}


def _stored(folder: Path) -> dict[str, Any] | None:
    path = folder / "study.json"
    try:
        facts = read_json(path)
        if facts["format"] != FORMAT:
            raise InvalidInput(
                f"{path} has format {facts['format']!r}, and this version reads {FORMAT}; "
                f"a newer one would do."
            )
        return {"recipe": dict(facts["recipe"]), "data": str(facts["data"]), **facts}
    except (FileNotFoundError, NotADirectoryError):
        return None
    except InvalidInput:
        raise
    except (OSError, ValueError, KeyError, TypeError) as error:
        reason = getattr(error, "strerror", None) or f"{type(error).__name__}"
        raise InvalidInput(
            f"{path} is damaged ({reason}); restore it, or name a new directory with ‹out›."
        ) from None
