"""`planner calibrate dial`: one law for every weight decay, from runs at several."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from calibration.commands.options import output_option
from calibration.commands.output import check_output
from planner.shell import Command
from planner.terminal import print_table

if TYPE_CHECKING:
    from planner.calibration_files import Calibration


@click.command(cls=Command)
@click.argument("tables", type=click.Path(), nargs=-1, required=True)
@output_option("FILE.json", "Write the calibration to this file.")
@click.option("--learning-rate", metavar="η", help="Peak learning rate of runs whose table does not say it.")
@click.option("--batch-sequences", metavar="N", help="Sequences per step, where a table is given.")
@click.option("--sequence-length", metavar="TOKENS", help="Tokens per sequence, where a table is given.")
@click.option("--where", metavar="CONDITION", help="Use the runs for which this holds.")
@click.option(
    "--bootstrap", type=int, default=200, show_default=True, help="Refits for the intervals; 0 for none."
)
@click.option("--seed", type=int, default=0, show_default=True, help="Same seed, same file.")
@click.option("--name", default="dial", show_default=True, help="Name of the calibration.")
@click.option("--json", "as_json", is_flag=True, help="Print the calibration as JSON.")
def dial(tables: tuple[str, ...], output: str | None, as_json: bool, **how: Any) -> None:
    """Fit one law for every weight decay to the runs of TABLES (CSV files, or directories of studies).

    The first table is what the forms are judged on: each of its weight decays but the weakest and the
    strongest is left out in turn and predicted. A study knows its own recipe; for tables give learning rate
    and batch.

    \b
    Example:
      planner calibrate dial study/ -o dial.json
      planner plan --calibration dial.json --ud 49k --flops 3e11
      planner calibrate dial runs.csv --learning-rate 3e-4 --batch-sequences 128 --sequence-length 8192
    """
    from calibration.studies.dials import fit

    check_output(output, *tables)
    calibration = fit(tables, **how)
    if as_json:
        click.echo(calibration.model_dump_json(exclude_none=True))
    else:
        _print(calibration)
    if output is not None:
        calibration.save(output)
        if not as_json:
            click.echo(f"Written to {output}.")


def _print(calibration: Calibration) -> None:
    assert calibration.dial is not None
    found = calibration.dial
    decays = list(next(iter(found.laws.values())).left_out)  # type: ignore[attr-defined]
    rows = []
    for form, fitted in found.laws.items():
        missed = fitted.left_out  # type: ignore[attr-defined]
        values = ", ".join(f"{name} {value:.4g}" for name, value in fitted.parameters.items())
        figures = (fitted.metrics["rms"], fitted.metrics["left_out"], *missed.values())
        rows.append([form, values, *(f"{figure:.4f}" for figure in figures)])
    low, high = found.weight_decays
    header = ("law", "parameters", "all", "left out", *(f"λ={decay}" for decay in decays))
    title = f"{found.fitted_on.runs} runs, weight decay {low:g} to {high:g}: error of ln(loss)"
    print_table(header, rows, title=title, left=(0, 1))
    click.echo(f"Recommended: {calibration.default_law}, whose left-out weight decays are predicted best.")
