"""Answers as readable text in a terminal: what each command prints, and below it paragraphs, facts, bullets
and the one style of table that all commands have.

Wrapped to the terminal's width and styled by click: loading a library for tables would cost more time than
planning.
"""

from __future__ import annotations

import contextlib
import io
import math
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable, Sequence
from itertools import zip_longest
from typing import Any

import click
import numpy as np

from planner.calibration import Calibration, Setting
from planner.evidence import LEVEL
from planner.explain import (
    WEIGHTIEST,
    cautions,
    is_sharp,
    nats_per_token,
    stops_at,
    summary,
    weight_decay_in_words,
)
from planner.hardware import ACCELERATORS, Architecture, Cost
from planner.inputs import (
    dollars,
    duration,
    epochs,
    figure,
    perplexity,
    scientific,
    short,
    signed,
    size,
)
from planner.laws import BASE_FORM, BASE_PARAMETERS
from planner.results import (
    Alternative,
    Comparison,
    Crossover,
    Frontier,
    Interval,
    Plan,
    Predicted,
    Prediction,
    PredictiveUncertainty,
)
from planner.uncertainty import FAR

Facts = list[tuple[str, str]]  # what there is to say of each name


def as_text(answer: Any, **how: Any) -> str:
    """An answer as the command line prints it."""
    writers: dict[type, Callable[..., None]] = {
        Plan: plan,
        Comparison: comparison,
        Crossover: crossover,
        Prediction: prediction,
        Frontier: frontier,
    }
    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        writers[type(answer)](answer, **how)
    return text.getvalue().rstrip("\n")


_MOST_LINES = 20  # of a plan without its reasons, in a terminal of 100 columns
_MORE = "More: --why, --plot FILE, --run run.toml; your own runs: planner calibrate fit"


def plan(p: Plan, why: bool = False) -> None:
    """The answer in a few lines or, with `why`, all that is known of it."""
    print_paragraph(p.verdict, bold=True)
    print_paragraph(p.budget)
    click.echo()
    if not why:
        rows, warnings = _rows_and_cautions(p)
        print_facts("", rows)
        print_bullets("Careful", warnings, colour="yellow")
        print_paragraph(_MORE, dim=True)
        return
    facts = [*_choice(p), *_run(p), *_advice_with_intervals(p), ("how sure", how_sure(p))]
    title = f"{short(p.ud)} unique tokens, {scientific(p.flops)} FLOPs"
    print_facts(title, facts, f"{p.law} of {p.calibration}")
    print_bullets("Why, and what else to know", p.reasons)
    print_bullets("Careful", p.warnings, colour="yellow")
    if p.other_laws:
        click.echo()
        title = f"What other laws would recommend, and the loss {p.law} expects from that"
        _alternatives(title, p.other_laws, p.uniform_loss)


_GIVE_WAY = ("recipe", "model", "as good")  # in this order


def _rows_and_cautions(p: Plan) -> tuple[Facts, list[str]]:
    """The rows of a plan and what to be careful about, in as many lines as there are: rows give way to those
    warnings that weigh most, at least to one.
    """
    warnings, first = cautions(p), sum(_lines(text) for text in (p.verdict, p.budget))
    weightiest = max(sum(one.code in WEIGHTIEST for one in p.warnings), 1)
    brief = summary(p, brief=True)
    fewer = [[row for row in brief if row[0] not in _GIVE_WAY[:k]] for k in range(len(_GIVE_WAY) + 1)]
    for rows in (summary(p), *fewer):
        pad = " " * _column(rows)
        room = _MOST_LINES - first - sum(_lines(text, pad) for _, text in rows) - 4
        shown = _that_fit(warnings, room)
        if shown[:weightiest] == warnings[:weightiest]:
            break
    return rows, shown


def _that_fit(warnings: Sequence[str], room: int) -> list[str]:
    """As many warnings as there is room for, and that there are more."""
    lines = [_lines(text, "    ") for text in warnings]
    if sum(lines) <= room:
        return list(warnings)
    few = [text for k, text in enumerate(warnings) if sum(lines[: k + 1]) <= room - 1]
    return [*few, f"{len(warnings) - len(few)} more with --why."]


