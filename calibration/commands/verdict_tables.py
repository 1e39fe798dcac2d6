"""The outcome of a validation as tables on a terminal."""

from __future__ import annotations

import click

from calibration.commands.common import print_rows
from calibration.studies.verdict import (
    Verdict,
    best_sentence,
    crossover_sentence,
    crossover_table,
    noise_sentence,
    standing_rows,
    trial_rows,
    trial_title,
)
from planner.inputs import scientific, short
from planner.show.terminal import print_table


def show(verdict: Verdict) -> None:
    """The tables of a validation."""
    for trial in verdict.trials:
        click.echo(f"\n{trial_title(trial)}: {noise_sentence(trial)}")
        print_rows(trial_rows(trial))
        for tried in trial.laws:
            if tried.reason:
                click.echo(f"{tried.law}: {tried.reason}")
        if trial.best is not None:
            click.echo(best_sentence(trial.best))
    if verdict.standings:
        click.echo("\nMean regret over the budgets")
        print_rows(standing_rows(verdict))
    for found in verdict.crossovers:
        decays = f"λ = {found.weaker:g} to {found.stronger:g}"
        click.echo(f"\nCrossover from {decays} at {short(found.ud)} unique tokens ({found.law})")
        if found.budgets:
            print_table(*crossover_table(found))
        for budget in found.budgets:
            if budget.reason:
                click.echo(f"{scientific(budget.flops)}: {budget.reason}")
        click.echo(crossover_sentence(found))
