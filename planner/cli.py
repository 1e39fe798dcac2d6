"""The command line: `planner plan | compare | frontier | crossover | predict | laws | cost | shape`.

Each command is a thin layer: it hands what was typed to the call of the same name and prints the result as a
table, as JSON or as a picture. Checking input is the callee's job, so Python and the shell give the same
answers and the same errors.

Other rooms add commands through the entry-point group `planner.commands`. They are looked up only when a
command is asked for that is not built in, or for the list in `--help`: planning must start in a blink.
"""

from __future__ import annotations

import difflib
import json
import os
import shlex
from collections.abc import Callable, Iterable
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click

import planner.hardware as hardware
import planner.plans as plans
from planner.calibration import Calibration, shipped_names
from planner.inputs import MENTION, InvalidInput, Limits
from planner.options import HARDWARE, LIMITS, MONEY, OPTIONS, RECIPE, TOTAL

# -- what every sub-command shares: lazy loading, one-sentence errors, JSON output


class BadInput(click.ClickException):
    """Bad input on the command line: one sentence, exit code 2."""

    exit_code = 2


def did_you_mean(typed: str, known: Iterable[str]) -> str:
    """What of all that is known looks most like what was typed, as the end of a sentence."""
    found = difflib.get_close_matches(typed, list(known), n=1)
    return f"; did you mean {found[0]}?" if found else ""


def no_such_command(name: str, known: list[str]) -> BadInput:
    """A command that nobody knows: the one that was meant, if there is one, or all there are."""
    found = did_you_mean(name, known)
    return BadInput(f"No such command {name!r}" + (found or f"; commands are {', '.join(known)}."))


class Command(click.Command):
    """A command whose bad input is one sentence that names the options as they were typed, never a
    traceback.
    """

    extra: str | None = None  # the extra of the package that has what the command imports

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta[__name__] = {arg.partition("=")[0] for arg in args}
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            flags = [flag for option in self.params for flag in option.opts if flag.startswith("--")]
            found = did_you_mean(error.option_name, flags) or "; --help shows all there are."
            raise BadInput(f"No such option {error.option_name}{found}") from None
        except click.UsageError as error:
            raise BadInput(error.format_message()) from None

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except InvalidInput as error:
            raise BadInput(error.said(self.typed)) from None
        except ModuleNotFoundError as error:
            if self.extra is None:
                raise
            raise BadInput(
                f"{error.name} is not installed; pip install '.[{self.extra}]' would do."
            ) from None

    def typed(self, field: str) -> str:
        """What is typed in a shell for a field: `--max-params` for max_params, `--from` for start."""
        options = [option for option in self.params if isinstance(option, click.Option)]
        for option in options:
            if option.name == field:
                context = click.get_current_context(silent=True)
                typed = context.meta.get(__name__, ()) if context is not None else ()
                return max(option.opts, key=lambda name: (name in typed, name.startswith("--")))
        flag = f"--{field.replace('_', '-')}"
        return flag if any(flag in option.opts for option in options) else field


_MOVED = {  # what earlier releases called a command, and what does the same now
    "ui": "the page is part of the service now: `planner serve --open` shows it.",
}


class PlannerGroup(click.Group):
    """Built-in commands, and those that other packages add."""

    command_class = Command

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*super().list_commands(ctx), *sorted(set(_added()) - set(self.commands))]

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        built_in = super().get_command(ctx, name)
        if built_in is not None:
            return built_in
        entry = _added().get(name)
        if entry is None:
            return None
        hidden_by = _hiding(entry.module)  # asked first, so that a file of the user's is named and not run
        if hidden_by is not None:
            why = f"is hidden by {hidden_by}, which Python finds before the package of that name"
            return _unavailable(name, f"{why}; rename that file, or work in another folder.")
        try:
            command: click.Command = entry.load()
        except ImportError as error:
            extra = {"serve": "web", "evaluate": "eval"}.get(name, "train")
            why = f"needs {error.name or error}, which is not installed"
            return _unavailable(name, f"{why}; `pip install '.[{extra}]'` has it.")
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] in _MOVED:  # whatever it is given
            raise BadInput(_MOVED[args[0]])
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError:
            raise no_such_command(args[0], self.list_commands(ctx)) from None


