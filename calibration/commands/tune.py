"""`planner calibrate tune`: the next wave of runs over weight decay, learning rate and epochs."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from calibration.commands.options import output_option
from calibration.commands.output import check_output, print_json, write_text
from planner.shell import Command
from planner.terminal import print_table
from planner.units import epochs as passes

if TYPE_CHECKING:
    from calibration.fitting.waves import Advice


@click.command(cls=Command)
@click.argument("runs", type=click.Path(), required=False)
@click.option("--ud", required=True, metavar="TOKENS", help="Unique tokens of the runs: 250M.")
@click.option("--batch-tokens", required=True, metavar="TOKENS", help="Tokens per step (sequences x length).")
@click.option("--weight-decays", nargs=2, required=True, metavar="λ λ", help="From which to which.")
@click.option("--learning-rates", nargs=2, required=True, metavar="η η", help="From which to which.")
@click.option("--epochs", multiple=True, required=True, metavar="E", help="Epochs to try; may be repeated.")
@click.option("--wave", default="4", show_default=True, metavar="N", help="Runs to propose.")
@click.option(
    "--tolerance", default="0.005", show_default=True, metavar="NATS", help="What is not worth another run."
)
@click.option("--where", metavar="CONDITION", help="Use the runs for which this holds.")
@output_option("FILE.csv", "Write the wave as a table that lacks only its losses.")
@click.option("--json", "as_json", is_flag=True, help="Print the advice as JSON.")
def tune(
    runs: str | None,
    wave: str,
    tolerance: str,
    where: str | None,
    output: str | None,
    as_json: bool,
    **given: Any,
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
    from calibration.fitting.waves import Ranges
    from calibration.fitting.waves import tune as advise
    from calibration.studies.sources import read_runs

    check_output(output, runs)
    table = None if runs is None else read_runs(runs, where=where)
    found = advise(Ranges.of(**given), table, wave=wave, tolerance=tolerance)
    if as_json:
        print_json(asdict(found))
    else:
        _print(found)
    if output is not None:
        names = ("weight_decay", "learning_rate", "epochs")
        lines = [",".join(names), *(",".join(f"{row[name]:g}" for name in names) for row in found.wave)]
        write_text(output, "\n".join(lines) + "\n")


def _print(found: Advice) -> None:
    if found.best is not None:
        best = found.best
        click.echo(
            f"Best so far: weight decay {best['weight_decay']:g}, learning rate {best['learning_rate']:g}, "
            f"{passes(best['epochs'])} (loss {best['loss']:.4f}, memory {best['memory_epochs']:.2g} epochs)."
        )
    click.echo(f"{'Stop' if found.stop else 'Go on'}: {found.reason}")
    rows = [
        (
            f"{row['weight_decay']:g}",
            f"{row['learning_rate']:g}",
            f"{row['epochs']:g}",
            f"{row['memory_epochs']:.2g}",
            f"{row['expected_loss']:.4f}" if "expected_loss" in row else "",
        )
        for row in found.wave
    ]
    title = "The wave, if there were to be one" if found.stop else "Next wave"
    print_table(("weight decay", "learning rate", "epochs", "memory", "expected loss"), rows, title=title)
