"""Answers as readable text in a terminal.

What each command prints, made of the pieces in `terminal`.
"""

from __future__ import annotations

import contextlib
import io
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import click

from planner.calibration_files import Calibration, Recipe, Setting
from planner.costs import ACCELERATORS, Cost
from planner.evidence import FAR
from planner.frontiers import Frontier
from planner.laws import BASE_FORM, BASE_PARAMETERS
from planner.limits import CEILING
from planner.reasons import less_is_better, weight_decay_in_words
from planner.results import (
    Alternative,
    Comparison,
    Crossover,
    Interval,
    LossRange,
    LossTerms,
    OwnRecipe,
    Plan,
    Prediction,
)
from planner.shapes import Architecture
from planner.terminal import print_bullets, print_facts, print_paragraph, print_table
from planner.units import (
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
    best = p.spending_limit
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
        ("one member" if p.members and p.members.count > 1 else "made of", _terms(p.terms, within)),
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
            p.guessing_loss,
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
    if bounds is None and p.sureness is not None:
        sure = p.sureness
        return f"   ({sure.level:.0%}: {sure.loss_low:.3f} to {sure.loss_high:.3f})"
    return _between(bounds, "{:.4f}".format)


def _law_error(sure: LossRange) -> str:
    """How far off the law was on trainings that it had not seen, or may be where none were."""
    if sure.untried is not None:
        return f"extrapolated error ±{sure.error:.2g} nats; {sure.untried}"
    return (
        f"the law was off by {sure.error:.3f} nats for such models "
        f"in {sure.runs} trainings that it had not seen"
    )


def how_sure(p: Plan) -> str:
    """What the law's error on runs that it had not seen means, in a sentence or three."""
    sure = p.sureness
    if sure is None:
        return p.interval_note or ""
    flat = sure.as_good
    text = _law_error(sure)
    if not flat.sharp:
        sizes = f"{short(flat.params_min)} to {short(flat.params_max)} parameters"
        text += f"; {_epochs(flat.epochs_min)} to {epochs(flat.epochs_max)} ({sizes}) cannot be told apart"
    if sure.weight_decay_probability is not None:
        text += f"; weight decay {p.weight_decay} is the better one with {sure.weight_decay_probability:.0%}"
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
            "spending limit",
            "spending_limit_flops",
            p.spending_limit.flops if p.spending_limit else None,
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
        f"{budget} ({c.calibration}; expected loss by {c.judge})", c.rows, c.guessing_loss, with_decay=True
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
                _loss(loss, f.guessing_loss),
                _perplexity(perplexity(loss)) if loss <= f.guessing_loss else "-",
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
        ("made of", _terms(p.terms, within)),
        ("weight decay", str(p.weight_decay)),
        ("training tokens", short(p.tokens)),
        ("compute", f"{scientific(p.flops)} FLOPs"),
        ("how sure", _law_error(p.sureness) if p.sureness is not None else p.interval_note or ""),
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
    sure = "with draws for intervals" if setting.ensemble else "no uncertainty published"
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


ABOVE_GUESSING = "above guessing"  # what a loss is called that no law means


def _alternatives(title: str, rows: Sequence[Alternative], guessing: float, with_decay: bool = False) -> None:
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
        losses = [_loss(loss, guessing) for loss in (r.predicted_loss, r.expected_loss)]
        losses.append("-" if r.expected_loss > guessing else signed(r.regret, 4))
        body.append([r.law, *decay, short(r.params), _epochs(r.epochs), short(r.tokens), *losses])
    print_table(header, body, title=title, indent=2)


def _loss(value: float, guessing: float) -> str:
    return f"{value:.4f}" if value <= guessing else ABOVE_GUESSING


def _parameters(parameters: dict[str, float], form: str) -> str:
    hidden = () if form == BASE_FORM else BASE_PARAMETERS
    return ", ".join(f"{name} {value:.5g}" for name, value in parameters.items() if name not in hidden)


def _epochs(value: float) -> str:
    return epochs(value).split()[0]


def _perplexity(value: float) -> str:
    return f"{value:.2f}" if value < 1e5 else f"{value:.3g}"


def _terms(terms: LossTerms, within: dict[str, Interval]) -> str:
    parts = ((name, getattr(terms, name)) for name in ("floor", "capacity", "data", "overfitting"))
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