def _choice(p: Plan) -> Facts:
    """What to train and what comes of it."""
    facts: Facts = []
    within = p.intervals or {}
    if (best := stops_at(p)) is not None:
        lower = f"{scientific(best.flops)} FLOPs for a lower loss ({best.loss:.4f})"
        facts.append(("spend only", f"{lower}; with all of it, the best is:"))
    tokens = f"{short(p.tokens)} ({short(p.unique_tokens)} unique)"
    facts += [
        ("model size", f"{short(p.params)} parameters{_between(within.get('params'), short)}"),
        ("epochs", f"{_epochs(p.epochs)}{_between(within.get('epochs'), _epochs)}"),
        ("weight decay", weight_decay_in_words(p)),
        ("training tokens", f"{tokens}{_between(within.get('tokens'), short)}"),
    ]
    members = 1 if p.members is None else p.members.count
    only_training = members == 1 and p.serving is None and p.purchase is None
    if p.spent_flops < 0.995 * p.flops and only_training:
        facts.append(("compute", f"{scientific(p.spent_flops)} FLOPs of {scientific(p.flops)}"))
    facts += _loss_facts(p, members)
    if only_training:
        crossing = p.crossover_note
        if p.crossover_flops is not None:
            between = _between(within.get("crossover_flops"), scientific)
            crossing = f"{scientific(p.crossover_flops)} FLOPs{between}: {crossing}"
        facts.append(("crossover C×", crossing))
    return facts


def _run(p: Plan) -> Facts:
    """What the training takes: its total where more counts, its recipe, shape, cost and memory."""
    facts: Facts = []
    if p.serving is not None:
        money = "" if p.serving.total_usd is None else f", {dollars(p.serving.total_usd)}"
        facts.append(("in all", f"{scientific(p.serving.total_flops)} of {scientific(p.flops)} FLOPs{money}"))
    if p.recipe is not None:
        own, rate, batch = p.own_recipe, p.recipe.learning_rate, p.recipe.batch_tokens
        text = f"learning rate {rate:g}, batches of {batch:,} tokens"
        if own is not None and (own.learning_rate, own.batch_tokens) != (rate, batch):
            text = f"learning rate {own.learning_rate:g}, batches of {own.batch_tokens:,.0f} tokens"
            text += f" (calibrated: {rate:g}, {batch:,})"
        if p.cost is not None and p.cost.gpus > 1:
            each = (batch if own is None else own.batch_tokens) / p.cost.gpus
            text += f", {each:,.0f} a step for each of {p.cost.gpus} GPUs"
        facts.append(("recipe", "; ".join(filter(None, (text, p.recipe.optimizer)))))
    if p.architecture is not None:
        facts.append(("Llama-2 shape", p.architecture.describe()))
    if p.cost is not None:
        facts.append(("cost", _cost_line(p.cost)))
        if p.cost.memory is not None:
            facts.append(("memory", _memory_line(p.cost)))
    return facts


_FLAT = {"flat from", "flat to"}


def _advice_with_intervals(p: Plan) -> Facts:
    """The figures of the advice, each with its interval: the same figures as in the sentences. Draws are flat
    around optima of their own, which may be elsewhere than the plan: such a range says nothing of it.
    """
    within, turn, best, flat = p.intervals or {}, p.turning_point, p.loss_minimising_compute, p.flat_range
    turns = any(one.code == "repetition_turns" for one in p.reasons)
    figures: list[tuple[str, str, float | None, Callable[[float], str], str]] = [
        ("turning point", "turning_flops", turn.flops if turn and turns else None, scientific, " FLOPs"),
        ("loss-minimising", "loss_minimising_flops", best.flops if best else None, scientific, " FLOPs"),
        ("flat from", "flat_epochs_min", flat.epochs_min, _epochs, ""),
        ("flat to", "flat_epochs_max", flat.epochs_max, epochs, ""),
    ]
    missed = {
        name
        for name, key, value, _, _ in figures
        if value is not None and key in within and not within[key].low <= value <= within[key].high
    }
    return [
        (name, f"{show(value)}{unit}{_between(within[key], show)}")
        for name, key, value, show, unit in figures
        if value is not None and key in within and not (name.startswith("flat") and missed & _FLAT)
    ]


