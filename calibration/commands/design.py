"""`planner calibrate design`: which runs to train next."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from calibration.commands.options import Rows, as_typed, option, output_option, row_options
from calibration.commands.output import check_output, factor, print_json, print_rows, progress_bar, write_text
from planner.cli import Command
from planner.inputs import named, scientific, short
from planner.laws import DEFAULT_FORM, STANDARD

if TYPE_CHECKING:
    from calibration.fitting.design.proposal import Design


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
    "existing runs", "Weight decay to design for [default: that of the runs, or of the calibration]."
)
@option("--law", f"Law form [default: {DEFAULT_FORM}].", "FORM")
@option("--max-runs", "Propose at most so many runs.", type=click.IntRange(1, 200), default=30)
@option("--min-params", "Smallest model worth training [default: 1/64 of the planned size].", "N")
@option("--vocab-size", "Vocabulary of the proposed shapes [default: that of the calibration].", "V")
@output_option("FILE.csv", "Write the runs as a table that lacks only its losses.")
@option("--json as_json", "Print the design as JSON.", is_flag=True)
def design(
    budget: str,
    target_ud: str,
    target_flops: str,
    runs: str | None,
    calibration: str | None,
    rows: Rows,
    vocab_size: str | None,
    output: str | None,
    as_json: bool,
    **limits: Any,
) -> None:
    """Propose the runs that make a plan certain soonest per FLOP.

    \b
    Example:
      planner calibrate design --budget 1e19 --target-ud 250M --target-flops 5e18
      planner calibrate design --budget 1e19 --target-ud 250M --target-flops 5e18 --runs runs.csv -o next.csv

    Train the proposed runs from the top, and ask again with --runs whenever some are done: each loss changes
    what is worth knowing next.
    """
    from calibration.fitting.design.proposal import design as propose
    from planner.calibration import Calibration
    from planner.hardware import DEFAULT_VOCAB
    from planner.plans import disagreement_at

    check_output(output, runs, calibration)
    with progress_bar("design") as progress:
        plan = propose(
            budget,
            target_ud,
            target_flops,
            runs=None if runs is None else rows.of(runs, weight_decay_is_choice=True),
            calibration=calibration,
            weight_decay=rows.weight_decay,
            vocab_size=vocab_size,
            progress=progress,
            **limits,
        )
    if vocab_size is None and Calibration.load(calibration or plan.calibration).vocab_size is None:
        click.echo(f"Vocabulary not known, {DEFAULT_VOCAB:,} assumed for the shapes: --vocab-size.", err=True)
    for warning in plan.warnings:
        click.echo(f"Warning: {named(warning, as_typed)}.", err=True)
    settling = disagreement_at(
        Calibration.load(calibration or plan.calibration),
        plan.target_ud,
        plan.target_flops,
        plan.weight_decay,
    )
    if as_json:
        print_json(plan.as_dict() | {"settling": settling})
    else:
        _print(plan)
        if settling:
            click.echo(settling)
    if output is not None:
        write_text(output, plan.table().to_csv(index=False))
        if not as_json:
            click.echo(f"Written to {output}.")


def _print(plan: Design) -> None:
    from calibration.fitting.design.proposal import describe

    click.echo(
        f"{plan.law} of {plan.calibration} at weight decay {plan.weight_decay:g}, {plan.existing_runs} "
        f"existing runs; {describe(plan)}.\n"
    )
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
    click.echo(
        f"\n{len(plan.runs)} runs, {scientific(plan.flops)} of {scientific(plan.budget)} FLOPs. Standard "
        "errors of the target "
        f"are those after all runs up to the line, allowing for the law itself to be off."
    )
    lacking = plan.not_identified
    told = "no law" if len(lacking) == len(STANDARD) else f"all standard laws but {', '.join(lacking)}"
    told = f"{told}, so that a fit will lean on its prior" if lacking else "every standard law"
    click.echo(f"Together with what exists they identify {told}.")
