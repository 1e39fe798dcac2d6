"""`planner calibrate backtest`: how well each law would have chosen among the runs of a table."""

from __future__ import annotations

from typing import Any

import click

from calibration.commands.common import (
    Command,
    Rows,
    law_options,
    print_json,
    progress_bar,
    row_options,
)
from calibration.fitting.evaluate.backtest import Backtest
from calibration.fitting.evaluate.backtest import backtest as judge
from planner.cli import option
from planner.laws import STANDARD
from planner.show.terminal import print_table


@click.command(cls=Command)
@click.argument("runs", metavar="RUNS.csv")
@row_options()
@law_options("A law to judge")
@option(
    "--tolerance",
    "How far the compute of one group's runs may be apart [default: 0.1, or what the nearest runs need].",
    "SHARE",
)
@option("--leave", "What each fit leaves out: the group, or all its cells.", "group|cells", default="group")
@option("--seed", "Seed of the intervals over groups.", default=0)
@option("--json as_json", "Print everything, with the choices of each group, as JSON.", is_flag=True)
def backtest(runs: str, rows: Rows, laws: tuple[str, ...], as_json: bool, **how: Any) -> None:
    """Would each law have chosen well among runs that exist already?

    Runs with the same unique tokens and nearly equal compute are compared: does a law that was fitted without
    them rank them right, and how much loss does following it cost? Nothing is trained.

    \b
    Example:
      planner calibrate backtest runs.csv
      planner calibrate backtest runs.csv --max-epochs 64 --law additive_4p --law chinchilla --tolerance 0.2
    """
    table = rows.of(runs).table
    with progress_bar("fitting") as progress:
        result = judge(table, laws=laws or STANDARD, progress=progress, **how)
    if as_json:
        print_json(result.as_dict())
    else:
        _print(result)


def _print(result: Backtest) -> None:
    for decay, reason in result.left_out.items():
        click.echo(f"Left out: weight decay {decay}, where {reason}.")
    click.echo(
        f"{result.groups} groups of runs with equal unique tokens and compute within {result.tolerance:.0%}: "
        f"{result.runs} runs, {result.pairs} pairs; each law fitted without the {result.leave} it is judged "
        "on."
    )
    if result.skipped_groups:
        click.echo(f"{result.skipped_groups} groups left out: without them the laws cannot be identified.")
    click.echo()
    print_table(
        ("law", "pairs right", "95%", "Kendall", "regret", "95%", "worst", "picked best"),
        [
            (
                score.law + " *" * (score.law in result.not_identified),
                f"{score.accuracy:.1%}",
                _between(score.accuracy_interval, ".1%"),
                f"{score.kendall:.2f}",
                f"{score.regret:.4f}",
                _between(score.regret_interval, ".4f"),
                f"{score.worst_regret:.3f}",
                f"{score.best_picks:.0%}",
            )
            for score in result.scores
        ],
    )
    if len({(score.accuracy, score.regret) for score in result.scores[:-1]}) == 1 < len(result.scores[:-1]):
        click.echo("All laws choose alike: these groups do not tell them apart.")
    for law, reason in result.not_identified.items():
        left_out = "`planner calibrate fit --prior none` leaves it out"
        click.echo(f"* {law} is not identified: {reason}; {left_out}.")


def _between(interval: tuple[float, float] | None, style: str) -> str:
    return "" if interval is None else f"{interval[0]:{style}} to {interval[1]:{style}}"
