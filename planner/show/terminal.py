"""Answers as readable text in a terminal: what each command prints, and below it paragraphs, facts, bullets
and the one style of table that all commands have.

Wrapped to the terminal's width and styled by click: loading a library for tables would cost more time than
planning.
"""

from __future__ import annotations

import contextlib
import io
import math
import os
import sys
import textwrap
from collections.abc import Callable, Iterable, Sequence
from itertools import zip_longest
from typing import Any

import click

from planner.calibration import Calibration, Recipe, Setting
from planner.explain import less_is_better, weight_decay_in_words
from planner.hardware import ACCELERATORS, Architecture, Cost
from planner.inputs import (
    CEILING,
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
    LossTerms,
    OwnRecipe,
    Plan,
    Prediction,
    PredictionError,
)
from planner.uncertainty import FAR


def as_text(answer: Any) -> str:
    """An answer as the command line prints it."""
    writers: dict[type, Callable[[Any], None]] = {
        Plan: plan,
        Comparison: comparison,
        Crossover: crossover,
        Prediction: prediction,
        Frontier: frontier,
    }
    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        writers[type(answer)](answer)
    return text.getvalue().rstrip("\n")


def _spend_only(p: Plan) -> list[tuple[str, str]]:
    """That less compute would do better, where all of it was to be spent."""
    best = p.loss_minimising_compute
    if best is None or p.spend == CEILING or not less_is_better(p):
        return []
    text = f"{scientific(best.flops)} FLOPs for a lower loss ({best.loss:.4f}); with all of it, the best is:"
    return [("spend only", text)]


def plan(p: Plan) -> None:
    within = p.intervals or {}
    print_paragraph(p.verdict, bold=True)
    click.echo()
    facts = _spend_only(p)
    facts += [
        ("model size", f"{short(p.params)} parameters{_between(within.get('params'), short)}"),
        ("epochs", f"{_epochs(p.epochs)}{_between(within.get('epochs'), _epochs)}"),
        ("weight decay", weight_decay_in_words(p)),
        (
            "training tokens",
            f"{short(p.tokens)} ({short(p.unique_tokens)} unique){_between(within.get('tokens'), short)}",
        ),
        ("predicted loss", f"{p.loss:.4f} nats per token{_loss_between(p, within.get('loss'))}"),
        ("perplexity", f"{_perplexity(p.perplexity)}{_between(within.get('perplexity'), _perplexity)}"),
        ("one member" if p.members and p.members.count > 1 else "breakdown", _terms(p.terms, within)),
    ]
    facts += _in_total(p) or [("crossover C×", _crossing(p, within.get("crossover_flops")))]
    if p.recipe is not None:
        facts.append(("recipe", _recipe(p.recipe, p.own_recipe)))
    if p.architecture is not None:
        facts.append(("Llama-2 shape", p.architecture.describe()))
    if p.cost is not None:
        facts.append(("cost", _cost_line(p.cost)))
        if p.cost.memory is not None:
            facts.append(("memory", _memory_line(p.cost)))
    if within:
        facts += _advice_with_intervals(p, within)
    if p.spent_flops < 0.995 * p.flops and p.serving is None and p.purchase is None:
        facts.insert(4, ("compute", f"{scientific(p.spent_flops)} FLOPs of {scientific(p.flops)}"))
    facts.append(("how sure", how_sure(p)))
    print_facts(
        f"{short(p.ud)} unique tokens, {scientific(p.flops)} FLOPs", facts, f"{p.law} of {p.calibration}"
    )
    print_bullets("Why, and what else to know", p.reasons)
    print_bullets("Careful", p.warnings, colour="yellow")
    if p.other_laws:
        click.echo()
        _alternatives(
            f"What other laws would recommend, and the loss {p.law} expects from that",
            p.other_laws,
            p.uniform_loss,
        )


