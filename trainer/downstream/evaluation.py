"""One model over one suite."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from planner.errors import InvalidInput
from planner.units import whole
from trainer.downstream import models, tasks
from trainer.downstream.cache import Cache
from trainer.downstream.metrics import DRAWS, LEVEL, Scores, scores
from trainer.downstream.requests import prepare
from trainer.downstream.results import SuiteResult, suite_result, task_result
from trainer.downstream.scoring import score

Progress = Callable[[str, int, int], None]  # task, documents done, documents in all


def evaluate(
    model: str | Path,
    *,
    suite: str = "olmes19",
    tasks_dir: str | Path | None = None,
    only: Sequence[str] = (),
    limit: int | str | None = None,
    max_length: int | str | None = None,
    bos: str = "auto",
    bpb_only: bool = False,
    device: str = "auto",
    dtype: str = "fp32",
    cache: str | None = None,
    keep: bool = True,
    progress: Progress = lambda task, done, total: None,
) -> SuiteResult:
    """Bits per byte and accuracy of a finished run or a Hugging Face folder.

    `limit` takes the first documents of each task, `only` some of the tasks, `bpb_only` scores right answers alone and gives no
    accuracy. Finished tasks are kept in `cache` (default: where token files are) unless `keep` is false.
    """
    from trainer.device import resolve_device

    first = whole(limit, "limit") if limit is not None else None
    if dtype not in models.DTYPES:
        raise InvalidInput(f"dtype must be one of {', '.join(models.DTYPES)}; got {dtype!r}.")
    wanted = tasks.load_suite(suite, tasks_dir, only)
    loaded = models.load(model, device=resolve_device(device), dtype=dtype, bos=bos)
    length = _length(max_length, loaded)
    loaded.see(length)
    how = {"limit": first, "max_length": length, "before": list(loaded.before), "bpb_only": bpb_only, "dtype": dtype}
    kept = Cache(cache, loaded.fingerprint) if keep else None
    identities: dict[str, dict[str, Any]] = {
        task.label: {"task": task.label, "data": task.fingerprint(), **how} for task in wanted
    }
    found: dict[str, tuple[Scores, dict[str, int]]] = {}
    for task in wanted:
        stored = kept.read(task.label, identities[task.label]) if kept else None
        if stored is not None:
            found[task.label] = stored
    # Every file is read before anything is scored, so that a damaged one is found now and not in an hour.
    documents = {task.label: task.documents(first) for task in wanted if task.label not in found}
    for task in wanted:
        if task.label not in found:
            found[task.label] = _score_task(loaded, task, documents.pop(task.label), length, bpb_only, progress)
            if kept:
                kept.write(task.label, identities[task.label], *found[task.label])
    rows = [
        task_result(task, identities[task.label]["data"], *found[task.label], five_shot=task.shots == tasks.SHOTS)
        for task in wanted
    ]
    return suite_result(
        rows,
        model=str(model),
        kind=loaded.kind,
        fingerprint=loaded.fingerprint,
        suite=suite,
        choices=_choices(loaded, first, length, bos, bpb_only, dtype),
    )


def _length(wanted: int | str | None, model: models.LanguageModel) -> int:
    """How many tokens the model is shown: as many as asked for, else the protocol's 512 or as many as it can see."""
    if wanted is None:
        return min(models.LENGTH, model.limit or models.LENGTH)
    length = whole(wanted, "max_length")
    if model.limit is not None and length > model.limit:
        raise InvalidInput(
            f"max_length must be at most {model.limit}, the longest sequence that {model.name} can see; got {length}."
        )
    return length


def _score_task(
    model: models.LanguageModel,
    task: tasks.Task,
    documents: list[tasks.Document],
    length: int,
    bpb_only: bool,
    progress: Progress,
) -> tuple[Scores, dict[str, int]]:
    if bpb_only:
        documents = [tasks.Document(d.number, (d.answers[d.gold],), 0) for d in documents]
    done = 0

    def tell(count: int) -> None:
        nonlocal done
        done += count
        progress(task.name, done, len(documents))

    progress(task.name, 0, len(documents))
    try:
        requests = prepare(documents, model, length)
    except InvalidInput as error:
        raise InvalidInput(f"{task.label}: {error}") from None
    gold = [answers[document.gold] for document, answers in zip(documents, requests, strict=True)]
    counts = {
        "truncated": sum(request.truncated for request in gold),
        "in_pieces": sum(len(request.windows) > 1 for request in gold),
        "merged": sum(request.merged for request in gold),
    }
    values = score(model, requests, tell)
    result = scores(documents, values, task.multiple_choice and not bpb_only)
    if not all(value < float("inf") for value in result.bpb):
        raise InvalidInput(f"{model.name} gives {task.label} a probability that is not a number; its weights are broken.")
    return result, counts


def _choices(model: models.LanguageModel, limit: int | None, length: int, bos: str, bpb_only: bool, dtype: str) -> dict[str, Any]:
    """Everything that was decided, for the record."""
    return {
        "metric": "mean over tasks of mean over documents of -log2 p(right answer) / UTF-8 bytes of it, leading space counted",
        "tokenised": "context and continuation together, split where the tokens leave those of the context",
        "max_length": length,
        "truncation": "on the left, special tokens included; longer continuations in pieces of half the length",
        "bos": list(model.before) or "none",
        "bos_asked": bos,
        "documents": f"the first {limit} documents of each task" if limit else "all documents",
        "not_scored": f"doc_id >= {tasks.UNCONDITIONAL}",
        "accuracy": "none" if bpb_only else "highest log-probability per character; accuracy_raw: highest log-probability",
        "errors": f"bootstrap over documents, {DRAWS} draws, {LEVEL:.0%} intervals",
        "dtype": dtype,
        "device": str(model.device),
        "shared_beginnings": model.shares,
        "task_data": f"{tasks.PACKAGE} {tasks.package_version() or 'not installed'}",
    }
