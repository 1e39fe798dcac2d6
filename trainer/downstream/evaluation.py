"""Models over a suite: score them, or look up what was scored before."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypedDict, Unpack

from planner.inputs import InvalidInput, whole
from planner.uncertainty import LEVEL
from trainer.downstream import models
from trainer.downstream import tasks as task_data
from trainer.downstream.cache import VERSION, Cache
from trainer.downstream.metrics import DRAWS, Scores, scores
from trainer.downstream.requests import prepare
from trainer.downstream.results import SuiteResult, suite_result, task_result
from trainer.downstream.scoring import score
from trainer.run.device import DTYPES, resolve_device

Progress = Callable[[str, int, int], None]  # task, documents done, documents in all
Scored = tuple[Scores, dict[str, Any]]  # with facts about how it went


class Settings(TypedDict, total=False):
    """What decides the figures."""

    suite: str  # a name that ships, or a folder of tasks; default olmes19
    tasks_dir: str | Path | None  # where the data of a suite that ships is; default: the installed package
    only: Sequence[str]  # some of the tasks; default all
    limit: int | str | None  # the first documents of each task; default all
    max_length: int | str | None  # tokens that a model is shown; default 512, or as many as it can see
    bos: str  # whether texts begin with a special token: auto (as the tokenizer has it), always, never
    bpb_only: bool  # score right answers alone, which gives no accuracy
    dtype: str  # fp32 or bf16


def evaluate(
    model: str | Path,
    *,
    device: str = "auto",
    cache: str | None = None,
    keep: bool = True,
    progress: Progress = lambda task, done, total: None,
    **settings: Unpack[Settings],
) -> SuiteResult:
    """Bits per byte and accuracy of a finished run or a Hugging Face folder; finished tasks are kept in
    `cache` (default: where token files are) unless `keep` is false, and are not scored again.
    """
    evaluation = _Evaluation(model, device, **settings)
    kept = Cache(cache, evaluation.model.fingerprint) if keep else None
    found = evaluation.kept(kept) if kept else {}
    left = [task for task in evaluation.tasks if task.label not in found]
    # Every file is read before anything is scored, so that a damaged one is found now and not in an hour.
    documents = {task.label: task.documents(evaluation.limit) for task in left}
    if left:
        if kept:
            kept.create()
        evaluation.model.load()
        evaluation.model.see(evaluation.length)
    for task in left:
        found[task.label] = _score_task(evaluation, task, documents.pop(task.label), progress)
        if kept:
            kept.write(task.label, evaluation.identity(task), *found[task.label])
    return evaluation.result(found)


def evaluate_all(
    folders: Sequence[str | Path],
    *,
    device: str = "auto",
    cache: str | None = None,
    keep: bool = True,
    progress: Progress = lambda task, done, total: None,
    **settings: Unpack[Settings],
) -> list[SuiteResult]:
    """The same for several folders; what is wrong with any is found before the first is scored."""
    names = list(map(str, folders))
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InvalidInput(f"model {twice} is given twice.")
    for name in names:
        _Evaluation(name, device, **settings)

    def told(name: str, task: str, done: int, total: int) -> None:
        progress(f"{name} {task}", done, total)

    how: dict[str, Any] = {"device": device, "cache": cache, "keep": keep, **settings}
    return [evaluate(name, progress=partial(told, name), **how) for name in names]


def stored(
    folders: Iterable[str | Path], *, cache: str | None = None, **settings: Unpack[Settings]
) -> list[SuiteResult]:
    """Results of the folders that were evaluated before with the same settings, named as they are given;
    nothing is scored, and folders of which a task is still to be scored are left out.
    """
    results = []
    for folder in folders:
        evaluation = _Evaluation(folder, "cpu", **settings)
        found = evaluation.kept(Cache(cache, evaluation.model.fingerprint))
        if len(found) == len(evaluation.tasks):
            results.append(evaluation.result(found))
    return results


class _Evaluation:
    """Everything that is decided before the first token is scored; `data` has a checksum per task."""

    def __init__(
        self,
        folder: str | Path,
        device: str,
        suite: str = "olmes19",
        tasks_dir: str | Path | None = None,
        only: Sequence[str] = (),
        limit: int | str | None = None,
        max_length: int | str | None = None,
        bos: str = "auto",
        bpb_only: bool = False,
        dtype: str = "fp32",
    ):
        self.folder, self.suite = str(folder), suite
        self.bos, self.bpb_only, self.dtype = bos, bpb_only, dtype
        self.limit = whole(limit, "limit") if limit is not None else None
        if dtype not in DTYPES:
            raise InvalidInput(f"must be one of {', '.join(DTYPES)}; got {dtype!r}.", field="dtype")
        self.tasks = task_data.load_suite(suite, tasks_dir, only)
        self.model = models.find(folder, device=resolve_device(device), dtype=dtype, bos=bos)
        self.data = {task.label: task.fingerprint() for task in self.tasks}
        self.length = _length(max_length, self.model)
        self.source = task_data.source(suite, tasks_dir)

    def identity(self, task: task_data.Task) -> dict[str, Any]:
        """What a task's scores depend on besides the model."""
        return {
            "version": VERSION,
            "task": task.label,
            "data": self.data[task.label],
            "limit": self.limit,
            "max_length": self.length,
            "before": list(self.model.before),
            "bpb_only": self.bpb_only,
            "dtype": self.dtype,
        }

    def kept(self, cache: Cache) -> dict[str, Scored]:
        """The tasks that were scored before."""
        found = {task.label: cache.read(task.label, self.identity(task)) for task in self.tasks}
        return {label: scored for label, scored in found.items() if scored is not None}

    def result(self, found: dict[str, Scored]) -> SuiteResult:
        return suite_result(
            [task_result(task, self.data[task.label], *found[task.label]) for task in self.tasks],
            choices=self._choices(),
            model=self.folder,
            kind=self.model.kind,
            fingerprint=self.model.fingerprint,
            suite=self.suite,
        )

    def _choices(self) -> dict[str, Any]:
        """For the record."""
        return {
            "metric": "mean over tasks of mean over documents of -log2 p(right answer) / UTF-8 bytes of it, "
            "leading space counted",
            "tokenised": "context and continuation together, "
            "split where the tokens leave those of the context",
            "max_length": self.length,
            "truncation": "on the left, special tokens included; "
            "longer continuations in pieces of half the length",
            "bos": list(self.model.before) or "none",
            "bos_asked": self.bos,
            "documents": f"the first {self.limit} documents of each task" if self.limit else "all documents",
            "not_scored": f"doc_id >= {task_data.UNCONDITIONAL}",
            "accuracy": "none"
            if self.bpb_only
            else "highest log-probability per character, leading space counted; "
            "accuracy_raw: highest log-probability",
            "errors": f"bootstrap over documents, {DRAWS} draws, {LEVEL:.0%} intervals",
            "dtype": self.dtype,
            "task_data": self.source,
        }