def _in_total(p: Plan) -> list[tuple[str, str]]:
    """What counts next to one training: members, serving, data. Nothing where one training is all."""
    facts = []
    if p.members is not None and p.members.count > 1:
        several = p.members
        facts.append(
            (
                "members",
                f"{several.count}, averaged: {several.gain:.4f} less than one of them "
                f"({several.member_loss:.4f}); {size(several.weights_bytes)} of weights in bf16",
            )
        )
    if p.serving is not None:
        served, paid = p.serving, scientific(p.serving.total_flops)
        money = "" if served.total_usd is None else f", {dollars(served.total_usd)}"
        parts = f"training {scientific(served.training_flops)} + serving {scientific(served.flops)} FLOPs"
        both = f"{parts} for {short(served.tokens)} tokens"
        if served.rate != 1:
            both += f", which cost {served.rate:.3g} times as much"
        facts.append(("in all", f"{both}: {paid} of {scientific(p.flops)}{money}"))
    if p.purchase is not None:
        bought = p.purchase
        facts.append(
            (
                "data",
                f"{short(bought.owned)} unique tokens owned, {short(bought.bought)} bought, "
                f"{dollars(bought.usd)}; compute {dollars(bought.compute_usd)}",
            )
        )
    return facts


def _recipe(recipe: Recipe, own: OwnRecipe | None) -> str:
    """What the weight decay goes with: the learning rate and batch of the user, or of the calibration."""
    used = own or recipe
    text = f"learning rate {used.learning_rate:g}, batches of {used.batch_tokens:,.0f} tokens"
    if own is not None:
        text += f" (calibrated: {recipe.learning_rate:g}, {recipe.batch_tokens:,})"
    return "; ".join(filter(None, (text, recipe.optimizer)))


def _loss_between(p: Plan | Prediction, bounds: Interval | None) -> str:
    if bounds is None and p.predictive_uncertainty is not None:
        sure = p.predictive_uncertainty
        return f"   ({sure.level:.0%}: {sure.loss_low:.3f} to {sure.loss_high:.3f})"
    return _between(bounds, "{:.4f}".format)


def _law_error(sure: PredictionError) -> str:
    """How far off the law was on trainings that it had not seen, or may be where none were."""
    if sure.beyond_evidence is not None:
        return f"extrapolated error ±{sure.error:.2g} nats; {sure.beyond_evidence}"
    return (
        f"the law was off by {sure.error:.3f} nats for such models "
        f"in {sure.runs} trainings that it had not seen"
    )


def how_sure(p: Plan) -> str:
    """What the law's error on runs that it had not seen means, in a sentence or three."""
    sure = p.predictive_uncertainty
    if sure is None:
        return p.interval_note or ""
    flat = sure.as_good
    text = _law_error(sure)
    if not flat.sharp:
        sizes = f"{short(flat.params_min)} to {short(flat.params_max)} parameters"
        text += (
            f"; {_epochs(flat.epochs_min)} to {epochs(flat.epochs_max)} ({sizes}) are within the law's error"
        )
    if sure.weight_decay_probability is not None:
        text += (
            f"; weight decay {p.weight_decay} is better with probability {sure.weight_decay_probability:.0%}"
        )
    return text


def _advice_with_intervals(p: Plan, within: dict[str, Interval]) -> list[tuple[str, str]]:
    """The figures of the advice, each with its interval: the same figures as in the sentences."""
    figures: list[tuple[str, str, float | None, Callable[[float], str], str]] = [
        (
            "turning point",
            "turning_flops",
            p.turning_point.flops if p.turning_point else None,
            scientific,
            " FLOPs",
        ),
        (
            "loss-minimising",
            "loss_minimising_flops",
            p.loss_minimising_compute.flops if p.loss_minimising_compute else None,
            scientific,
            " FLOPs",
        ),
        ("flat from", "flat_epochs_min", p.flat_range.epochs_min, _epochs, ""),
        ("flat to", "flat_epochs_max", p.flat_range.epochs_max, epochs, ""),
    ]
    return [
        (name, f"{show(value)}{unit}{_between(within[key], show)}")
        for name, key, value, show, unit in figures
        if value is not None and key in within
    ]


def comparison(c: Comparison) -> None:
    budget = f"{short(c.ud)} unique tokens, {scientific(c.flops)} FLOPs"
    _alternatives(
        f"{budget} ({c.calibration}; expected loss by {c.judge})", c.rows, c.uniform_loss, with_decay=True
    )


