"""The outcome of a validation as tables on a terminal."""

from __future__ import annotations

import click

from calibration.commands.common import print_rows
from calibration.studies.verdict import (
    Configuration,
    CrossoverFound,
    Trial,
    Verdict,
    beyond_noise_text,
    blank_or,
    by_regret,
    crossover_sentence,
    standing_cells,
)
from planner.inputs import scientific, short
from planner.show.terminal import print_table

_SIDE = ("params", "epochs")


def show(verdict: Verdict) -> None:
    """The tables of a validation."""
    for trial in verdict.trials:
        _show_trial(trial)
    if verdict.standings:
        click.echo("\nMean regret over the budgets")
        ordered = sorted(verdict.standings, key=by_regret)
        print_rows([{"law": s.law, **standing_cells(s, digits=4)} for s in ordered])
    for found in verdict.crossovers:
        _show_crossover(found)


def _show_trial(trial: Trial) -> None:
    noise = f"seed noise {trial.noise:.4f}" if trial.noise is not None else "seed noise unknown (one seed)"
    click.echo(
        f"\n{short(trial.ud)} unique tokens, {scientific(trial.flops)} FLOPs, λ = {trial.weight_decay:g}: "
        f"{noise}"
    )
    print_rows(
        [
            {
                "law": tried.law,
                "params": short(c.params),
                "unique": short(c.unique_tokens),
                "epochs": f"{c.epochs:.4g}",
                "loss": f"{tried.loss:.4f}",
                "± sd": blank_or(tried.deviation, ".4f"),
                "seeds": f"{len(c.losses)}",
                "perplexity": f"{tried.perplexity:.3f}",
                "predicted": blank_or(tried.predicted_loss, ".4f"),
                "regret": f"{tried.regret:.4f}",
                "behind": blank_or(tried.behind, "+.4f"),
                "beyond noise": beyond_noise_text(tried.beyond_noise, tried.behind, tried.behind_interval),
            }
            for tried in trial.laws
            if (c := tried.configuration) is not None
        ]
    )
    for tried in trial.laws:
        if tried.reason:
            click.echo(f"{tried.law}: {tried.reason}")
    if trial.best is not None:
        b = trial.best
        click.echo(
            f"best trained: {short(b.params)} parameters, {short(b.unique_tokens)} unique tokens, "
            f"{b.epochs:.4g} epochs: loss {b.loss:.4f} ({len(b.losses)} seed{'s' * (len(b.losses) > 1)})"
        )


def _show_crossover(found: CrossoverFound) -> None:
    click.echo(
        f"\nCrossover from λ = {found.weaker:g} to {found.stronger:g} at {short(found.ud)} unique tokens "
        f"({found.law})"
    )
    if found.budgets:
        sides = [name for decay in (found.weaker, found.stronger) for name in (f"λ = {decay:g}", *_SIDE)]
        print_table(
            ("FLOPs", *sides, "difference"),
            [
                (
                    scientific(budget.flops),
                    *_side(budget.weaker),
                    *_side(budget.stronger),
                    blank_or(budget.difference, "+.4f"),
                )
                for budget in found.budgets
            ],
        )
    for budget in found.budgets:
        if budget.reason:
            click.echo(f"{scientific(budget.flops)}: {budget.reason}")
    click.echo(crossover_sentence(found))


def _side(configuration: Configuration | None) -> tuple[str, str, str]:
    if configuration is None:
        return ("", "", "")
    spread = "" if configuration.deviation is None else f" ± {configuration.deviation:.4f}"
    return (f"{configuration.loss:.4f}{spread}", short(configuration.params), f"{configuration.epochs:.4g}")