def _loss_facts(p: Predicted, members: int) -> Facts:
    """The predicted loss and what it is made up of, each figure with its interval where there is one."""
    within, sure = p.intervals or {}, p.predictive_uncertainty
    between, terms = _between(within.get("loss"), "{:.4f}".format), []
    if not between and sure is not None:
        between = f"   ({sure.level:.0%}: {sure.loss_low:.3f} to {sure.loss_high:.3f})"
    for name, value in vars(p.terms).items():
        ends = f" [{within[name].low:.3f}, {within[name].high:.3f}]" if name in within else ""
        terms.append(f"{name} {value:.3f}{ends}")
    facts = [
        ("predicted loss", f"{p.loss:.4f} {nats_per_token(p)}{between}"),
        ("perplexity", f"{_perplexity(p.perplexity)}{_between(within.get('perplexity'), _perplexity)}"),
        ("breakdown" if members == 1 else "one member", " + ".join(terms)),
    ]
    if members > 1:
        gain = sum(vars(p.terms).values()) - p.loss
        found: Any = p.members if isinstance(p, Plan) else getattr(p, "averaging", None)
        low, high = (found.gain_low, found.gain_high) if isinstance(p, Plan) else (found.low, found.high)
        doubt = "" if low is None else f" ({LEVEL:.0%}: {low:.2f} to {high:.2f}; {found.source})"
        facts.append(("members", f"{members}, averaged: {gain:.4f} less than one of them{doubt}"))
    return facts


def how_sure(p: Predicted) -> str:
    """How far off the law was on trainings that it had not seen, or may be where none were, and what that
    means for a plan.
    """
    sure = p.predictive_uncertainty
    if sure is None:
        return p.interval_note or ""
    tried = f"in {sure.runs} trainings that it had not seen"
    text = f"the law was off by {sure.error:.3f} nats for such models {tried}"
    if sure.beyond_evidence is not None:
        text = f"extrapolated error ±{sure.error:.2g} nats; {sure.beyond_evidence}"
    if not isinstance(sure, PredictiveUncertainty):
        return text
    flat, chance = sure.as_good, sure.weight_decay_probability
    if not is_sharp(flat):
        sizes = f"{short(flat.params_min)} to {short(flat.params_max)} parameters"
        passes = f"{_epochs(flat.epochs_min)} to {epochs(flat.epochs_max)}"
        text += f"; {passes} ({sizes}) are within the law's error"
    if chance is not None:
        text += f"; weight decay {p.weight_decay} is better with probability {chance:.0%}"
    return text


def comparison(c: Comparison) -> None:
    budget = f"{short(c.ud)} unique tokens, {scientific(c.flops)} FLOPs"
    title = f"{budget} ({c.calibration}; expected loss by {c.judge})"
    _alternatives(title, c.rows, c.uniform_loss, with_decay=True)
    for one in c.warnings:
        print_paragraph(one, 2)


def frontier(f: Frontier) -> None:
    header = ["FLOPs", "members", "params", "epochs", "tokens", "weight decay", "loss", "perplexity"]
    members = np.ones(len(f.flops)) if f.members is None else f.members
    refused = np.zeros(len(f.flops), bool) if f.refused is None else f.refused
    rows = []
    columns = (f.flops, members, f.params, f.epochs, f.tokens, f.weight_decay, f.loss, refused)
    for flops, count, params, passes, tokens, decay, loss, far in zip(*columns, strict=True):
        row = [f"{scientific(flops)}{'*' if far else ''}", *"-----", "no choice", "within limits"]
        if math.isfinite(loss):
            model = [f"{count:.0f}", short(params), _epochs(passes), short(tokens), str(decay)]
            likely = _perplexity(perplexity(loss)) if loss <= f.uniform_loss else "-"
            row[1:] = [*model, _loss(loss, f.uniform_loss), likely]
        rows.append(row)
    if f.members is None:
        header, *rows = ([row[0], *row[2:]] for row in (header, *rows))
    title = f"{short(f.ud[0])} unique tokens ({f.law} of {f.calibration})"
    print_table(header, rows, title=title, left=(), indent=2)
    if refused.any():
        print_paragraph(f"* more than {FAR:g} times outside of all runs behind {f.calibration}: no plan.", 2)


