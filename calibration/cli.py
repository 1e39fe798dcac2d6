"""`planner calibrate ...`: fit laws to runs and compare settings. Sub-commands in modules of their own are listed below."""

from __future__ import annotations

import importlib
import json
import sys
from typing import TYPE_CHECKING, Any

import click

from calibration.console import Command, check_output, progress_bar, run_table_options
from planner.errors import InvalidInput

if TYPE_CHECKING:
    from calibration.compare import Comparison
    from planner.calibration import Calibration, FittedLaw, Setting

# Sub-commands that live in modules of their own.
_ELSEWHERE = {
    "backtest": "calibration.backtest_cli:backtest",
    "design": "calibration.design_cli:design",
    "report": "calibration.report_cli:report",
    "sweep": "calibration.sweeps.cli:sweep",
    "validate": "calibration.validate_cli:validate",
}


class CalibrateGroup(click.Group):
    """A group that imports the sub-commands of other modules only when they are used or listed."""

    def list_commands(self, context: click.Context) -> list[str]:
        return sorted({*super().list_commands(context), *(name for name in _ELSEWHERE if _find(name) is not None)})

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        return super().get_command(context, name) or _find(name)


def _find(name: str) -> click.Command | None:
    if name not in _ELSEWHERE:
        return None
    module, _, attribute = _ELSEWHERE[name].partition(":")
    try:
        return getattr(importlib.import_module(module), attribute)
    except ModuleNotFoundError as error:
        if error.name == module:
            return None  # not part of this installation
        raise


@click.group(cls=CalibrateGroup, context_settings={"help_option_names": ["-h", "--help"]})
def calibrate() -> None:
    """Turn your own runs into a calibration that `planner plan --calibration` uses.

    \b
    Example:
      planner calibrate fit runs.csv -o my.json
      planner plan --calibration my.json --ud 250M --flops 5e18
    """


# -- fit -------------------------------------------------------------------------------------------------------------------


@calibrate.command(cls=Command)
@click.argument("table", type=click.Path())
@click.option("-o", "--out", "--output", type=click.Path(), help="Write the calibration to this file.")
@click.option("--law", "laws", multiple=True, help="A law form to fit; repeat for several. All six by default.")
@run_table_options
@click.option("--delta", default="1e-3", show_default=True, help="Huber threshold on ln(loss), or 'noise': from the runs.")
@click.option("--joint", is_flag=True, help="Fit base law and repetition together instead of locking the base law first.")
@click.option("--bootstrap", type=int, default=1000, show_default=True, help="Refits for the intervals; 0 for none.")
@click.option(
    "--resample", type=click.Choice(["runs", "cells"]), default="runs", show_default=True, help="What the bootstrap redraws."
)
@click.option(
    "--scheme", type=click.Choice(["residuals", "weights"]), default="residuals", show_default=True, help="How it redraws them."
)
@click.option("--seed", type=int, default=0, show_default=True, help="Same seed, same file.")
@click.option("--name", help="Name of the calibration; the table's file name by default.")
@click.option("--title", default="", help="One line for people.")
@click.option("--corpus", default="", help="What the runs were trained on.")
@click.option("--model-family", default="", help="What was trained.")
@click.option("--vocab-size", type=int, help="Rows of the embedding, for plans with an architecture.")
@click.option("--json", "as_json", is_flag=True, help="Print the calibration as JSON.")
def fit(
    table: str, out: str | None, laws: tuple[str, ...], max_epochs: str | None, where: str | None, weight_decay: str | None,
    delta: str, joint: bool, bootstrap: int, resample: str, scheme: str, seed: int, name: str | None, title: str, corpus: str,
    model_family: str, vocab_size: int | None, as_json: bool,
) -> None:  # fmt: skip
    """Fit laws to a run TABLE (CSV or Parquet) or to the directory of a study, per weight decay.

    The table has the columns run, params, unique_tokens, epochs and / or tokens, weight_decay, loss; --where can use others.
    Each law is judged on (size, budget) cells that it was not fitted on, and the best one becomes the default.

    \b
    Example:
      planner calibrate fit runs.csv --max-epochs 64 -o my.json
      planner calibrate fit study/ -o law.json
    """
    from pathlib import Path

    from calibration.fitting import fit as fit_table
    from planner.laws import FORMS

    check_output(out, table)
    with progress_bar("fitting") as progress:
        calibration = fit_table(
            table, laws=laws or FORMS, delta=delta, joint=joint, bootstrap=bootstrap, resample=resample, scheme=scheme, seed=seed,
            name=name or (Path(table).resolve().name if Path(table).is_dir() else Path(table).stem), title=title, corpus=corpus, model_family=model_family, vocab_size=vocab_size,
            source=f"fitted to {Path(table).resolve().name}", max_epochs=max_epochs, where=where, weight_decay=weight_decay,
            progress=progress,
        )  # fmt: skip
    # Printed first: a file that cannot be written after all loses nothing.
    if as_json:
        click.echo(calibration.model_dump_json(exclude_none=True))
    else:
        for setting in calibration.settings:
            _print_setting(setting)
        for decay, reason in calibration.left_out.items():  # type: ignore[attr-defined]
            _console().print(f"Left out: weight decay {decay}, whose base law is not identified: {reason}.", highlight=False)
        _console().print("Recommended: " + calibration.recommendation["reason"], highlight=False)  # type: ignore[attr-defined]
    if out:
        calibration.save(out)
    if out and not as_json:
        _console().print(
            f"Written to {out}: planner plan --calibration {out} {_example(calibration)}", highlight=False, soft_wrap=True
        )
        if calibration.vocab_size is None:
            _console().print(
                "Plans will not know the vocabulary: --vocab-size 32100, say, puts it into the file.", highlight=False
            )