def _added() -> dict[str, Any]:
    return {entry.name: entry for entry in entry_points(group="planner.commands")}


def _hiding(module: str) -> str | None:
    """The file that Python takes for the package of a module, or for one that it is built on, although it is
    not ours: a `trainer.py` in the folder where it was started, say.
    """
    rooms = ("planner", "trainer", "calibration")  # each is built on those before it
    package = module.partition(".")[0]
    for room in rooms[: rooms.index(package) + 1] if package in rooms else ():
        found = find_spec(room)
        ours = Path(__file__).resolve().parents[1] / room
        if found is not None and found.origin and Path(found.origin).resolve().parent != ours:
            return found.origin
    return None


def _unavailable(name: str, reason: str) -> click.Command:
    """A command that cannot be imported still shows up, and says why."""

    @click.command(name, help=f"Not available: {reason}", context_settings={"ignore_unknown_options": True})
    @click.argument("ignored", nargs=-1, type=click.UNPROCESSED)
    def unavailable(ignored: tuple[str, ...]) -> None:
        raise BadInput(f"`planner {name}` {reason}")

    return unavailable


Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def option(names: str, text: str, metavar: str | None = None, **how: Any) -> Decorator:
    """An option by its names, what it is and what its value is called; its default is shown."""
    how = {"show_default": "default" in how, **how}
    return click.option(*names.split(), metavar=metavar, help=text, **how)


json_option = option("--json as_json", "Print the result as JSON.", is_flag=True)


# -- the commands


def _options(*names: str, **changes: Any) -> Decorator:
    """Options that Python and the page have too, in words that all share; `changes` are this command's."""

    def add(command: Callable[..., Any]) -> Callable[..., Any]:
        for name in reversed(names):
            known = OPTIONS[name]
            words: dict[str, Any] = {"text": MENTION.sub(lambda mention: _flag(mention[1]), known.help)}
            if known.default:
                words["text"] += f"  [default: {known.default}]"
            if known.choices:
                words["type"] = click.Choice(known.choices)
            if known.is_flag:
                words |= {"is_flag": True, "default": None}
            words |= {"metavar": known.metavar or None, **changes}
            flags = dict.fromkeys([_flag(name), *(f"--{other.replace('_', '-')}" for other in known.also)])
            command = option(f"{' '.join(flags)} {name}", **words)(command)
        return command

    return add


def _flag(name: str) -> str:
    return OPTIONS[name].flag or f"--{name.replace('_', '-')}"


def _given(options: dict[str, Any]) -> dict[str, Any]:
    """Those options that were given; the others are left to the call."""
    return {name: value for name, value in options.items() if value is not None}


def _picture_file(ctx: click.Context, option: click.Parameter, path: str | None) -> str | None:
    """A picture that cannot be written is refused before anything is computed."""
    if path is None:
        return None
    name, folder = option.opts[0], os.path.dirname(path) or "."
    if os.path.splitext(path)[1].lower() not in (".png", ".svg", ".pdf"):
        raise BadInput(f"{name} must name a .png, .svg or .pdf file; got {path!r}.")
    if not os.path.isdir(folder) or not os.access(folder, os.W_OK) or os.path.isdir(path):
        raise BadInput(f"{name} cannot be written: {path!r} is not a file in an existing, writable folder.")
    return path


_PRESETS = ", ".join(hardware.STUDY_SHAPES + hardware.VALIDATION_SHAPES)


