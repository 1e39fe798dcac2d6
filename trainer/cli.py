"""`planner train`, `distill` and `export`: a thin layer over `trainer.train` and `trainer.export`."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from planner.cli import Command, json_option, option
from planner.inputs import InvalidInput, duration, epochs, scientific, short
from trainer.errors import Interrupted, Signalled, TrainingStopped, exit_code
from trainer.waiting import sleep_while_waiting

if TYPE_CHECKING:
    from trainer.config import RunConfig

# torchrun passes a Ctrl-C on to processes that the terminal has sent it to already, within so many seconds
_PASSED_ON = 2.0 if "TORCHELASTIC_RUN_ID" in os.environ else 0.0


class _Command(Command):
    """A run that had to stop is one sentence and exit code 1; Ctrl-C is code 130, SIGTERM 143."""

    extra = "train"

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as error:
            going_on = "stopped; the same command goes on from the last checkpoint, or from the start."
            click.echo(str(error) or going_on, err=True)
            raise click.exceptions.Exit(exit_code(error)) from None
        except TrainingStopped as error:
            raise click.ClickException(str(error)) from None


def _how(command: Callable[..., None]) -> Callable[..., None]:
    """The options that all commands share which train a run."""
    field = "Change a field of the config, such as epochs=8 or corpus.tokens=5M; may be repeated."
    dry = "Print shape, memory, steps, FLOPs and expected time, and train nothing."
    options = (
        option("-s --set changes", field, "FIELD=VALUE", multiple=True),
        option("--dry-run", dry, is_flag=True),
        json_option,
        option("--quiet", "No progress.", is_flag=True),
    )
    for add in reversed(options):
        command = add(command)
    return command


@click.command(cls=_Command)
@click.argument("config", type=click.Path(path_type=Path))
@option(
    "-o --out",
    "Run directory, or a URL such as s3://bucket/run; default: the config file's name without .toml.",
    "DIR|URL",
)
@_how
def train(
    config: Path, out: str | None, changes: tuple[str, ...], dry_run: bool, as_json: bool, quiet: bool
) -> None:
    """Train one run, or continue it where it stopped.

    \b
    Example:
        planner train run.toml -o runs/first
        planner train run.toml --set weight_decay=1.0 --set epochs=8 -o runs/strong --dry-run
        torchrun --nproc-per-node 8 -m planner train run.toml -o runs/large

    \b
    A config is a TOML file such as
        preset = "micro"
        params = "100k"
        unique_tokens = "128k"
        epochs = 4
    """
    from trainer.config import RunConfig

    sleep_while_waiting()
    run = RunConfig.from_toml(config, **assignments(changes))
    _train(run, out or config.with_suffix(""), dry_run, as_json, quiet)


@click.command(cls=_Command)
@click.argument("members", nargs=-1, required=True, metavar="RUN...")
@option("-o --out", "Run directory of the model to train.", "DIR|URL", required=True)
@option("--weight", "Share of the members' predictions in the loss; the rest is the data's.", default=0.9)
@option("--temperature", "Above 1, what the members think unlikely counts for more.", default=1.0)
@_how
def distill(
    members: tuple[str, ...],
    out: str,
    weight: float,
    temperature: float,
    changes: tuple[str, ...],
    dry_run: bool,
    as_json: bool,
    quiet: bool,
) -> None:
    """Train one model on the mean of the probabilities of finished runs, mixed with the data.

    It has the config of the first member, with a seed of its own, unless --set says otherwise; the same exact
    epochs, and like any run it goes on where it stopped. Members stay in memory and predict every batch.

    \b
    Example:
        planner distill runs/a runs/b runs/c -o runs/distilled
        planner distill runs/a runs/b runs/c -o runs/small --set params=100k --weight 0.5
    """
    from trainer.run.teachers import student

    run = student(members, weight, temperature, assignments(changes))
    _train(run, out, dry_run, as_json, quiet)


def _train(run: RunConfig, out: str | Path, dry_run: bool, as_json: bool, quiet: bool) -> None:
    """Train a run, or say what that would take."""
    if dry_run:
        from trainer.run.estimate import estimate

        facts = estimate(run)
        click.echo(json.dumps(facts, indent=2) if as_json else _describe(facts))
        return
    from trainer.run import distributed
    from trainer.run.loop import train as train_run

    interruption = _Interruption()
    how: dict[str, Any] = {"should_stop": interruption.asked_for, "during_steps": interruption}
    try:
        result = train_run(run, out, progress=not quiet, **how)
    except Interrupted as error:
        raise Signalled(interruption.number, str(error)) from None
    if not distributed.first():
        return
    for remark in result.remarks:
        click.echo(f"Note: {remark}.", err=True)
    if as_json:
        click.echo(json.dumps(result.model_dump(mode="json"), indent=2))
    else:
        click.echo(
            f"{result.run}: loss {result.loss:.4f}, perplexity {result.perplexity:.2f}, "
            f"{result.bits_per_byte:.4f} bits/byte; {short(result.params, 4)} parameters, "
            f"{short(result.unique_tokens, 4)} unique tokens, {epochs(result.epochs)}, weight decay "
            f"{result.weight_decay}, {result.seconds:.0f} s at {result.tokens_per_second:,.0f} tokens/s."
        )


@click.command(cls=_Command)
@click.argument("run", type=click.Path(path_type=Path))
@option("--to kind", "hf: a folder for transformers.", type=click.Choice(["hf"]), default="hf")
@option("-o --out", "Folder to write; default: RUN/hf.", type=click.Path(path_type=Path))
@json_option
def export(run: Path, kind: str, out: Path | None, as_json: bool) -> None:
    """Write a finished run as a folder that transformers loads, tokenizer included.

    \b
    Example:
        planner export runs/first --to hf -o first-hf
    """
    from trainer.run.export import export as export_run

    folder = export_run(run, out or run / kind)
    click.echo(json.dumps({"folder": str(folder)}) if as_json else f"Wrote {folder}.")


def assignments(texts: Iterable[str]) -> dict[str, Any]:
    """FIELD=VALUE, the value read as TOML where it is TOML, else as text; TABLE.FIELD is one of a table."""
    import tomllib

    found: dict[str, Any] = {}
    for text in texts:
        name, equals, value = (part.strip() for part in text.partition("="))
        if not equals or not all(name.split(".")):
            raise InvalidInput(f"needs FIELD=VALUE, such as weight_decay=1.0; got {text!r}.", field="set")
        try:
            found[name] = tomllib.loads(f"value = {value}")["value"]
        except tomllib.TOMLDecodeError:
            found[name] = value
    return found


class _Interruption:
    """While steps are trained, makes Ctrl-C, SIGTERM and SIGHUP end the run after the current step, with a
    checkpoint.

    A second Ctrl-C ends it at once; a second SIGTERM or SIGHUP does not, for schedulers signal a whole group
    of processes of which some pass it on. Where no step has been done yet the first one ends it, for that
    step may have to compile.
    """

    SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def __init__(self) -> None:
        self.asked: float | None = None
        self.number: int = signal.SIGINT
        self.stepped = False

    def asked_for(self) -> bool:
        """Asked after every step."""
        self.stepped = True
        return self.asked is not None

    def __enter__(self) -> None:
        self.kept = {number: signal.signal(number, self._note) for number in self.SIGNALS}

    def __exit__(self, *error: object) -> None:
        for number, handler in self.kept.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: Any) -> None:
        if not self.stepped:
            raise Signalled(number)
        if self.asked is not None:
            if number == signal.SIGINT and time.monotonic() - self.asked >= _PASSED_ON:
                raise KeyboardInterrupt
            return
        self.asked, self.number = time.monotonic(), number
        name = "Ctrl-C" if number == signal.SIGINT else signal.Signals(number).name
        click.echo(f"{name}: stopping after this step, with a checkpoint; Ctrl-C again to stop now", err=True)


def _describe(facts: dict[str, Any]) -> str:
    execution = facts["execution"]
    compiled = "compiled" if execution["compiled"] else "not compiled"
    lines = [
        f"Model     {facts['shape']}",
        f"Data      {short(facts['unique_tokens'])} unique tokens, {epochs(facts['epochs'])}, "
        f"{short(facts['tokens'])} tokens",
        f"Steps     {facts['steps']:,}, {execution['micro_batch']} rows per pass",
        f"Compute   {scientific(facts['flops'])} FLOPs as 6 N D, {scientific(facts['counted_flops'])} of "
        f"layers, head, attention",
        f"Memory    about {facts['memory_bytes'] / 2**30:.2f} GiB",
        f"Runs on   {execution['name']}, {execution['dtype']}, {execution['attention']} attention, "
        f"{compiled}",
        f"Time      about {duration(facts['seconds'])}, from {facts['seconds_from']}",
        f"Then      at most {short(facts['most_validation_tokens'])} tokens of validation, "
        f"{duration(facts['most_validation_seconds'])}",
    ]
    return "\n".join(lines + [f"Note      {remark}" for remark in facts["remarks"]])