def _print_setting(setting: Setting) -> None:
    from rich.table import Table

    ranges = setting.fitted_on
    title = f"weight decay {setting.weight_decay:g}: {ranges.runs} runs, {ranges.single_epoch_runs} single-epoch"
    table = Table(title=title, title_justify="left")
    for column in ("law", "parameters", "R²", "R² multi", "Huber", "AICc", "held out", "starts at optimum"):
        table.add_column(column, justify="left" if column in ("law", "parameters") else "right", overflow="fold")
    for form, fitted in setting.laws.items():
        shown = _own(form, fitted.parameters)
        text = ", ".join(f"{name} {value:.4g}{_between(fitted, name)}" for name, value in shown.items())
        figures = fitted.metrics
        convergence = fitted.convergence  # type: ignore[attr-defined]
        flat = convergence["nearly_flat"]
        agree = f"{convergence['share_at_optimum']:.0%}" + (f" (flat: {', '.join(flat)})" if flat else "")
        styles = {"r2": ".4f", "r2_multi": ".4f", "huber": ".3g", "aicc": ".1f", "held_out_error": ".3%"}
        table.add_row(form, text, *(_number(figures.get(name), style) for name, style in styles.items()), agree)
    for form, reason in setting.method.get("not_identified", {}).items():
        table.add_row(form, f"not identified: {reason}", *[""] * 6)
    _console().print(table)


def _example(calibration: Calibration) -> str:
    """Options of a plan in the middle of what was fitted on: its unique tokens, and compute for four epochs."""
    from planner.units import short

    ranges = calibration.settings[0].fitted_on
    params, unique = ((low * high) ** 0.5 for low, high in (ranges.params, ranges.unique_tokens))
    return f"--ud {short(unique, 2)} --flops {6 * params * unique * 4:.0e}".replace("e+", "e")


def _own(form: str, parameters: dict[str, float]) -> dict[str, float]:
    from planner.laws import repetition_parameters

    return {name: parameters[name] for name in repetition_parameters(form) or parameters}


# -- compare -----------------------------------------------------------------------------------------------------------------


@calibrate.command(cls=Command)
@click.argument("calibrations", nargs=-1, required=True)
@click.option("--weight-decay", "decays", multiple=True, help="Which settings; twice for one file with two, or once per file.")
@click.option("--law", help="One of the additive forms; all by default.")
@click.option("--params", help="Model size of the common point, such as 300M.")
@click.option("--ud", help="Unique tokens of the common point, such as 500M.")
@click.option("--epochs", help="Epochs of the common point, such as 4.")
@click.option("--json", "as_json", is_flag=True, help="Print the comparison as JSON.")
def compare(
    calibrations: tuple[str, ...], decays: tuple[str, ...], law: str | None, params: str | None, ud: str | None,
    epochs: str | None, as_json: bool,
) -> None:  # fmt: skip
    """Compare how much two settings overfit, at a point that both cover.

    CALIBRATIONS are two files (or shipped names), or one with two weight decays.

    \b
    Example:
      planner calibrate compare fineweb-llama2
      planner calibrate compare a.json b.json --params 300M --ud 500M --epochs 4
    """
    from calibration.compare import compare as compare_settings
    from planner.calibration import Calibration

    known = [Calibration.load(name) for name in calibrations]
    first, second = _two_settings(known, decays)
    recommended = known[0].default_law
    found = compare_settings(first, second, law=law, recommended=recommended, params=params, ud=ud, epochs=epochs)
    if as_json:
        click.echo(json.dumps([item.model_dump() for item in found]))
        return
    _print_comparison(found, recommended)