def frontier(f: Frontier) -> None:
    rows = []
    for flops, params, passes, tokens, decay, loss in zip(
        f.flops, f.params, f.epochs, f.tokens, f.weight_decay, f.loss, strict=True
    ):
        if math.isfinite(loss):
            figures = [
                short(params),
                _epochs(passes),
                short(tokens),
                str(decay),
                _loss(loss, f.uniform_loss),
                _perplexity(perplexity(loss)) if loss <= f.uniform_loss else "-",
            ]
        else:
            figures = ["-", "-", "-", "-", "no choice", "within limits"]
        rows.append([scientific(flops), *figures])
    far = [] if f.refused is None else [row for row, too in zip(rows, f.refused, strict=True) if too]
    for row in far:
        row[0] += "*"
    header = ["FLOPs", "params", "epochs", "tokens", "weight decay", "loss", "perplexity"]
    if f.members is not None:
        header.insert(1, "members")
        for row, count in zip(rows, f.members, strict=True):
            row.insert(1, f"{count:.0f}" if math.isfinite(count) else "-")
    print_table(
        header, rows, title=f"{short(f.ud[0])} unique tokens ({f.law} of {f.calibration})", left=(), indent=2
    )
    if far:
        print_paragraph(f"* more than {FAR:g} times outside of all runs behind {f.calibration}: no plan.", 2)


def crossover(c: Crossover) -> None:
    facts = [("crossover C×", scientific(c.crossover_flops, 4) + " FLOPs" if c.crossover_flops else "none")]
    if c.interval is not None:
        facts.append(("interval", f"{scientific(c.interval.low)} to {scientific(c.interval.high)} FLOPs"))
    if len(c.crossings) > 1:
        facts.append(("all crossings", ", ".join(scientific(flops, 4) for flops in c.crossings)))
    facts += [
        ("in words", c.note),
        ("searched", f"{scientific(c.searched[0])} to {scientific(c.searched[1])} FLOPs"),
    ]
    title = f"Weight decay {c.weaker} against {c.stronger} at {short(c.ud)} unique tokens"
    print_facts(title, facts, f"{c.law} of {c.calibration}")
    print_bullets("Careful", c.warnings, colour="yellow")


def prediction(p: Prediction) -> None:
    within = p.intervals or {}
    facts = [
        ("predicted loss", f"{p.loss:.4f} nats per token{_loss_between(p, within.get('loss'))}"),
        ("perplexity", f"{_perplexity(p.perplexity)}{_between(within.get('perplexity'), _perplexity)}"),
        ("breakdown", _terms(p.terms, within)),
        ("weight decay", str(p.weight_decay)),
        ("training tokens", short(p.tokens)),
        ("compute", f"{scientific(p.flops)} FLOPs"),
        (
            "how sure",
            _law_error(p.predictive_uncertainty)
            if p.predictive_uncertainty is not None
            else p.interval_note or "",
        ),
    ]
    if p.members is not None and p.members > 1:
        gain = sum(vars(p.terms).values()) - p.loss
        facts.insert(3, ("members", f"{p.members}, averaged: {gain:.4f} less than one of them"))
    title = f"{short(p.params)} parameters, {short(p.ud)} unique tokens, {epochs(p.epochs)}"
    print_facts(title, facts, f"{p.law} of {p.calibration}")
    print_bullets("Careful", p.warnings, colour="yellow")


def laws(calibrations: Sequence[Calibration], details: bool) -> None:
    for known in calibrations:
        print_paragraph(f"{known.name}: {known.title}", bold=True)
        print_paragraph(known.source, indent=2, dim=True)
        for setting in known.settings:
            _setting(setting, known.default_law)
            if details:
                _spreads(setting)
        click.echo()
    base = ", ".join(BASE_PARAMETERS)
    print_paragraph(
        f"* the calibration's default law; the base law ({base}) is shown once, with {BASE_FORM}", dim=True
    )


