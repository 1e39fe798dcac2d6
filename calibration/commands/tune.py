"""`planner calibrate tune`: the next wave of runs over weight decay, learning rate and epochs."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from calibration.commands.options import option, output_option
from calibration.commands.output import check_output, print_json, write_text
from planner.cli import Command
from planner.inputs import epochs as passes
from planner.show.terminal import print_table

if TYPE_CHECKING:
    from calibration.fitting.design.tuning import Advice


@click.command(cls=Command)
@click.argument("runs", type=click.Path(), required=False)
@option("--ud", "Unique tokens of the runs: 250M.", "TOKENS", required=True)
@option("--batch-tokens", "Tokens per step (sequences x length).", "TOKENS", required=True)
@option("--weight-decays", "From which to which.", "λ λ", nargs=2, required=True)
@option("--learning-rates", "From which to which.", "η η", nargs=2, required=True)
@option("--epochs", "Epochs to try; may be repeated.", "E", multiple=True, required=True)
@option("--wave", "Runs to propose.", "N", default="4")
@option("--tolerance", "What is not worth another run.", "NATS", default="0.005")
@option("--where", "Use the runs for which this holds.", "CONDITION")
@output_option("FILE.csv", "Write the wave as a table that lacks only its losses.")
@option("--json as_json", "Print the advice as JSON.", is_flag=True)
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
    from calibration.fitting.design.tuning import Ranges
    from calibration.fitting.design.tuning import tune as advise
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
            f"{passes(best['epochs'])} (loss {best['loss']:.4f}, "
            f"timescale {best['timescale_epochs']:.2g} epochs)."
        )
    click.echo(f"{'Stop' if found.stop else 'Go on'}: {found.reason}")
    rows = [
        (
            f"{row['weight_decay']:g}",
            f"{row['learning_rate']:g}",
            f"{row['epochs']:g}",
            f"{row['timescale_epochs']:.2g}",
            f"{row['expected_loss']:.4f}" if "expected_loss" in row else "",
        )
        for row in found.wave
    ]
    title = "The wave, if there were to be one" if found.stop else "Next wave"
    print_table(("weight decay", "learning rate", "epochs", "timescale", "expected loss"), rows, title=title)
