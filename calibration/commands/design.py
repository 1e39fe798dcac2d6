"""`planner calibrate design`: which runs to train next."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from calibration.commands.options import Rows, as_typed, output_option, row_options
from calibration.commands.output import check_output, factor, print_json, progress_bar, write_text
from planner.errors import named
from planner.laws import DEFAULT_FORM, STANDARD
from planner.shell import Command
from planner.terminal import print_table
from planner.units import scientific, short

if TYPE_CHECKING:
    from calibration.fitting.design import Design


@click.command(cls=Command)
@click.option(
    "--budget", required=True, metavar="FLOPS", help="Compute for all new runs together, such as 1e19."
)
@click.option(
    "--target-ud",
    required=True,
    metavar="TOKENS",
    help="Unique tokens of the run that is being planned, such as 250M.",
)
@click.option(
    "--target-flops",
    required=True,
    metavar="FLOPS",
    help="Compute of the run that is being planned, such as 5e18.",
)
@click.option(
    "--runs", metavar="RUNS.csv", help="Runs that exist already; without them the design starts from nothing."
)
@click.option(
    "--calibration",
    metavar="NAME|FILE",
    help="Law that is believed before any run [default: the shipped law that suits the target].",
)
@row_options(
    "existing runs", "Weight decay to design for [default: that of the runs, or of the calibration]."
)
@click.option("--law", metavar="FORM", help=f"Law form [default: {DEFAULT_FORM}].")
@click.option(
    "--max-runs",
    type=click.IntRange(1, 200),
    default=30,
    show_default=True,
    help="Propose at most so many runs.",
)
@click.option(
    "--min-params", metavar="N", help="Smallest model worth training [default: 1/64 of the planned size]."
)
@click.option(
    "--vocab-size", metavar="V", help="Vocabulary of the proposed shapes [default: that of the calibration]."
)
@output_option("FILE.csv", "Write the runs as a table that lacks only its losses.")
@click.option("--json", "as_json", is_flag=True, help="Print the design as JSON.")
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
    from calibration.fitting.design import design as propose
    from planner.calibration_files import Calibration
    from planner.directions import settled_by
    from planner.shapes import DEFAULT_VOCAB

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
    settling = settled_by(
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
    from calibration.fitting.design import describe

    click.echo(
        f"{plan.law} of {plan.calibration} at weight decay {plan.weight_decay:g}, {plan.existing_runs} "
        f"existing runs; "
        f"{describe(plan)}.\n"
    )
    rows = [
        (
            str(k),
            short(run.params, 4),
            short(run.unique_tokens),
            f"{run.epochs:g}",
            scientific(run.flops),
            scientific(run.cumulative_flops),
            f"±{run.loss_error:.3f}",
            factor(run.params_error),
            f"{run.architecture.d_model} x {run.architecture.layers}, d_ff {run.architecture.d_ff}",
        )
        for k, run in enumerate(plan.runs, start=1)
    ]
    before = (f"±{plan.loss_error_before:.3f}", factor(plan.params_error_before))
    print_table(
        (
            "run",
            "params",
            "unique",
            "epochs",
            "FLOPs",
            "together",
            "target loss",
            "target params",
            "width x layers",
        ),
        [("-", "", "", "", "", "", *before, ""), *rows],
    )
    click.echo(
        f"\n{len(plan.runs)} runs, {scientific(plan.flops)} of {scientific(plan.budget)} FLOPs. Standard "
        "errors of the target "
        f"are those after all runs up to the line, allowing for the law itself to be off."
    )
    lacking = plan.not_identified
    told = "no law" if len(lacking) == len(STANDARD) else f"all standard laws but {', '.join(lacking)}"
    told = f"{told}, so that a fit will lean on its prior" if lacking else "every standard law"
    click.echo(f"Together with what exists they identify {told}.")
