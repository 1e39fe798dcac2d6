"""From the visitor's choices to the answer: the `plan()` of Python and shell, and how to call it there."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

from calibration.web.state import DEFAULTS, IN_FLOPS, IN_HOURS, IN_LOSS, IN_MONEY, Choices
from planner import inputs
from planner.calibration import DEFAULT_CALIBRATION, Calibration, shipped_names
from planner.hardware import DEFAULT_MFU, Cost, cost, run_config
from planner.inputs import CEILING, WHOLE, InvalidInput, Limits
from planner.options import LIMITS
from planner.plans import plan
from planner.results import Plan

_NO_CORPUS = '# Without a corpus FineWeb is streamed; yours would be: corpus = { paths = ["texts/*.txt"] }'
_NUMBER = re.compile(r"(0|[1-9]\d*)(\.\d+)?(e\d+)?")  # that reads the same in Python
_HARDWARE = ("gpu", "gpus", "mfu", "price", "tflops", "memory")
_WIDER = ("members", "serve_tokens")  # what counts next to one training
TOKENIZER_SIZE = 32_000  # of the tokenizer that a training config asks for where the visitor has none yet


@dataclass(frozen=True)
class Answer:
    """A plan with its cost, and what it was made from."""

    choices: Choices
    calibration: Calibration
    plan: Plan
    cost: Cost  # on the accelerators that are asked about, or else on those that the page begins with
    complete: bool = True  # False: intervals are still to come
    pinned: Answer | None = None  # another plan, to hold this one against


def answer(choices: Choices, known: Calibration, *, intervals: bool = True) -> Answer:
    """The plan for these choices. Without `intervals` those are left out, which is many times faster.

    Bad input raises InvalidInput, whose fields the page calls by their labels.
    """
    used = known if intervals else without_draws(known)
    made = plan(choices.ud, calibration=used, **_budget(choices), **_given(choices))
    bill = made.cost
    if bill is None:
        bill = cost(made.spent_flops, choices.gpu, choices.gpus, choices.mfu, architecture=made.architecture)
    return Answer(choices, known, made, bill, intervals or used is known)


def limits(choices: Choices) -> Limits:
    """The limits that were chosen, as plans and curves are computed with."""
    given = _given(choices)
    return Limits.of(**{name: given[name] for name in ("params", *LIMITS) if name in given})


def _budget(choices: Choices) -> dict[str, Any]:
    """Compute, and hardware where that is asked about, as arguments of `plan`."""
    card = ("tflops", "memory") if choices.tflops or choices.memory else ("gpu",)
    given = {choices.compute: getattr(choices, choices.compute)}
    unusual = any(getattr(choices, name) != getattr(DEFAULTS, name) for name in _HARDWARE)
    if unusual or choices.compute in (IN_HOURS, IN_MONEY):
        hardware = {name: getattr(choices, name) for name in (*card, "gpus", "mfu", "price")}
        given |= {name: value for name, value in hardware.items() if value}
    return given


def _given(choices: Choices) -> dict[str, Any]:
    """The other arguments of `plan` that differ from its defaults."""
    given = {name: getattr(choices, name) for name in ("weight_decay", "law", "params", *LIMITS, *_WIDER)}
    return {name: value for name, value in given.items() if value and value not in (WHOLE, CEILING)}


def without_draws(known: Calibration) -> Calibration:
    """The same calibration without intervals, which is many times faster to plan with."""
    if all(setting.draws is None for setting in known.settings):
        return known
    return known.changed(settings=tuple(one.changed(draws=None) for one in known.settings))


def with_members(found: Answer) -> Plan | None:
    """The same question with as many models as are best; None where nobody can tell, or it was asked."""
    if found.calibration.members is None or found.choices.members:
        return None
    try:
        chosen = replace(found.choices, members="auto")
        return answer(chosen, found.calibration, intervals=False).plan
    except InvalidInput:  # of these inputs, such as a size that no ensemble was trained at
        return None


def question(answer: Answer) -> str:
    """What was asked, in one line."""
    c, p, on = answer.choices, answer.plan, answer.cost
    budget = {
        IN_FLOPS: f"{inputs.scientific(p.flops)} FLOPs",
        IN_HOURS: f"{c.hours} hours on {on.gpus} × {on.gpu}",
        IN_MONEY: f"${c.budget_usd} of {on.gpu}",
        IN_LOSS: f"loss {c.target_loss}",
    }
    return f"{inputs.short(p.ud)} unique tokens, {budget[c.compute]}"


# -- the same elsewhere --------------------------------------------------------------------------------


def as_python(answer: Answer) -> str:
    """Python that returns the same plan, with its cost."""
    written = {n: v if _NUMBER.fullmatch(v) else repr(v) for n, v in _arguments(answer).items()}
    arguments = (f"{name}={value}" for name, value in written.items())
    return f"from planner import plan\n\np = plan({', '.join(arguments)})\n"


def as_command(answer: Answer) -> str:
    """A command line that prints the same plan, with its cost."""
    options = ((f"--{name.replace('_', '-')}", value) for name, value in _arguments(answer).items())
    return shlex.join(["planner", "plan", *chain(*options)])


def _arguments(answer: Answer) -> dict[str, str]:
    """All arguments that matter, as they were typed."""
    c = answer.choices
    budget = _budget(c)
    if "mfu" in budget and inputs.fraction(c.mfu, "mfu") == DEFAULT_MFU:
        del budget["mfu"]
    given = {"ud": c.ud, **budget, **_given(c)}
    if c.calibration != DEFAULT_CALIBRATION:  # a shipped name, or the file that was brought
        brought = c.calibration not in shipped_names()
        given["calibration"] = file_name(answer.calibration) if brought else c.calibration
    return given


def as_training_config(answer: Answer) -> str:
    """A TOML file that `planner train` accepts, as `planner plan --run` writes it; where the calibration does
    not say its recipe, the trainer's own. Corpus and tokenizer are the visitor's to fill in.
    """
    p, shape = answer.plan, answer.plan.architecture
    if shape is None:
        return f"# No model of {inputs.short(p.params)} parameters can be built, so none can be trained.\n"
    # One of the visitor's own text, as large as the vocabulary allows.
    tokenizer = f"bpe:{min(TOKENIZER_SIZE, shape.vocab_size)}" if shape.vocab_size >= 257 else "bytes"
    return f"{_NO_CORPUS}\n{run_config(p, None, tokenizer, needs_recipe=False)}"


def file_name(known: Calibration) -> str:
    """A calibration's name as that of a file, with nothing that a shell or a file system could mistake."""
    letters = (letter if letter.isalnum() or letter in "-_." else "-" for letter in known.name)
    safe = "".join(letters).strip("-.")[:60]
    return f"{safe or 'calibration'}.json"