def _setting(setting: Setting, default_law: str) -> None:
    """The laws at one weight decay, and what they were fitted on."""
    fitted = setting.fitted_on
    sizes, tokens = ("-".join(short(x) for x in pair) for pair in (fitted.params, fitted.unique_tokens))
    runs = f"{fitted.runs} runs, " if fitted.runs else ""
    sure = "with draws for intervals" if setting.draws else "no uncertainty published"
    text = f"{runs}{sizes} params, {tokens} unique tokens, up to {epochs(fitted.epochs[1])}, {sure}"
    print_paragraph(f"weight decay {setting.weight_decay}: {text}", indent=2)
    rows = []
    for form, law in setting.laws.items():
        metrics = (law.metrics.get(key) for key in ("r2", "r2_multi", "huber"))
        figures = ("" if metric is None else f"{metric:.4g}" for metric in metrics)
        star = " *" if form == default_law else ""
        rows.append([form + star, *figures, _parameters(law.parameters, form)])
    print_table(["law", "R²", "R² multi", "Huber", "parameters"], rows, left=(0, 4), indent=4)


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
    clock = f"{duration(c.hours * 3600)} on {c.gpus} x {c.gpu}"
    facts = [("GPU-hours", figure(c.gpu_hours)), ("wall clock", clock)]
    facts += [
        ("money", f"{dollars(c.usd)} at ${c.price_per_gpu_hour:,.2f} per GPU-hour"),
        ("MFU", f"{c.mfu:.0%}"),
    ]
    if architecture is not None and c.memory is not None:
        facts += [("shape", architecture.describe()), ("memory", _memory_line(c))]
    print_facts(f"{scientific(c.flops)} FLOPs", facts)


def accelerators() -> None:
    rows = [
        [
            card.name,
            f"{card.peak_flops / 1e12:.0f}",
            f"{card.memory_bytes / 1e9:.0f}",
            f"{card.price_per_hour:.2f}",
        ]
        for card in ACCELERATORS.values()
    ]
    title = "Accelerators: dense bf16 peak, memory, indicative on-demand price"
    print_table(["name", "TFLOP/s", "GB", "USD per hour"], rows, title=title, indent=2)


def shapes(found: Iterable[Architecture]) -> None:
    rows = []
    for a in found:
        figures = (
            a.d_model,
            a.layers,
            a.heads,
            a.d_head,
            a.d_ff,
            a.vocab_size,
            a.params,
            a.non_embedding_params,
        )
        rows.append([a.preset or "-", *(f"{value:,}" for value in figures)])
    header = ["preset", "d_model", "layers", "heads", "d_head", "d_ff", "vocab", "params", "non-embedding"]
    print_table(header, rows, indent=2)


# -- pieces
# -----------------------------------------------------------------------------------------------------


WORSE_THAN_UNIFORM = "worse than uniform"  # what a loss is called that no law means


def _alternatives(title: str, rows: Sequence[Alternative], uniform: float, with_decay: bool = False) -> None:
    header = [
        "law",
        *(["λ"] if with_decay else []),
        "params",
        "epochs",
        "tokens",
        "predicts",
        "expected",
        "regret",
    ]
    body = []
    for r in rows:
        decay = [str(r.weight_decay)] if with_decay else []
        losses = [_loss(loss, uniform) for loss in (r.predicted_loss, r.expected_loss)]
        losses.append("-" if r.expected_loss > uniform else signed(r.regret, 4))
        body.append([r.law, *decay, short(r.params), _epochs(r.epochs), short(r.tokens), *losses])
    print_table(header, body, title=title, indent=2)


def _loss(value: float, uniform: float) -> str:
    return f"{value:.4f}" if value <= uniform else WORSE_THAN_UNIFORM


def _parameters(parameters: dict[str, float], form: str) -> str:
    hidden = () if form == BASE_FORM else BASE_PARAMETERS
    return ", ".join(f"{name} {value:.5g}" for name, value in parameters.items() if name not in hidden)


def _epochs(value: float) -> str:
    return epochs(value).split()[0]


def _perplexity(value: float) -> str:
    return f"{value:.2f}" if value < 1e5 else f"{value:.3g}"


def _terms(terms: LossTerms, within: dict[str, Interval]) -> str:
    parts = ((name, getattr(terms, name)) for name in ("irreducible", "parameter", "data", "overfitting"))
    show = "{:.3f}".format
    return " + ".join(
        f"{name} {value:.3f}"
        + (f" [{show(within[name].low)}, {show(within[name].high)}]" if name in within else "")
        for name, value in parts
    )


def _between(bounds: Interval | None, show: Callable[[float], str]) -> str:
    return "" if bounds is None else f"   (95%: {show(bounds.low)} to {show(bounds.high)})"


def _crossing(p: Plan, bounds: Interval | None) -> str:
    if p.crossover_flops is None:
        return p.crossover_note
    return f"{scientific(p.crossover_flops)} FLOPs{_between(bounds, scientific)}: {p.crossover_note}"