def crossover(c: Crossover) -> None:
    facts = [("crossover C×", scientific(c.crossover_flops, 4) + " FLOPs" if c.crossover_flops else "none")]
    if c.interval is not None:
        facts.append(("interval", f"{scientific(c.interval.low)} to {scientific(c.interval.high)} FLOPs"))
    if len(c.crossings) > 1:
        facts.append(("all crossings", ", ".join(scientific(flops, 4) for flops in c.crossings)))
    searched = f"{scientific(c.searched[0])} to {scientific(c.searched[1])} FLOPs"
    facts += [("in words", c.note), ("searched", searched)]
    title = f"Weight decay {c.weaker} against {c.stronger} at {short(c.ud)} unique tokens"
    print_facts(title, facts, f"{c.law} of {c.calibration}")
    print_bullets("Careful", c.warnings, colour="yellow")


def prediction(p: Prediction) -> None:
    facts = [
        *_loss_facts(p, p.members or 1),
        ("weight decay", weight_decay_in_words(p)),
        ("training tokens", short(p.tokens)),
        ("compute", f"{scientific(p.flops)} FLOPs"),
        *([("how sure", sure)] if (sure := how_sure(p)) else []),
    ]
    title = f"{short(p.params)} parameters, {short(p.ud)} unique tokens, {epochs(p.epochs)}"
    print_facts(title, facts, f"{p.law} of {p.calibration}")
    print_bullets("Careful", p.warnings, colour="yellow")


def laws(calibrations: Sequence[Calibration], details: bool) -> None:
    for known in calibrations:
        print_paragraph(f"{known.name}: {known.title}", bold=True)
        print_paragraph(known.source, indent=2, dim=True)
        if known.weight_decay_law is not None:  # the settings are one law, read at some weight decays
            low, high = known.weight_decay_law.weight_decays
            _setting(known.settings[0], known.default_law, f"{low:g} to {high:g}")
        for setting in known.settings if known.weight_decay_law is None else ():
            _setting(setting, known.default_law, f"{setting.weight_decay}")
            if details:
                _spreads(setting)
        click.echo()
    base = f"the base law ({', '.join(BASE_PARAMETERS)}) is shown once, with {BASE_FORM}"
    print_paragraph(f"* the calibration's default law; {base}", dim=True)


def _setting(setting: Setting, default_law: str, weight_decay: str) -> None:
    """The laws at one weight decay, or at all of a range, and what they were fitted on."""
    fitted = setting.fitted_on
    sizes, tokens = ("-".join(short(x) for x in pair) for pair in (fitted.params, fitted.unique_tokens))
    runs = f"{fitted.runs} runs, " if fitted.runs else ""
    sure = "with draws for intervals" if setting.draws else "no uncertainty published"
    text = f"{runs}{sizes} params, {tokens} unique tokens, up to {epochs(fitted.epochs[1])}, {sure}"
    print_paragraph(f"weight decay {weight_decay}: {text}", indent=2)
    rows = []
    for form, law in setting.laws.items():
        metrics = (("R²", "r2"), ("multi", "r2_multi"), ("Huber", "huber"))
        known = [(name, law.metrics.get(key)) for name, key in metrics]
        figures = ", ".join(f"{name} {value:.4g}" for name, value in known if value is not None)
        shown_once = form != BASE_FORM and BASE_FORM in setting.laws
        hidden = {"timescale_tokens", *(BASE_PARAMETERS if shown_once else ())}
        own = ", ".join(f"{name} {value:.5g}" for name, value in law.parameters.items() if name not in hidden)
        rows.append((form + (" *" if form == default_law else ""), f"{figures}; {own}" if figures else own))
    print_facts("", rows)


def _spreads(setting: Setting) -> None:
    spreads = [
        f"{form}: " + ", ".join(f"{name} ± {value:.3g}" for name, value in law.spread.items())
        for form, law in setting.laws.items()
        if law.spread
    ]
    if spreads:
        text = "published spread (MAD) of single parameters: " + "; ".join(spreads)
        print_paragraph(text, indent=4, dim=True)