def _two_settings(calibrations: list[Calibration], decays: tuple[str, ...]) -> tuple[Setting, Setting]:
    """The two settings that the files and weight decays on the command line mean, or an error that lists the choice."""
    if len(calibrations) > 2:
        raise InvalidInput(f"compare takes one or two calibrations; got {len(calibrations)}.")
    if len(decays) > 2:
        raise InvalidInput(f"--weight-decay may be given at most twice; got {len(decays)}.")
    if len(calibrations) == 1:
        only = calibrations[0]
        if not decays and len(only.settings) == 2:
            return only.settings[0], only.settings[1]
        if len(decays) == 2:
            return only.setting(decays[0]), only.setting(decays[1])
        known = ", ".join(f"{decay:g}" for decay in only.weight_decays)
        raise InvalidInput(
            f"calibration {only.name} has the weight decays {known}; name two of them, or give a second calibration."
        )
    chosen = []
    for i, calibration in enumerate(calibrations):
        decay = decays[i] if len(decays) == 2 else decays[0] if decays else None
        if decay is None and len(calibration.settings) > 1:
            known = ", ".join(f"{value:g}" for value in calibration.weight_decays)
            raise InvalidInput(
                f"calibration {calibration.name} has the weight decays {known}; choose with --weight-decay, once per file."
            )
        chosen.append(calibration.settings[0] if decay is None else calibration.setting(decay))
    return chosen[0], chosen[1]


def _print_comparison(found: list[Comparison], recommended: str) -> None:
    from rich.table import Table

    head = found[0]
    _console().print(head.sentence, highlight=False)
    sure = next((item for item in found if item.ratio_low is not None), head)
    if sure is not head and head.ratio_low is None:  # the best-supported figure, where the recommended form has no interval
        _console().print(sure.sentence, highlight=False)
    for warning in head.warnings:
        _console().print(f"Warning: {warning}", highlight=False)
    table = Table(title=f"Penalty in nats at {head.reference}", title_justify="left")
    decays = (f"at {head.first_weight_decay:g}", f"at {head.second_weight_decay:g}")
    for column in ("law", *decays, "ratio", "95%", "ratio of P alone", "interval from"):
        table.add_column(column, justify="left" if column in ("law", "interval from") else "right", overflow="fold")
    for item in found:
        between = "" if item.ratio_low is None else f"{item.ratio_low:.3g} to {item.ratio_high:.3g}"
        alone = f"{item.coefficient_ratio:.3g}" + ("" if item.coefficients_comparable else " (other units)")
        name = item.law + (" (recommended)" if item.law == recommended else "")
        penalties = (f"{item.first_penalty:.4g}", f"{item.second_penalty:.4g}")
        table.add_row(name, *penalties, f"{item.ratio:.3g}", between, alone, item.interval_from)
    _console().print(table)


# -- shared ------------------------------------------------------------------------------------------------------------------


def _console() -> Any:
    from rich.console import Console

    # As wide as the terminal; a pipe gets room enough that no table is folded.
    return Console(file=sys.stdout, width=None if sys.stdout.isatty() else 160)


def _number(value: float | None, style: str) -> str:
    return "" if value is None else format(value, style)


def _between(fitted: FittedLaw, name: str) -> str:
    """The 95% interval of a parameter, open where the refits that define its end sit on the bound of the search."""
    ends = getattr(fitted, "intervals", {}).get(name)
    if ends is None:
        return ""
    unbounded = fitted.convergence["refits"]["open"].get(name, ())  # type: ignore[attr-defined]
    low, high = (f"{'≤ ' * ('below' in unbounded)}{ends[0]:.3g}", f"{'≥ ' * ('above' in unbounded)}{ends[2]:.3g}")
    return f" ({low} to {high})"
