"""The command line: `planner plan | compare | frontier | crossover | predict | laws | cost | shape`.

Each command is a thin layer: it hands what was typed to the call of the same name and prints the result as a table, as JSON
or as a picture. Checking input is the callee's job, so Python and the shell give the same answers and the same errors.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import click

from planner import api, units
from planner.calibration_files import DEFAULT_CALIBRATION, Calibration, shipped_names
from planner.costs import ACCELERATORS, DEFAULT_MFU, flops_from_gpus
from planner.costs import cost as cost_of
from planner.laws import FORMS
from planner.shapes import DEFAULT_VOCAB, preset, presets, shape_for
from planner.shell import BadInput, PlannerGroup, json_option

Command = Callable[..., Any]


def _help(text: str, *examples: str) -> dict[str, str]:
    return {
        "short_help": text,
        "help": f"{text}\n\n\b\nExample:\n" + "\n".join(f"  {line}" for line in examples),
    }


def _options(*options: Command) -> Callable[[Command], Command]:
    def add(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return add


_UD = click.option(
    "--ud", required=True, metavar="TOKENS", help="Unique training tokens you have: 250M, 0.25B, 250e6."
)
_FLOPS = _options(
    click.option(
        "--flops", metavar="FLOPS", help="Training compute: 5e18, '5 EFLOP'. Or give --gpu and --hours."
    ),
    click.option(
        "--gpu",
        metavar="NAME",
        help=f"Accelerator to count compute and cost with: {', '.join(ACCELERATORS)}.",
    ),
    click.option("--gpus", metavar="N", help="How many of them.  [default: 1]"),
    click.option("--hours", metavar="H", help="For how many hours."),
    click.option(
        "--mfu", metavar="SHARE", help=f"Share of peak speed that training reaches.  [default: {DEFAULT_MFU}]"
    ),
)
_PRICE = click.option(
    "--price", metavar="USD", help="Price per GPU-hour.  [default: an indicative list price]"
)
_CALIBRATION = click.option(
    "--calibration",
    metavar="NAME|FILE",
    help=f"Shipped calibration or a file from `planner calibrate fit`.  [default: {DEFAULT_CALIBRATION}]",
)
_LAW = click.option(
    "--law",
    metavar="NAME",
    help=f"Law form: {', '.join(FORMS)}.  [default: the calibration's, usually additive_4p]",
)
_DECAY = click.option(
    "--weight-decay",
    metavar="λ",
    help="The weight decay you are committed to.  [default: best of those calibrated]",
)
_LIMITS = _options(
    click.option(
        "--epochs",
        type=click.Choice(["whole", "continuous"]),
        default="whole",
        show_default=True,
        help="Whole epochs, or the exact optimum.",
    ),
    click.option("--min-params", metavar="N", help="Smallest model allowed."),
    click.option("--max-params", metavar="N", help="Largest model allowed, such as 3B."),
    click.option("--max-epochs", metavar="E", help="Most epochs allowed."),
)
_PLOT = click.option("--plot", metavar="FILE", help="Also draw the picture to FILE (.png, .svg or .pdf).")


@click.group(
    cls=PlannerGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110}
)
@click.version_option(package_name="databound", prog_name="planner")
def planner() -> None:
    """Plan language-model training when data, not compute, is the limit.

    \b
    How large a model, how many epochs, which weight decay?
      planner plan --ud 250M --flops 5e18
    """


def _compute(
    flops: str | None,
    gpu: str | None,
    gpus: str | None,
    hours: str | None,
    mfu: str | None,
    price: str | None = None,
) -> float:
    """FLOPs as given, or from accelerators and hours; options that would be ignored are refused."""
    if flops is not None and hours is not None:
        raise BadInput("give either --flops or --gpu with --hours, not both.")
    if gpu is None:
        for name, value in (("--gpus", gpus), ("--hours", hours), ("--mfu", mfu), ("--price", price)):
            if value is not None:
                raise BadInput(f"{name} needs --gpu, such as --gpu H100.")
    if flops is not None:
        return units.compute(flops)
    if gpu is None or hours is None:
        raise BadInput(
            "compute is missing: give --flops (such as 5e18), or --gpu and --hours (such as --gpu H100 --gpus 8 --hours 3)."
        )
    return flops_from_gpus(gpu, gpus or 1, hours, mfu or DEFAULT_MFU)


@planner.command(
    **_help(
        "The best model size, epochs and weight decay for your data and compute, and why.",
        "planner plan --ud 250M --flops 5e18",
        "planner plan --ud 250M --gpu H100 --gpus 8 --hours 3",
    )
)
@_UD
@_FLOPS
@_PRICE
@_DECAY
@_LAW
@_CALIBRATION
@_LIMITS
@click.option(
    "--tolerance",
    default=str(api.DEFAULT_TOLERANCE),
    show_default=True,
    metavar="NATS",
    help="How much worse than the best still counts as good.",
)
@click.option(
    "--vocab",
    "vocab_size",
    metavar="ROWS",
    help="Vocabulary size of the model shape.  [default: the calibration's]",
)
@json_option
@_PLOT
def plan(
    ud: str,
    flops: str | None,
    gpu: str | None,
    gpus: str | None,
    hours: str | None,
    mfu: str | None,
    price: str | None,
    tolerance: str,
    vocab_size: str | None,
    as_json: bool,
    plot: str | None,
    **how: Any,
) -> None:
    _check_plot(plot)
    result = api.plan(
        ud, _compute(flops, gpu, gpus, hours, mfu, price), tolerance=tolerance, vocab_size=vocab_size, **how
    )
    if gpu is not None:
        bill = cost_of(
            result.flops, gpu, gpus or 1, mfu or DEFAULT_MFU, price, architecture=result.architecture
        )
        result = result.model_copy(update={"cost": bill})
    if as_json:
        click.echo(result.model_dump_json())
    else:
        from planner import render

        render.plan(result)
    if plot:
        from planner import plots

        _draw(plots.isoflop(result, how["calibration"]), plot, as_json)


@planner.command(
    **_help(
        "What each law recommends for one budget, and what following it would cost.",
        "planner compare --ud 500M --flops 1e19 --weight-decay 0.1",
    )
)
@_UD
@_FLOPS
@_DECAY
@_CALIBRATION
@_LIMITS
@json_option
@_PLOT
def compare(
    ud: str,
    flops: str | None,
    gpu: str | None,
    gpus: str | None,
    hours: str | None,
    mfu: str | None,
    as_json: bool,
    plot: str | None,
    **how: Any,
) -> None:
    _check_plot(plot)
    if flops is not None and gpu is not None:
        raise BadInput("--gpu goes with --hours here; with --flops it has no effect.")
    result = api.compare(ud, _compute(flops, gpu, gpus, hours, mfu), **how)
    if as_json:
        click.echo(result.model_dump_json())
    else:
        from planner import render

        render.comparison(result)
    if plot:
        from planner import plots

        _draw(plots.allocation_frontier(result.ud, mark=result.flops, **how), plot, as_json)


@planner.command(
    **_help(
        "The best plan along a range of compute; with --plot, size against epochs for each law.",
        "planner frontier --ud 250M --from 1e17 --to 1e20 --points 13",
        "planner frontier --ud 250M --single-epoch --plot premium.png",
    )
)
@_UD
@click.option(
    "--from",
    "start",
    default=None,
    metavar="FLOPS",
    help="Smallest compute.  [default: where the corpus is used once]",
)
@click.option(
    "--to", "stop", default=None, metavar="FLOPS", help="Largest compute.  [default: 10,000 times that]"
)
@click.option(
    "--points",
    default="25",
    show_default=True,
    metavar="N",
    help="How many budgets, evenly spaced on a log scale.",
)
@click.option(
    "--single-epoch", is_flag=True, help="Fresh data only: at most one epoch, with as much data as it takes."
)
@_DECAY
@_LAW
@_CALIBRATION
@_LIMITS
@json_option
@_PLOT
def frontier(
    ud: str,
    start: str | None,
    stop: str | None,
    points: str,
    single_epoch: bool,
    as_json: bool,
    plot: str | None,
    **how: Any,
) -> None:
    _check_plot(plot)
    result = api.frontier_range(ud, start, stop, points, single_epoch=single_epoch, **how)
    if as_json:
        click.echo(json.dumps(result.to_dict()))
    else:
        from planner import render

        render.frontier(result)
    if plot:
        from planner import plots

        if single_epoch:
            figure = plots.single_epoch_frontiers(
                result.flops[0], result.flops[-1], how["calibration"], how["weight_decay"]
            )
        else:
            span = (float(result.flops[0]), float(result.flops[-1]))
            figure = plots.allocation_frontier(float(result.ud[0]), span=span, **how)
        _draw(figure, plot, as_json)


@planner.command(
    **_help("The compute above which stronger weight decay wins (C×).", "planner crossover --ud 250M")
)
@_UD
@click.option(
    "--weight-decays",
    nargs=2,
    metavar="λ λ",
    help="Which two settings.  [default: the weakest and the strongest calibrated]",
)
@_LAW
@_CALIBRATION
@_LIMITS
@json_option
@_PLOT
def crossover(
    ud: str, weight_decays: tuple[str, str] | None, as_json: bool, plot: str | None, **how: Any
) -> None:
    _check_plot(plot)
    result = api.crossover(ud, weight_decays=weight_decays or None, **how)
    if as_json:
        click.echo(result.model_dump_json())
    else:
        from planner import render

        render.crossover(result)
    if plot:
        from planner import plots

        _draw(plots.loss_against_compute(result, **how), plot, as_json)


@planner.command(
    **_help(
        "The loss that a law expects from one configuration, term by term.",
        "planner predict --params 500M --ud 250M --epochs 8 --weight-decay 0.1",
    )
)
@click.option("--params", required=True, metavar="N", help="Model size with embeddings: 500M.")
@_UD
@click.option(
    "--epochs",
    default="1",
    show_default=True,
    metavar="E",
    help="Passes over the unique tokens; fractions are fine.",
)
@_DECAY
@_LAW
@_CALIBRATION
@json_option
@_PLOT
def predict(params: str, ud: str, epochs: str, as_json: bool, plot: str | None, **how: Any) -> None:
    _check_plot(plot)
    result = api.predict(params, ud, epochs, **how)
    if as_json:
        click.echo(result.model_dump_json())
    else:
        from planner import render

        render.prediction(result)
    if plot:
        from planner import plots

        _draw(plots.loss_terms(result, how["calibration"]), plot, as_json)


@planner.command(
    **_help(
        "The calibrations that ship with the package, or all coefficients of one.",
        "planner laws",
        "planner laws c4-gpt2",
    )
)
@click.argument("calibration", required=False)
@json_option
def laws(calibration: str | None, as_json: bool) -> None:
    shown = [Calibration.load(name) for name in ([calibration] if calibration else shipped_names())]
    if as_json:
        # The bootstrap ensembles are for machines that read the file itself.
        click.echo(
            json.dumps(
                [c.model_dump(mode="json", exclude={"settings": {"__all__": {"ensemble"}}}) for c in shown]
            )
        )
    else:
        from planner import render

        render.laws(shown, details=calibration is not None)


@planner.command(
    **_help(
        "Hours, money and memory for a compute budget; without one, the table of accelerators.",
        "planner cost --flops 5e18 --gpu H100 --gpus 8 --params 556M",
    )
)
@_FLOPS
@_PRICE
@click.option("--params", metavar="N", help="Also estimate the training memory of a model of this size.")
@click.option(
    "--vocab",
    "vocab_size",
    default=str(DEFAULT_VOCAB),
    show_default=True,
    metavar="ROWS",
    help="Its vocabulary size.",
)
@click.option(
    "--sequences",
    default="8",
    show_default=True,
    metavar="B",
    help="Sequences trained at a time on one device.",
)
@click.option("--sequence-length", default="512", show_default=True, metavar="T", help="Tokens per sequence.")
@json_option
def cost(
    flops: str | None,
    gpu: str | None,
    gpus: str | None,
    hours: str | None,
    mfu: str | None,
    price: str | None,
    params: str | None,
    vocab_size: str,
    sequences: str,
    sequence_length: str,
    as_json: bool,
) -> None:
    from planner import render

    if all(given is None for given in (flops, gpu, gpus, hours, mfu, price, params)):
        if as_json:
            click.echo(json.dumps([card._asdict() for card in ACCELERATORS.values()]))
        else:
            render.accelerators()
        return
    if gpu is None:
        raise BadInput(
            "--gpu is missing: name the accelerator, such as --gpu H100 (`planner cost` lists them)."
        )
    budget = _compute(flops, gpu, gpus, hours, mfu, price)
    architecture = shape_for(params, vocab_size) if params is not None else None
    result = cost_of(
        budget, gpu, gpus or 1, mfu or DEFAULT_MFU, price, architecture, sequences, sequence_length
    )
    if as_json:
        click.echo(result.model_dump_json())
    else:
        render.cost(result, architecture)


@planner.command(
    **_help(
        "A Llama-2 shape that can be built for a parameter count, or the paper's presets.",
        "planner shape 556M",
        "planner shape --preset 125M",
        "planner shape",
    )
)
@click.argument("params", required=False)
@click.option("--vocab", "vocab_size", metavar="ROWS", help=f"Vocabulary size.  [default: {DEFAULT_VOCAB}]")
@click.option("--preset", "name", metavar="NAME", help=f"One of the paper's shapes: {', '.join(presets())}.")
@json_option
def shape(params: str | None, vocab_size: str | None, name: str | None, as_json: bool) -> None:
    if params is not None and name is not None:
        raise BadInput("give either a parameter count or --preset, not both.")
    if vocab_size is not None and params is None:
        raise BadInput(
            "--vocab needs a parameter count, such as `planner shape 556M --vocab 50257`; presets have their own."
        )
    if name is not None:
        found = [preset(name)]
    else:
        found = (
            [shape_for(params, vocab_size or DEFAULT_VOCAB)]
            if params is not None
            else list(presets().values())
        )
    if as_json:
        click.echo(
            json.dumps([one.model_dump() for one in found] if len(found) > 1 else found[0].model_dump())
        )
    else:
        from planner import render

        render.shapes(found)


def _check_plot(path: str | None) -> None:
    """A picture that cannot be written is refused before anything is computed."""
    if path is None:
        return
    import os

    folder = os.path.dirname(path) or "."
    if os.path.splitext(path)[1].lower() not in (".png", ".svg", ".pdf"):
        raise BadInput(f"--plot must name a .png, .svg or .pdf file; got {path!r}.")
    if not os.path.isdir(folder) or not os.access(folder, os.W_OK) or os.path.isdir(path):
        raise BadInput(f"--plot cannot be written: {path!r} is not a file in an existing, writable folder.")


def _draw(figure: Any, path: str, quiet: bool) -> None:
    try:
        figure.savefig(path)
    except OSError as error:
        raise BadInput(f"--plot cannot be written to {path!r}: {error.strerror or error}.") from None
    if not quiet:
        click.echo(f"Picture written to {path}.")
