"""From the visitor's choices to the answer: the `plan()` of Python and shell, and how to call it there."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import Any

from calibration.ui.state import IN_HOURS, WHOLE, Choices
from planner import units
from planner.api import plan
from planner.calibration_files import DEFAULT_CALIBRATION, Calibration, Setting, shipped_names
from planner.costs import DEFAULT_MFU, cost, flops_from_gpus
from planner.results import Plan

TOKENIZER_SIZE = 32_000  # of the tokenizer that a training config asks for where the visitor has none yet


@dataclass(frozen=True)
class Answer:
    """A plan with its cost, and what it was made from."""

    choices: Choices
    calibration: Calibration
    plan: Plan
    complete: bool = True  # False: intervals are still to come


def answer(choices: Choices, known: Calibration, *, intervals: bool = True) -> Answer:
    """The plan for these choices. Without `intervals` those are left out, which is many times faster.

    Bad input raises InvalidInput, with the name that the page shows next to the field.
    """
    _check(choices)
    flops: Any = choices.flops
    if choices.compute == IN_HOURS:
        flops = flops_from_gpus(choices.gpu, choices.gpus, choices.hours, choices.mfu)
    used = known if intervals else _without_refits(known)
    made = plan(choices.ud, flops, calibration=used, **_limits(choices))
    bill = cost(made.flops, choices.gpu, choices.gpus, choices.mfu, choices.price or None, made.architecture)
    return Answer(choices, known, made.model_copy(update={"cost": bill}), intervals or used is known)


def _check(choices: Choices) -> None:
    """Each field by the name it has on the page, before the planner names them by those of its arguments."""
    units.count(choices.ud, "Unique tokens")
    if choices.compute == IN_HOURS:
        units.number(choices.hours, "Hours", examples="3")
    else:
        units.compute(choices.flops, "Compute")
    units.whole(choices.gpus, "Number of GPUs")
    units.fraction(choices.mfu, "MFU")
    for value, name in ((choices.min_params, "Smallest model"), (choices.max_params, "Largest model")):
        if value:
            units.count(value, name)
    if choices.max_epochs:
        units.number(choices.max_epochs, "Most epochs", examples="16")
    if choices.price:
        units.number(choices.price, "Price per GPU-hour", positive=False, examples="2.50")


def _limits(choices: Choices) -> dict[str, Any]:
    """The arguments of `plan` that differ from its defaults."""
    given = {
        name: getattr(choices, name)
        for name in ("weight_decay", "law", "min_params", "max_params", "max_epochs")
    }
    how = {name: value for name, value in given.items() if value}
    if choices.epochs != WHOLE:
        how["epochs"] = choices.epochs
    return how


def _without_refits(known: Calibration) -> Calibration:
    if all(setting.ensemble is None for setting in known.settings):
        return known
    # Built anew rather than copied: a copy would carry the laws of the refits along, which a setting caches.
    bare = [
        Setting.model_construct(
            weight_decay=s.weight_decay, fitted_on=s.fitted_on, laws=s.laws, ensemble=None, method=s.method
        )
        for s in known.settings
    ]
    return known.model_copy(update={"settings": tuple(bare)})


# -- the same elsewhere --------------------------------------------------------------------------------


def as_python(answer: Answer) -> str:
    """Python that returns the same plan."""
    c = answer.choices
    budget, imports = repr(c.flops), "plan"
    if c.compute == IN_HOURS:
        gpus, hours = f"{units.whole(c.gpus, 'gpus')}", f"{units.number(c.hours, 'hours'):g}"
        budget = (
            f"flops_from_gpus({c.gpu!r}, gpus={gpus}, hours={hours}, mfu={units.fraction(c.mfu, 'mfu'):g})"
        )
        imports = "flops_from_gpus, plan"
    arguments = [f"ud={c.ud!r}", f"flops={budget}"]
    arguments += [f"{name}={value!r}" for name, value in _limits(c).items()]
    if c.calibration != DEFAULT_CALIBRATION:
        arguments.append(f"calibration={_source(answer)!r}")
    return f"from planner import {imports}\n\np = plan({', '.join(arguments)})\n"


def as_command(answer: Answer) -> str:
    """A command line that prints the same plan, with its cost."""
    c = answer.choices
    words = ["planner", "plan", "--ud", c.ud]
    words += ["--hours", c.hours] if c.compute == IN_HOURS else ["--flops", c.flops]
    words += ["--gpu", c.gpu, "--gpus", c.gpus]
    if units.fraction(c.mfu, "mfu") != DEFAULT_MFU:
        words += ["--mfu", f"{units.fraction(c.mfu, 'mfu'):g}"]
    if c.price:
        words += ["--price", c.price]
    for name, value in _limits(c).items():
        words += [f"--{name.replace('_', '-')}", value]
    if c.calibration != DEFAULT_CALIBRATION:
        words += ["--calibration", _source(answer)]
    return shlex.join(words)


def as_training_config(answer: Answer) -> str:
    """A TOML file that `planner train` accepts. Corpus and tokenizer are the visitor's to fill in."""
    p = answer.plan
    budget = f"{units.short(p.ud)} unique tokens and {units.scientific(p.flops)} FLOPs"
    lines = [
        f"# Planned for {budget}: expected loss {p.loss:.4f} ({p.law}).",
        '# Without a corpus FineWeb is streamed; yours would be: corpus = { paths = ["texts/*.txt"] }',
    ]
    shape = p.architecture
    if shape is None:
        lines.append(f"params = {round(p.params)}")
        vocab = TOKENIZER_SIZE
    else:
        vocab = shape.vocab_size
        parts = (
            f"d_model = {shape.d_model}, layers = {shape.layers}, heads = {shape.heads}, d_ff = {shape.d_ff}"
        )
        lines += [f"shape = {{ {parts} }}", f"vocab_size = {vocab}"]
    size = min(TOKENIZER_SIZE, vocab)
    tokenizer = f"bpe:{size}" if size >= 257 else "bytes"
    lines += [
        f'tokenizer = "{tokenizer}"  # or the path of your tokenizer.json',
        f"unique_tokens = {round(p.unique_tokens)}",
        f"epochs = {max(p.epochs, 1.0):g}"
        if p.epochs == round(p.epochs) or p.epochs < 1
        else f"epochs = {p.epochs!r}",
        f"weight_decay = {p.weight_decay}",
    ]
    return "\n".join(lines) + "\n"


def _source(answer: Answer) -> str:
    """How the calibration is named outside of the page: a shipped name, or the file that was brought."""
    name = answer.choices.calibration
    return name if name in shipped_names() else file_name(answer.calibration)


def file_name(known: Calibration) -> str:
    """A calibration's name as that of a file, with nothing that a shell or a file system could mistake."""
    letters = (letter if letter.isalnum() or letter in "-_." else "-" for letter in known.name)
    safe = "".join(letters).strip("-.")[:60]
    return f"{safe or 'calibration'}.json"
