"""`planner calibrate run`: the whole loop, from a corpus to a plan of its own."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import click
import numpy as np

from calibration.commands.common import Command, print_json
from calibration.commands.report import report
from calibration.commands.training import Training, fail_with, interruptible, training_options
from calibration.studies.calibration_loop import (
    AHEAD,
    FEWEST_RUNS,
    MOST_RUNS,
    TOLERANCE,
    WAVES,
    Asked,
    Belief,
    Loop,
    Question,
    as_cells,
    as_json,
    calibrate,
    first_words,
    informed_plan,
    known_already,
    planned_ahead,
    question_of,
    stored_question,
)
from calibration.studies.directory import VALIDATION, StudyDirectory
from calibration.studies.expense import flops_in, flops_left, on_this_machine
from calibration.studies.local import LocalEngine
from calibration.studies.study import Study, StudyRun
from planner.cli import json_option, option
from planner.inputs import InvalidInput, compute, count, duration, hours, number, scientific, short, whole
from planner.show.terminal import print_paragraph, print_table
from trainer.run.store import Store


def _budget(text: str) -> dict[str, float]:
    """FLOPs, or hours of this machine."""
    try:
        return {"budget": compute(text, "budget")}
    except InvalidInput as of_compute:
        try:
            return {"hours": hours(text, "budget")}
        except InvalidInput:
            raise InvalidInput(
                f"must be a time such as '2 h' or FLOPs such as 1e15; got {text!r}.", field="budget"
            ) from of_compute


@click.command(cls=Command)
@click.argument("corpus", metavar="CORPUS")
@option(
    "--budget",
    "What all runs together may take: '2 h' of this machine, or FLOPs such as 1e15.",
    "TIME|FLOPS",
    required=True,
)
@option("--ud", "Unique tokens to plan for [default: all of the corpus].", "TOKENS")
@option("--flops", f"Compute to plan for [default: {AHEAD:g} times that of the budget].", "FLOPS")
@option("--runs", f"Train at most so many runs [default: {MOST_RUNS}].", "N")
@option(
    "--tolerance", f"Expected regret at which the plan is certain enough [default: {TOLERANCE:g}].", "NATS"
)
@option("--confirm", "Then train the plan and its two nearest rivals, with so many seeds each.", "SEEDS")
@training_options
@json_option
def run(
    corpus: str,
    budget: str,
    ud: str | None,
    flops: str | None,
    runs: str | None,
    tolerance: str | None,
    confirm: str | None,
    training: Training,
    as_json: bool,
) -> None:
    """Train the runs that matter for a plan on CORPUS, fit their laws, and plan.

    CORPUS is a text file, a folder, a pattern, Parquet, JSON lines, a folder of tokens, or a Hugging Face
    dataset. It is tokenised, runs are proposed, trained and fitted in waves, until the plan is certain enough
    or the budget is spent. The directory -o has all of it: the runs, calibration.json and report.html. Stop
    it and start it again at will.

    \b
    Example:
      planner calibrate run texts/ --budget "2 h" --dry-run
      planner calibrate run texts/ --budget "2 h" -o mine
      planner calibrate run texts/ --budget 2e12 --ud 200k --flops 2e13 --confirm 3 -o mine
    """
    given = {
        "ud": None if ud is None else count(ud, "ud"),
        "flops": None if flops is None else compute(flops),
    }
    amounts = _budget(budget)
    asked = Asked(
        corpus,
        training.changes,
        **given,
        **amounts,
        runs=MOST_RUNS if runs is None else whole(runs, "runs", example="16"),
        tolerance=TOLERANCE if tolerance is None else number(tolerance, "tolerance", examples="0.01"),
    )
    if asked.runs < FEWEST_RUNS:
        raise InvalidInput(f"must be at least {FEWEST_RUNS}, one for each weight decay.", field="runs")
    if asked.hours is not None and training.engine != "local":
        raise InvalidInput("is that of this machine; FLOPs such as 1e15 would do here.", field="budget")
    seeds = 0 if confirm is None else whole(confirm, "confirm", example="3")
    stem = Path(corpus).stem or "corpus"
    training = replace(training, out=training.out or f"{stem}-calibration", changes=())
    folder = StudyDirectory(Path(training.out or ""), Store(training.store) if training.store else None)
    machine = LocalEngine(folder.compiled, workers=training.workers, per_gpu=training.per_gpu)
    if training.dry_run:
        _dry_run(asked, folder, machine, training, seeds, as_json)
        return
    with interruptible():
        _run(asked, folder, machine, training, seeds, as_json)


def _run(
    asked: Asked, folder: StudyDirectory, machine: LocalEngine, training: Training, seeds: int, as_json_: bool
) -> None:
    question = question_of(asked, folder, partial(flops_in, machine=machine))
    loop = Loop(question, folder, partial(flops_left, folder, machine))
    trainers = training.trainers(loop.study, folder)
    say = partial(click.echo, err=True)
    say(f"{first_words(question)}.")
    if shipped := informed_plan(loop):
        say(f"{known_already(shipped)}")

    def train(study: Study, runs: Sequence[StudyRun], part: str) -> Mapping[str, str]:
        say(f"Next: {as_cells(runs)}.")
        return training.train(study, runs, folder, trainers, lambda run: part).failed

    belief, failed = calibrate(loop, train, say)
    confirmed: list[dict[str, Any]] = []
    if seeds:
        rivals = loop.rivals_of(belief, seeds)
        every = list({run.name: run for runs in rivals.values() for run in runs}.values())
        failed |= train(loop.study, every, VALIDATION)
        confirmed = _confirmed(rivals, folder, belief)
    _write_report(folder, question, belief)
    if as_json_:
        print_json(as_json(loop, belief) | {"confirmed": confirmed, "failed": failed})
    else:
        _print_answer(folder, question, belief, confirmed)
    fail_with(failed)


def _write_report(folder: StudyDirectory, question: Question, belief: Belief) -> None:
    known, page = (str(folder.path / name) for name in ("calibration.json", "report.html"))
    asked = ["--ud", f"{question.ud:g}", "--flops", f"{question.flops:g}"]
    with redirect_stdout(sys.stderr):  # what is printed is the plan, or JSON
        report.main([str(folder.path), "--calibration", known, *asked, "-o", page], standalone_mode=False)


def _print_answer(
    folder: StudyDirectory, question: Question, belief: Belief, confirmed: Sequence[Mapping[str, Any]]
) -> None:
    if belief.plan is None:
        click.echo(f"No plan: {belief.reason}")
    else:
        click.echo(str(belief.plan))
    if confirmed:
        click.echo("")
        print_table(
            ("trained", "params", "epochs", "λ", "expected", "loss", "± seeds"),
            [
                (
                    row["what"],
                    short(row["params"]),
                    f"{row['epochs']:.3g}",
                    f"{row['weight_decay']:g}",
                    f"{row['expected']:.3f}",
                    f"{row['loss']:.3f}",
                    "" if row["deviation"] is None else f"{row['deviation']:.3f}",
                )
                for row in confirmed
            ],
        )
    place = shlex.quote(str(folder.path / "calibration.json"))
    ahead = f"--ud {question.ud:.0f} --flops {scientific(question.flops)}"
    click.echo(f"\nAsk more: planner plan --calibration {place} {ahead}")


def _confirmed(
    rivals: Mapping[str, Sequence[StudyRun]], folder: StudyDirectory, belief: Belief
) -> list[dict[str, Any]]:
    """What each configuration reached, the plan first."""
    rows = []
    for what, runs in rivals.items():
        results = [found for run in runs if (found := folder.result(run.name)) is not None]
        if not results:
            continue
        first, losses = results[0], [result.loss for result in results]
        law = belief.calibration.law(first.weight_decay)
        row: dict[str, Any] = {"what": what, "params": first.params, "epochs": first.epochs}
        row |= {"weight_decay": first.weight_decay, "learning_rate": first.learning_rate}
        row |= {"expected": float(law.loss(first.params, first.unique_tokens, first.epochs))}
        row |= {"loss": float(np.mean(losses)), "losses": losses}
        rows.append(row | {"deviation": float(np.std(losses, ddof=1)) if len(losses) > 1 else None})
    return rows


def _dry_run(
    asked: Asked, folder: StudyDirectory, machine: LocalEngine, training: Training, seeds: int, as_json_: bool
) -> None:
    """What would be asked, the first wave, and what all of it takes; nothing is written."""
    question = stored_question(asked, folder)
    if question is None:
        question = planned_ahead(asked, folder, partial(flops_in, machine=machine))
    loop = Loop(question, folder)
    runs = loop.wave(1) or loop.proposed()
    takes = training.reckoned(loop.study, runs, folder)
    if as_json_:
        print_json({"ud": question.ud, "flops": question.flops, "budget": question.budget, **takes.facts()})
        return
    click.echo(f"About {first_words(question)}, in {WAVES} waves or fewer.")
    if shipped := informed_plan(loop):
        print_paragraph(known_already(shipped))
    click.echo("The first wave:\n")
    print_table(
        ("params", "unique", "epochs", "λ", "steps", "FLOPs"),
        [
            (
                short(run.params, 3),
                short(run.config.unique_tokens),
                f"{run.config.epochs:g}",
                f"{run.config.weight_decay:g}",
                f"{run.steps:,}",
                scientific(run.flops),
            )
            for run in runs
        ],
    )
    takes.print_totals()
    here = on_this_machine(runs, machine, training.price)
    if here.hours is None:
        return
    per_flop = here.hours * 3600 / machine.size / sum(run.flops for run in runs)
    click.echo(f"\nAll waves: at most {asked.runs} runs, {_takes(question.budget, per_flop)} of training.")
    if seeds:
        click.echo(f"To confirm: {3 * seeds} runs, at most {_takes(3 * seeds * question.flops, per_flop)}.")


def _takes(flops: float, per_flop: float) -> str:
    return f"{scientific(flops)} FLOPs, about {duration(flops * per_flop)} here"