def cost(c: Cost, architecture: Architecture | None) -> None:
    facts = [("cost", _cost_line(c)), ("price", f"${c.price_per_gpu_hour:,.2f} per GPU-hour")]
    if architecture is not None and c.memory is not None:
        facts += [("shape", architecture.describe()), ("memory", _memory_line(c))]
    print_facts(f"{scientific(c.flops)} FLOPs", facts)


def _cost_line(c: Cost) -> str:
    clock = f"{duration(c.hours * 3600)} on {c.gpus} x {c.gpu}"
    return f"{figure(c.gpu_hours)} GPU-hours, {clock} at {c.mfu:.0%} MFU, {dollars(c.usd)}"


def _memory_line(c: Cost) -> str:
    if (memory := c.memory) is None:
        return ""
    at_a_time = f"{memory.sequences} x {memory.sequence_length:,} tokens at a time, fp32 Adam"
    parts = f"{size(memory.total)} to train with {at_a_time} (activations {size(memory.activations)})"
    return f"{parts}: {c.fits(f'{c.gpu} ({size(memory.device_memory)})')}"


def accelerators() -> None:
    rows = [
        [name, f"{peak / 1e12:.0f}", f"{memory / 1e9:.0f}", f"{price:.2f}"]
        for name, peak, memory, price in ACCELERATORS.values()
    ]
    title = "Accelerators: dense bf16 peak, memory, indicative on-demand price"
    print_table(["name", "TFLOP/s", "GB", "USD per hour"], rows, title=title, indent=2)


def shapes(found: Iterable[Architecture]) -> None:
    header = ["preset", "d_model", "layers", "heads", "d_head", "d_ff", "vocab", "params", "non-embedding"]
    fields = ("d_model", "layers", "heads", "d_head", "d_ff", "vocab_size", "params", "non_embedding_params")
    rows = [[a.preset or "-", *(f"{getattr(a, field):,}" for field in fields)] for a in found]
    print_table(header, rows, indent=2)


WORSE_THAN_UNIFORM = "worse than uniform"  # what a loss is called that no law means


def _alternatives(title: str, rows: Sequence[Alternative], uniform: float, with_decay: bool = False) -> None:
    named_by = 2 if with_decay else 1  # columns
    model = ["params", "epochs", "tokens", "FLOPs"]
    header = [*["law", "λ"][:named_by], *model, "predicts", "expected", "regret"]
    body = []
    for r in rows:
        losses = [_loss(loss, uniform) for loss in (r.predicted_loss, r.expected_loss)]
        losses.append("-" if r.expected_loss > uniform else signed(r.regret, 4))
        figures = [short(r.params), _epochs(r.epochs), short(r.tokens), scientific(r.spent_flops)]
        body.append([*[r.law, str(r.weight_decay)][:named_by], *figures, *losses])
    print_table(header, body, title=title, indent=2)


def _loss(value: float, uniform: float) -> str:
    return f"{value:.4f}" if value <= uniform else WORSE_THAN_UNIFORM


def _epochs(value: float) -> str:
    return epochs(value).split()[0]


def _perplexity(value: float) -> str:
    return f"{value:.2f}" if value < 1e5 else f"{value:.3g}"


def _between(bounds: Interval | None, show: Callable[[float], str]) -> str:
    return "" if bounds is None else f"   (95%: {show(bounds.low)} to {show(bounds.high)})"


# -- paragraphs, facts, bullets, tables

_PIPE = 160  # columns where nobody is looking: room enough that no table is folded without need
_USUAL = 80
_READABLE = 16  # columns of a cell with several words
_BESIDE = 30  # columns that text needs next to a label; with fewer it stands below
_WHOLE_WORDS: dict[str, Any] = {"break_on_hyphens": False, "break_long_words": False}


def print_paragraph(text: str, indent: int = 0, *, bold: bool = False, dim: bool = False) -> None:
    pad = " " * indent
    click.secho(_filled(text, pad, pad), bold=bold, dim=dim)


