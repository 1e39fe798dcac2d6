"""`planner calibrate compare`: how much less one setting overfits than another."""

from __future__ import annotations

import json
from typing import Any

import click

from calibration.commands.common import Command
from calibration.fitting.evaluate.compare import Comparison
from calibration.fitting.evaluate.compare import compare as compare_settings
from planner.calibration import Calibration, Setting
from planner.cli import option
from planner.inputs import InvalidInput
from planner.show.terminal import print_table


@click.command(cls=Command)
@click.argument("calibrations", nargs=-1, required=True)
@option(
    "--weight-decay decays", "Which settings; twice for one file with two, or once per file.", multiple=True
)
@option("--law", "One of the additive forms; all by default.")
@option("--params", "Model size of the common point, such as 300M.")
@option("--ud", "Unique tokens of the common point, such as 500M.")
@option("--epochs", "Epochs of the common point, such as 4.")
@option("--json as_json", "Print the comparison as JSON.", is_flag=True)
def compare(calibrations: tuple[str, ...], decays: tuple[str, ...], as_json: bool, **how: Any) -> None:
    """Compare how much two settings overfit, at a point that both cover.

    CALIBRATIONS are two files (or shipped names), or one with two weight decays.

    \b
    Example:
      planner calibrate compare fineweb-llama2
      planner calibrate compare a.json b.json --params 300M --ud 500M --epochs 4
    """
    known = [Calibration.load(name) for name in calibrations]
    first, second = _two_settings(known, decays)
    recommended = known[0].default_law
    found = compare_settings(first, second, recommended=recommended, **how)
    if as_json:
        click.echo(json.dumps([item.model_dump() for item in found]))
        return
    _print_comparison(found, recommended)


def _two_settings(calibrations: list[Calibration], decays: tuple[str, ...]) -> tuple[Setting, Setting]:
    """The two settings that these files and weight decays mean, or an error that lists the choice."""
    if len(calibrations) > 2:
        raise InvalidInput(f"compare takes one or two calibrations; got {len(calibrations)}.")
    if len(decays) > 2:
        raise InvalidInput(f"may be given at most twice; got {len(decays)}.", field="weight_decay")
    if len(calibrations) == 1:
        only = calibrations[0]
        both = decays or only.weight_decays
        if len(both) != 2:
            raise InvalidInput(f"{_its_decays(only)}; name two of them, or give a second calibration.")
        return only.setting(both[0]), only.setting(both[1])
    at = (*decays, *decays)[:2] or (None, None)
    for known, decay in zip(calibrations, at, strict=True):
        if decay is None and len(known.settings) > 1:
            raise InvalidInput(f"{_its_decays(known)}; choose with ‹weight_decay›, once per file.")
    first, second = (
        known.settings[0] if decay is None else known.setting(decay)
        for known, decay in zip(calibrations, at, strict=True)
    )
    return first, second


def _its_decays(calibration: Calibration) -> str:
    known = ", ".join(f"{decay:g}" for decay in calibration.weight_decays)
    return f"calibration {calibration.name} has the weight decays {known}"


def _print_comparison(found: list[Comparison], recommended: str) -> None:
    head = found[0]
    click.echo(head.sentence)
    sure = next((item for item in found if item.ratio_low is not None), head)
    if sure is not head:  # the best-supported figure, where the recommended form has no interval
        click.echo(sure.sentence)
    for warning in head.warnings:
        click.echo(f"Warning: {warning}")
    decays = (f"at {head.first_weight_decay:g}", f"at {head.second_weight_decay:g}")
    header = ("law", *decays, "ratio", "95%", "ratio of P alone", "interval from")
    rows = []
    for item in found:
        between = "" if item.ratio_low is None else f"{item.ratio_low:.3g} to {item.ratio_high:.3g}"
        alone = f"{item.coefficient_ratio:.3g}" + ("" if item.coefficients_comparable else " (other units)")
        name = item.law + (" (recommended)" if item.law == recommended else "")
        penalties = (f"{item.first_penalty:.4g}", f"{item.second_penalty:.4g}")
        rows.append((name, *penalties, f"{item.ratio:.3g}", between, alone, item.interval_from))
    print_table(header, rows, title=f"Penalty in nats at {head.reference}", left=(0, 6))