def _corpus(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options that say how much text there is."""
    return _options("ud", required=True)(_options("bytes_per_token")(command))


_PLOT = option(
    "--plot", "Also draw the picture to FILE (.png, .svg or .pdf).", "FILE", callback=_picture_file
)


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


def _command(text: str, *examples: str) -> Decorator:
    """A command of `planner`: what it does in a sentence, and examples of it."""
    lines = "\n".join(f"  {line}" for line in examples)
    return planner.command(short_help=text, help=f"{text}\n\n\b\nExample:\n{lines}")


@_command(
    "The best model size, epochs and weight decay for your data and compute, and why.",
    "planner plan --ud 250M --flops 5e18",
    "planner plan --tokens 433MB --gpu 8xH100 --hours 3",
    "planner plan --ud 250M --gpu H100 --budget '$500' --params 556M",
    "planner plan --ud 1B --target-loss 3.0",
    "planner plan --ud 250M --flops 5e20 --serve-tokens 1T",
    "planner plan --ud 250M --gpu H100 --budget-usd 2000 --data-price 2e-6",
    "planner plan --calibration my.json --ud 1M --flops 1e14 --members auto",
)
@_corpus
@_options("also", "flops", "target_loss", *HARDWARE, *MONEY, *TOTAL)
@_options(
    "weight_decay", *RECIPE, "law", "calibration", "params", *LIMITS, "extrapolate", "tolerance", "vocab_size"
)
@_options("finetune")
@option("--why", "All that is known of the plan: reasons, breakdown, what other laws say.", is_flag=True)
@option(
    "--run", "Also write the run for `planner train`, or the study of all members, to FILE (.toml).", "FILE"
)
@option(
    "--plot-weight-decay",
    "Also draw loss against weight decay to FILE, for a calibration with a weight-decay law.",
    "FILE",
    callback=_picture_file,
)
@option(
    "--export",
    "Also write what hf (transformers), torchtitan or litgpt need to train the plan, into DIR.",
    "WHAT DIR",
    nargs=2,
)
@json_option
@_PLOT
def plan(
    why: bool,
    run: str | None,
    export: tuple[str, str] | None,
    as_json: bool,
    plot: str | None,
    plot_weight_decay: str | None,
    **options: Any,
) -> None:
    if run is not None and not run.endswith(".toml"):
        raise BadInput(f"--run must name a .toml file; got {run!r}.")
    result = plans.plan(**_given(options))
    written = []
    if run is not None:
        several = result.members is not None and result.members.count > 1
        _write(Path(run), result.study_config() if several else result.run_config(), keep="--run")
        text = f"Run written to {run}: give it your corpus and tokenizer."
        if several:
            text = f"Study of all members written to {run}: give it your corpus and tokenizer, then "
            text += f"`{shlex.join(['planner', 'calibrate', 'ensemble', run])}` trains and distils them."
        written.append(text)
    if export is not None:
        what, folder = export
        for name, text in result.export(what).items():
            _write(Path(folder) / name, text, make_folder=True, keep="--export")
        written.append(f"Written for {what} into {folder}: README.md says how to start it, and what differs.")
    _print(result.model_dump_json, lambda show: show.plan(result, why), as_json)
    if not as_json:
        click.echo("".join(f"{line}\n" for line in written), nl=False)
    _draw(lambda plots: plots.isoflop(result, options["calibration"]), plot, as_json)
    _draw(lambda plots: plots.weight_decays(result, options["calibration"]), plot_weight_decay, as_json)


@_command(
    "What each law recommends for one budget, and what following it would cost.",
    "planner compare --ud 500M --flops 1e19 --weight-decay 0.1",
)
@_corpus
@_options("flops", *HARDWARE, "weight_decay", "calibration", "params", *LIMITS)
@json_option
@_PLOT
def compare(flops: str | None, as_json: bool, plot: str | None, **options: Any) -> None:
    gpu, gpus, hours, mfu = (options.pop(name) for name in HARDWARE)
    if flops is not None and gpu is not None:
        raise InvalidInput("goes with ‹hours› here; with ‹flops› it has no effect.", field="gpu")
    budget = hardware.training_compute(flops, hours, used=hardware.machines(gpu, gpus, mfu))
    result = plans.compare(flops=budget, **_given(options))
    _print(result.model_dump_json, lambda show: show.comparison(result), as_json)
    _draw(lambda _: result.plot(options["calibration"]), plot, as_json)


@_command(
    "The best plan along a range of compute; with --plot, size against epochs for each law.",
    "planner frontier --ud 250M --from 1e17 --to 1e20 --points 13",
    "planner frontier --ud 250M --single-epoch --plot premium.png",
    "planner frontier --calibration my.json --ud 1M --points 9 --members auto",
)
@_corpus
@option("--from start", "Smallest compute.  [default: where the corpus is used once]", "FLOPS")
@option("--to stop", "Largest compute.  [default: 10,000 times that]", "FLOPS")
@option("--points", "How many budgets, evenly spaced on a log scale.", "N", default="25")
@option("--single-epoch", "Fresh data only: at most one epoch, with as much data as it takes.", is_flag=True)
@_options("weight_decay", "law", "calibration", "members", "params", *LIMITS, "extrapolate")
@json_option
@_PLOT
def frontier(as_json: bool, plot: str | None, **options: Any) -> None:
    result = plans.frontier_range(**_given(options))
    _print(lambda: json.dumps(result.to_dict()), lambda show: show.frontier(result), as_json)

    def picture(plots: Any) -> Any:
        span = (float(result.flops[0]), float(result.flops[-1]))
        where = options["calibration"], options["weight_decay"]
        if options["single_epoch"]:
            return plots.single_epoch_frontiers(*span, *where)
        limits = Limits.of(**_given({name: options[name] for name in ("params", *LIMITS)}))
        return plots.allocation_frontier(
            float(result.ud[0]), *where, law=options["law"], span=span, limits=limits
        )

    _draw(picture, plot, as_json)


@_command("The compute above which stronger weight decay wins (C×).", "planner crossover --ud 250M")
@_corpus
@option(
    "--weight-decays",
    "Which two settings.  [default: the weakest and the strongest calibrated]",
    "λ λ",
    nargs=2,
)
@_options("law", "calibration", "params", *LIMITS)
@json_option
@_PLOT
def crossover(as_json: bool, plot: str | None, **options: Any) -> None:
    result = plans.crossover(**_given(options))
    _print(result.model_dump_json, lambda show: show.crossover(result), as_json)
    _draw(lambda _: result.plot(options["calibration"]), plot, as_json)


@_command(
    "The loss that a law expects from one configuration, term by term.",
    "planner predict --params 500M --ud 250M --epochs 8 --weight-decay 0.1",
    "planner predict --calibration my.json --params 200k --ud 65536 --epochs 8 --members 4",
)
@option("--params", "Model size with embeddings: 500M.", "N", required=True)
@_corpus
@option("--epochs", "Passes over the unique tokens; fractions are fine.", "E", default="1")
@_options("weight_decay", *RECIPE, "law", "calibration")
@_options("members", text="Models whose probabilities are averaged.  [default: 1]", metavar="K")
@json_option
@_PLOT
def predict(as_json: bool, plot: str | None, **options: Any) -> None:
    result = plans.predict(**_given(options))
    _print(result.model_dump_json, lambda show: show.prediction(result), as_json)
    _draw(lambda plots: plots.loss_terms(result, options["calibration"]), plot, as_json)


@_command(
    "The calibrations that ship with the package, or all coefficients of one.",
    "planner laws",
    "planner laws c4-gpt2",
)
@click.argument("calibration", required=False)
@json_option
def laws(calibration: str | None, as_json: bool) -> None:
    shown = [Calibration.load(name) for name in ([calibration] if calibration else shipped_names())]

    def as_text() -> str:
        # Draws are for machines that read the file itself.
        left_out = {"settings": {"__all__": {"draws"}}}
        return json.dumps([known.model_dump(mode="json", exclude=left_out) for known in shown])

    _print(as_text, lambda show: show.laws(shown, details=calibration is not None), as_json)


@_command(
    "Hours, money and memory for a compute budget; without one, the table of accelerators.",
    "planner cost --flops 5e18 --gpu H100 --gpus 8 --params 556M",
)
@_options("flops", *HARDWARE, *MONEY)
@option("--params", "Also estimate the training memory of a model of this size.", "N")
@_options("vocab_size", text="Its vocabulary size.", default=str(hardware.DEFAULT_VOCAB))
@option("--sequences", "Sequences trained at a time on one device.", "B", default="8")
@option("--sequence-length", "Tokens per sequence.", "T", default="512")
@json_option
def cost(
    params: str | None, vocab_size: str, sequences: str, sequence_length: str, as_json: bool, **budget: Any
) -> None:
    if params is None and not _given(budget):
        cards = [card._asdict() for card in hardware.ACCELERATORS.values()]
        _print(lambda: json.dumps(cards), lambda show: show.accelerators(), as_json)
        return
    amount = {name: budget.pop(name) for name in ("flops", "hours", "budget_usd")}
    used = hardware.machines(**budget)
    if used is None:
        raise InvalidInput(
            "is missing: name the accelerator, such as ‹gpu› H100 (`planner cost` lists them).", field="gpu"
        )
    flops = hardware.training_compute(**amount, used=used)
    architecture = None if params is None else hardware.shape_for(params, vocab_size)
    result = hardware.cost(flops, *used, architecture, sequences, sequence_length)
    _print(result.model_dump_json, lambda show: show.cost(result, architecture), as_json)


@_command(
    "A Llama-2 shape that can be built for a parameter count, or the paper's presets.",
    "planner shape 556M",
    "planner shape --preset 125M",
    "planner shape",
)
@click.argument("params", required=False)
@_options("vocab_size", text=f"Vocabulary size.  [default: {hardware.DEFAULT_VOCAB}]")
@option("--preset name", f"One of the paper's shapes: {_PRESETS}.", "NAME")
@json_option
def shape(params: str | None, vocab_size: str | None, name: str | None, as_json: bool) -> None:
    if params is not None and name is not None:
        raise BadInput("give either a parameter count or --preset, not both.")
    if vocab_size is not None and params is None:
        raise InvalidInput(
            "needs a parameter count, such as `planner shape 556M --vocab 50257`; presets have their own.",
            field="vocab_size",
        )
    if name is not None:
        found = [hardware.preset(name)]
    elif params is not None:
        found = [hardware.shape_for(params, vocab_size or hardware.DEFAULT_VOCAB)]
    else:
        found = list(hardware.presets().values())
    facts = [one.model_dump() for one in found]
    answer = facts if len(facts) > 1 else facts[0]
    _print(lambda: json.dumps(answer), lambda show: show.shapes(found), as_json)


# -- answers


def _print(as_text: Callable[[], str], words: Callable[[Any], None], as_json: bool) -> None:
    """The answer as JSON, or in words by the module that has them, which is only then loaded."""
    if as_json:
        click.echo(as_text())
    else:
        from planner.show import terminal

        words(terminal)


def _write(path: Path, text: str, *, make_folder: bool = False, keep: str = "") -> None:
    """A file that people edit: one that is there already and says something else is kept."""
    try:
        if keep and path.exists() and path.read_text(encoding="utf-8") != text:
            raise BadInput(f"{keep} would write over {str(path)!r}, which says something else; name another.")
        if make_folder:
            path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise BadInput(f"{str(path)!r} cannot be written: {error.strerror or error}.") from None


def _draw(picture: Callable[[Any], Any], path: str | None, quiet: bool) -> None:
    """The picture, where one was asked for; loading what draws it takes longer than planning."""
    if path is None:
        return
    from planner.show import plots

    try:
        picture(plots).savefig(path)
    except OSError as error:
        raise BadInput(f"--plot cannot be written to {path!r}: {error.strerror or error}.") from None
    if not quiet:
        click.echo(f"Picture written to {path}.")
