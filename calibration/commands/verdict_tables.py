"""The outcome of a validation as tables on a terminal."""

from __future__ import annotations

import click

from calibration.studies.outcomes import Configuration, CrossoverFound, Standing, Trial, Verdict
from calibration.studies.verdict_words import beyond_noise, by_regret, figure, sentence
from planner.terminal import print_table
from planner.units import scientific, short


def show(verdict: Verdict) -> None:
    """The tables of a validation."""
    for trial in verdict.trials:
        _show_trial(trial)
    if verdict.standings:
        click.echo("\nMean regret over the budgets")
        print_table(
            (
                "law",
                "λ",
                "budgets",
                "regret",
                "± budgets",
                "± seeds",
                "behind",
                "95%",
                "beyond noise",
                "wins",
            ),
            [_standing_row(standing) for standing in sorted(verdict.standings, key=by_regret)],
        )
    for found in verdict.crossovers:
        _show_crossover(found)


def _show_trial(trial: Trial) -> None:
    noise = f"seed noise {trial.noise:.4f}" if trial.noise is not None else "seed noise unknown (one seed)"
    click.echo(
        f"\n{short(trial.ud)} unique tokens, {scientific(trial.flops)} FLOPs, λ = {trial.weight_decay:g}: "
        f"{noise}"
    )
    rows = []
    for tried in trial.laws:
        if tried.configuration is None:
            continue
        c = tried.configuration
        rows.append(
            (
                tried.law,
                short(c.params),
                short(c.unique_tokens),
                f"{c.epochs:.4g}",
                f"{tried.loss:.4f}",
                figure(tried.deviation, ".4f"),
                f"{len(c.losses)}",
                f"{tried.perplexity:.3f}",
                figure(tried.predicted_loss, ".4f"),
                f"{tried.regret:.4f}",
                figure(tried.behind, "+.4f"),
                beyond_noise(tried.beyond_noise, tried.behind, tried.behind_interval),
            )
        )
    header = (
        "law",
        "params",
        "unique",
        "epochs",
        "loss",
        "± sd",
        "seeds",
        "perplexity",
        "predicted",
        "regret",
        "behind",
        "beyond noise",
    )
    print_table(header, rows)
    for tried in trial.laws:
        if tried.reason:
            click.echo(f"{tried.law}: {tried.reason}")
    if trial.best is not None:
        b = trial.best
        click.echo(
            f"best trained: {short(b.params)} parameters, {short(b.unique_tokens)} unique tokens, "
            f"{b.epochs:.4g} epochs: loss "
            f"{b.loss:.4f} ({len(b.losses)} seed{'s' * (len(b.losses) > 1)})"
        )


def _standing_row(standing: Standing) -> tuple[str, ...]:
    between = (
        "" if standing.behind_interval is None else "{:+.4f} to {:+.4f}".format(*standing.behind_interval)
    )
    return (
        standing.law,
        f"{standing.weight_decay:g}",
        f"{standing.pairs} of {standing.of_pairs}",
        figure(standing.regret, ".4f"),
        figure(standing.error, ".4f"),
        figure(standing.seed_error, ".4f"),
        figure(standing.behind, "+.4f"),
        between,
        beyond_noise(standing.beyond_noise, standing.behind, standing.behind_interval)
        if standing.pairs
        else "",
        str(standing.wins),
    )


def _show_crossover(found: CrossoverFound) -> None:
    click.echo(
        f"\nCrossover from λ = {found.weaker:g} to {found.stronger:g} at {short(found.ud)} unique tokens "
        f"({found.law})"
    )
    if found.budgets:
        print_table(
            (
                "FLOPs",
                f"λ = {found.weaker:g}",
                "params",
                "epochs",
                f"λ = {found.stronger:g}",
                "params",
                "epochs",
                "difference",
            ),
            [
                (
                    scientific(budget.flops),
                    *_side(budget.weaker),
                    *_side(budget.stronger),
                    figure(budget.difference, "+.4f"),
                )
                for budget in found.budgets
            ],
        )
    for budget in found.budgets:
        if budget.reason:
            click.echo(f"{scientific(budget.flops)}: {budget.reason}")
    click.echo(sentence(found))


def _side(configuration: Configuration | None) -> tuple[str, str, str]:
    if configuration is None:
        return ("", "", "")
    spread = "" if configuration.deviation is None else f" ± {configuration.deviation:.4f}"
    return (f"{configuration.loss:.4f}{spread}", short(configuration.params), f"{configuration.epochs:.4g}")