def _cost_line(c: Cost) -> str:
    clock = f"{duration(c.hours * 3600)} on {c.gpus} x {c.gpu}"
    return f"{figure(c.gpu_hours)} GPU-hours, {clock} at {c.mfu:.0%} MFU, {dollars(c.usd)}"


def _memory_line(c: Cost) -> str:
    memory = c.memory
    if memory is None:
        return ""
    card = f"{c.gpu} ({size(memory.device_memory)})"
    parts = f"{size(memory.total)} to train (activations {size(memory.activations)})"
    return f"{parts}: {c.fits(card)}"


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
    if len(title) + len(source) + 4 <= _width():
        click.echo(click.style(title, bold=True) + click.style(f"  ({source})" if source else "", dim=True))
    else:
        print_paragraph(title, bold=True)
        print_paragraph(f"({source})" if source else "", 2, dim=True)
    column = max(len(name) for name, _ in rows) + 4
    beside = _width() - column >= _BESIDE
    for name, text in rows:
        label = click.style(f"  {name}".ljust(column if beside else 0), fg="cyan")
        first, *rest = _wrapped(text, _width() - (column if beside else 4))
        click.echo(f"{label}{first}" if beside else f"{label}\n    {first}")
        for line in rest:
            click.echo(" " * (column if beside else 4) + line)


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

    Where there is no room, they stand closer and their cells are wrapped at spaces; where that is not enough,
    each row is a sentence.
    """
    body = [list(row) for row in rows]
    if title:
        print_paragraph(title, bold=True)
    columns = list(zip(header, *body, strict=True))
    widths, gap = [max(map(len, column)) for column in columns], "  "
    if indent + sum(widths) + 2 * (len(widths) - 1) > _room():
        indent, gap = 0, " "
        widths = _shrunk(widths, list(map(_least, columns)), _room() - (len(widths) - 1))
    if not widths:
        _print_sentences(header, body)
        return

    def line(cells: Sequence[str]) -> str:
        padded = (
            cell.ljust(width) if i in left else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(cells, widths, strict=True))
        )
        return (" " * indent + gap.join(padded)).rstrip()

    for place, row in enumerate([header, *body]):
        wrapped = map(_wrapped, row, widths)
        text = "\n".join(map(line, zip_longest(*wrapped, fillvalue="")))
        click.secho(text, dim=place == 0)


def _least(column: Sequence[str]) -> int:
    """How narrow a column can be: its words stay whole, and long texts readable."""
    words = max(len(word) for cell in column for word in cell.split() or [""])
    return max(words, min(max(map(len, column)), _READABLE))


def _shrunk(widths: Sequence[int], least: Sequence[int], room: int) -> list[int]:
    """Columns that fit together, the one with most to give narrowed first; none where they cannot."""
    if sum(least) > room:
        return []
    found = list(widths)
    while sum(found) > room:
        slack = [width - low for width, low in zip(found, least, strict=True)]
        found[slack.index(max(slack))] -= 1
    return found


def _print_sentences(header: Sequence[str], body: Sequence[Sequence[str]]) -> None:
    """Each row of a table, with the names of its columns."""
    for row in body:
        named = ", ".join(f"{name} {cell}" for name, cell in zip(header, row, strict=True) if cell)
        click.echo(_filled(named, "  ", "    "))


def _room() -> int:
    """For a table: the terminal's width, or a narrow one that is asked for (`COLUMNS`)."""
    columns = _columns()
    return columns if sys.stdout.isatty() or columns < _USUAL else _PIPE


def _columns() -> int:
    """As `shutil.get_terminal_size` has it, which would load what unpacks archives."""
    asked = os.environ.get("COLUMNS", "")
    if asked.isdigit() and int(asked) > 0:
        return int(asked)
    try:
        return os.get_terminal_size(1).columns or _USUAL
    except OSError:
        return _USUAL


def _width() -> int:
    return min(max(_columns(), 20), 110)


def _filled(text: str, first: str, others: str) -> str:
    lines = textwrap.wrap(text, _width(), initial_indent=first, subsequent_indent=others, **_WHOLE_WORDS)
    return "\n".join(lines)


def _wrapped(text: str, width: int) -> list[str]:
    return [text] if len(text) <= width else textwrap.wrap(text, width, **_WHOLE_WORDS)