def _length(wanted: int | str | None, model: models.LanguageModel) -> int:
    """How many tokens the model is shown: those asked for, else 512 or as many as it can see."""
    if wanted is None:
        return min(models.LENGTH, model.limit or models.LENGTH)
    length = whole(wanted, "max_length")
    if model.limit is not None and length > model.limit:
        most = f"must be at most {model.limit}, the longest sequence that {model.name} can see"
        raise InvalidInput(f"{most}; got {length}.", field="max_length")
    return length


def _score_task(
    evaluation: _Evaluation, task: task_data.Task, documents: list[task_data.Document], progress: Progress
) -> Scored:
    model, bpb_only = evaluation.model, evaluation.bpb_only
    if bpb_only:
        documents = [task_data.Document(d.number, (d.answers[d.gold],), 0) for d in documents]
    done = 0

    def tell(count: int) -> None:
        nonlocal done
        done += count
        progress(task.name, done, len(documents))

    progress(task.name, 0, len(documents))
    try:
        requests = prepare(documents, model, evaluation.length)
    except InvalidInput as error:
        raise InvalidInput(f"{task.label}: {error}") from None
    gold = [answers[document.gold] for document, answers in zip(documents, requests, strict=True)]
    facts = {
        "device": str(model.device),
        "truncated": sum(request.truncated for request in gold),
        "in_pieces": sum(len(request.windows) > 1 for request in gold),
        "merged": sum(request.merged for request in gold),
    }
    values = score(model, requests, tell)
    result = scores(documents, values, task.multiple_choice and not bpb_only)
    if not all(value < float("inf") for value in result.bpb):
        wrong = f"{model.name} gives {task.label} a probability that is not a number"
        raise InvalidInput(f"{wrong}; its weights are broken.")
    return result, facts