def print_facts(title: str, rows: Sequence[tuple[str, str]], source: str = "") -> None:
    """Names in one column, what there is to say of each in another; below them where that is too narrow."""
    if title:
        click.secho(_filled(f"{title}  ({source})" if source else title, "", "  "), bold=True)
    column = _column(rows)
    beside = _width() - column >= _BESIDE
    pad = " " * (column if beside else 4)
    for name, text in rows:
        said = _filled(text, pad, pad)
        click.secho(f"  {name}".ljust(len(pad) if beside else 0), fg="cyan", nl=not beside)
        click.echo(said.removeprefix(pad) if beside else said)


def _column(rows: Sequence[tuple[str, str]]) -> int:
    """Where what there is to say of names begins."""
    return max(len(name) for name, _ in rows) + 4


def _lines(text: str, pad: str = "") -> int:
    """In a terminal of 100 columns: what is shown does not depend on its width."""
    wrapped = textwrap.wrap(text, 100, initial_indent=pad, subsequent_indent=pad, **_WHOLE_WORDS)
    return len(wrapped)


def print_bullets(title: str, lines: Sequence[str], colour: str | None = None) -> None:
    if not lines:
        return
    click.echo()
    click.secho(_filled(title, "", ""), bold=True, fg=colour)
    for line in lines:
        click.echo(_filled(line, "  - ", "    "))


def print_table(
    header: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    title: str = "",
    left: Sequence[int] = (0,),
    indent: int = 0,
) -> None:
    """Columns of text: those in `left` to the left, the others to the right.

    Where there is no room, they stand closer and their cells are wrapped at spaces, those of the widest
    column first; where whole words leave no room, each row is a sentence.
    """
    body = [list(row) for row in rows]
    if title:
        print_paragraph(title, bold=True)
    columns = list(zip(header, *body, strict=True))
    widths, gap = [max(map(len, column)) for column in columns], "  "
    if indent + sum(widths) + 2 * (len(widths) - 1) > _room():
        indent, gap, widths = 0, " ", _narrowed(columns, widths, _room() - (len(widths) - 1))
    if not widths:
        for row in body:
            named = ", ".join(f"{name} {cell}" for name, cell in zip(header, row, strict=True) if cell)
            click.echo(_filled(named, "  ", "    "))
        return
    for place, texts in enumerate([header, *body]):
        lines = []
        for cells in zip_longest(*map(_wrapped, texts, widths), fillvalue=""):
            padded = (
                cell.ljust(width) if column in left else cell.rjust(width)
                for column, (cell, width) in enumerate(zip(cells, widths, strict=True))
            )
            lines.append((" " * indent + gap.join(padded)).rstrip())
        click.secho("\n".join(lines), dim=place == 0)


def _narrowed(columns: Sequence[Sequence[str]], widths: list[int], room: int) -> list[int]:
    """Widths that fit together, the one with most to give narrowed first; none where they cannot: words stay
    whole, and long texts readable.
    """
    words = [max(len(word) for cell in column for word in cell.split() or [""]) for column in columns]
    least = [max(word, min(width, _READABLE)) for word, width in zip(words, widths, strict=True)]
    while sum(widths) > room >= sum(least):
        slack = [width - low for width, low in zip(widths, least, strict=True)]
        widths[slack.index(max(slack))] -= 1
    return widths if sum(widths) <= room else []


def _room() -> int:
    """For a table: the terminal's width, or a narrow one that is asked for (`COLUMNS`)."""
    columns = shutil.get_terminal_size((_USUAL, 24)).columns
    return columns if sys.stdout.isatty() or columns < _USUAL else _PIPE


def _width() -> int:
    """For text."""
    return min(max(shutil.get_terminal_size((_USUAL, 24)).columns, 20), 110)


def _filled(text: str, first: str, others: str) -> str:
    lines = textwrap.wrap(text, _width(), initial_indent=first, subsequent_indent=others, **_WHOLE_WORDS)
    return "\n".join(lines)


def _wrapped(text: str, width: int) -> list[str]:
    return [text] if len(text) <= width else textwrap.wrap(text, width, **_WHOLE_WORDS)
