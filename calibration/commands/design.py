"""`planner calibrate design` and `tune`: which runs to train next."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click

from calibration.commands.common import (
    Command,
    Rows,
    as_typed,
    check_output,
    factor,
    output_option,
    print_json,
    print_note,
    print_rows,
    progress_bar,
    row_options,
    write_text,
)
from calibration.fitting.design.proposal import Design, describe
from calibration.fitting.design.proposal import design as propose
from calibration.fitting.design.tuning import Ranges, TuningStep
from calibration.fitting.design.tuning import tune as advise
from planner.calibration import Calibration
from planner.cli import option
from planner.hardware import DEFAULT_VOCAB
from planner.inputs import epochs as passes
from planner.inputs import named, scientific, short
from planner.laws import DEFAULT_FORM, STANDARD
from planner.plans import disagreement_at
from planner.show.terminal import print_paragraph, print_table


@click.command(cls=Command)
@option("--budget", "Compute for all new runs together, such as 1e19.", "FLOPS", required=True)
@option(
    "--target-ud", "Unique tokens of the run that is being planned, such as 250M.", "TOKENS", required=True
)
@option("--target-flops", "Compute of the run that is being planned, such as 5e18.", "FLOPS", required=True)
@option("--runs", "Runs that exist already; without them the design starts from nothing.", "RUNS.csv")
@option(
    "--calibration",
    "Prior law, before any run [default: the shipped law that suits the target].",
    "NAME|FILE",
)
@row_options(
    "existing runs", "Weight decay to design for [default: that of the runs, or of the calibration's plan]."
)
@option("--law", f"Law form [default: {DEFAULT_FORM}].", "FORM")
@option("--max-runs", "Propose at most so many runs.", type=click.IntRange(1, 200), default=30)
@option("--min-params", "Smallest model worth training [default: 1/64 of the planned size].", "N")
@option("--batch-tokens", "Tokens per step [default: those of the runs, or of the calibration].", "TOKENS")
@option("--vocab --vocab-size vocab_size", "Vocabulary of the shapes [default: the calibration's].", "V")
@output_option("FILE.csv", "Write the runs as a table that lacks only its losses.")
@option("--json as_json", "Print the design as JSON.", is_flag=True)
def design(
    runs: str | None,
    calibration: str | None,
    rows: Rows,
    vocab_size: str | None,
    output: str | None,
    as_json: bool,
    **how: Any,
) -> None:
    """Propose the runs that make a plan certain soonest per FLOP.

    \b
    Example:
      planner calibrate design --budget 1e19 --target-ud 250M --target-flops 5e18
      planner calibrate design --budget 1e19 --target-ud 250M --target-flops 5e18 --runs runs.csv -o next.csv

    Train the proposed runs from the top, and ask again with --runs whenever some are done: each loss changes
    what is worth knowing next.
    """
    check_output(output, runs, calibration)
    with progress_bar("design") as progress:
        plan = propose(
            runs=None if runs is None else rows.of(runs, weight_decay_is_choice=True).table,
            calibration=calibration,
            weight_decay=rows.weight_decay,
            vocab_size=vocab_size,
            progress=progress,
            **how,
        )
    prior = Calibration.load(calibration or plan.calibration)
    if vocab_size is None and prior.vocab_size is None:
        click.echo(f"Vocabulary not known, {DEFAULT_VOCAB:,} assumed for the shapes: --vocab.", err=True)
    for warning in plan.warnings:
        print_note(f"Warning: {named(warning, as_typed)}.")
    settling = disagreement_at(prior, plan.target_ud, plan.target_flops, plan.weight_decay)
    if as_json:
        print_json(plan.as_dict() | {"settling": settling})
    else:
        _print_design(plan)
        if settling:
            print_paragraph(settling)
    if output is not None:
        write_text(output, plan.table().to_csv(index=False))
        if not as_json:
            click.echo(f"Written to {output}.")


def _print_design(plan: Design) -> None:
    decay = "tuned weight decays" if plan.tuned else f"weight decay {plan.weight_decay:g}"
    print_paragraph(
        f"{plan.law} of {plan.calibration} at {decay}, {plan.existing_runs} existing runs; {describe(plan)}."
    )
    click.echo()
    known = {
        "target loss": f"±{plan.loss_error_before:.3f}",
        "target params": factor(plan.params_error_before),
    }
    rows = [
        {
            "run": str(k),
            "params": short(run.params, 4),
            "unique": short(run.unique_tokens),
            "epochs": f"{run.epochs:g}",
            **({} if run.steps is None else {"steps": f"{run.steps:,.0f}"}),
            **({"λ": f"{run.weight_decay:g}"} if plan.tuned and run.weight_decay is not None else {}),
            "FLOPs": scientific(run.flops),
            "together": scientific(run.cumulative_flops),
            "target loss": f"±{run.loss_error:.3f}",
            "target params": factor(run.params_error),
            "width x layers": f"{run.architecture.d_model} x {run.architecture.layers}, "
            f"d_ff {run.architecture.d_ff}",
        }
        for k, run in enumerate(plan.runs, start=1)
    ]
    before = {**dict.fromkeys(rows[0] if rows else (), ""), "run": "-", **known}
    print_rows([before, *rows])
    click.echo()
    many = f"{len(plan.runs)} run{'s' * (len(plan.runs) != 1)}"
    print_paragraph(
        f"{many}, {scientific(plan.flops)} of {scientific(plan.budget)} FLOPs. Standard errors of the target "
        "are those after all runs up to the line, allowing for the law itself to be off."
    )
    if plan.batch_tokens is not None and plan.steps_needed is not None:
        shortest = "of these runs" if plan.existing_runs else f"behind {plan.calibration}"
        why = "the runs show to be needed" if plan.steps_shown else f"the shortest run {shortest} had"
        steps = f"{plan.steps_needed:,.0f} steps of {short(plan.batch_tokens)} tokens"
        print_paragraph(f"Each has the {steps}, or more, that {why}.")
    if plan.tuned:
        print_paragraph(
            "The existing runs were tuned one by one. So train each of these with half and twice its weight "
            "decay (λ, by a rule) as well, and give the best; FLOPs are of one."
        )
    lacking = plan.not_identified
    told = "no law" if len(lacking) == len(STANDARD) else f"all standard laws but {', '.join(lacking)}"
    told = f"{told}, so that a fit will lean on its prior" if lacking else "every standard law"
    print_paragraph(f"Together with what exists they identify {told}.")


@click.command(cls=Command)
@click.argument("runs", type=click.Path(), required=False)
@option("--ud", "Unique tokens of the runs: 250M [default: those of the runs].", "TOKENS")
@option("--batch-tokens", "Tokens per step (sequences x length) [default: those of the runs].", "TOKENS")
@option("--weight-decays", "From which to which.", "λ λ", nargs=2, required=True)
@option("--learning-rates", "From which to which.", "η η", nargs=2, required=True)
@option("--epochs", "Epochs to try; may be repeated.", "E", multiple=True, required=True)
@option("--wave", "Runs to propose.", "N", default="4")
@option("--tolerance", "What is not worth another run.", "NATS", default="0.005")
@option("--where", "Use the runs for which this holds.", "CONDITION")
@output_option("FILE.csv", "Write the wave as a table that lacks only its losses.")
@option("--json as_json", "Print the advice as JSON.", is_flag=True)
def tune(
    runs: str | None,
    wave: str,
    tolerance: str,
    where: str | None,
    output: str | None,
    as_json: bool,
    **ranges: Any,
) -> None:
    """Propose the next runs over weight decay, learning rate and epochs, for one size and corpus.

    RUNS (CSV, Parquet or a study's directory, with the column learning_rate) are those trained so far;
    without them the first wave is proposed. Train it, add its runs to the table and ask again, until it says
    stop.

    \b
    Example:
      planner calibrate tune --ud 250M --batch-tokens 65536 --weight-decays 0.03 10 \\
        --learning-rates 1e-4 3e-3 --epochs 8 -o wave.csv
    """
    check_output(output, runs)
    table = None if runs is None else Rows(where=where).of(runs, weight_decay_is_choice=True).table
    found = advise(Ranges.of(**ranges, runs=table), table, wave=wave, tolerance=tolerance)
    if as_json:
        print_json(asdict(found))
    else:
        _print_wave(found)
    if output is not None:
        names = ("weight_decay", "learning_rate", "epochs")
        lines = [",".join(names), *(",".join(f"{row[name]:g}" for name in names) for row in found.wave)]
        write_text(output, "\n".join(lines) + "\n")


def _print_wave(found: TuningStep) -> None:
    if found.best is not None:
        best = found.best
        click.echo(
            f"Best so far: weight decay {best['weight_decay']:g}, learning rate {best['learning_rate']:g}, "
            f"{passes(best['epochs'])} (loss {best['loss']:.4f}, "
            f"timescale {best['timescale_epochs']:.2g} epochs)."
        )
    click.echo(f"{'Stop' if found.stop else 'Go on'}: {found.reason}")
    rows = [
        (
            f"{row['weight_decay']:g}",
            f"{row['learning_rate']:g}",
            f"{row['epochs']:g}",
            f"{row['timescale_epochs']:.2g}",
            f"{row['expected_loss']:.4f}" if "expected_loss" in row else "",
        )
        for row in found.wave
    ]
    title = "The wave, if there were to be one" if found.stop else "Next wave"
    print_table(("weight decay", "learning rate", "epochs", "timescale", "expected loss"), rows, title=title)
