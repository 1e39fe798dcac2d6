"""The answer as HTML. Every text is escaped: names and notes may come from a file that somebody uploaded.

Each figure is a `<data>` element: the text for people, and the full number as its value for whoever reads the page by machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from html import escape

from calibration.fitting.tables import Problem
from calibration.ui.answers import Answer, as_command, as_python, as_training_config
from planner.costs import Cost
from planner.results import Interval, Plan
from planner.units import scientific, short

SHOWN_PROBLEMS = 200


def answer(found: Answer, notes: Sequence[str] = ()) -> str:
    """The decision, large; what it is made of; and what to be careful about."""
    p = found.plan
    within = p.intervals or {}
    tiles = [
        _tile(
            "params",
            "Parameters",
            p.params,
            short(p.params),
            _flat_params(p),
            _interval(within.get("params"), short),
        ),
        _tile(
            "epochs",
            "Epochs",
            p.epochs,
            epochs(p.epochs),
            _tokens(p),
            _interval(within.get("epochs"), epochs),
        ),
        _tile("weight_decay", "Weight decay", p.weight_decay, str(p.weight_decay), _rival(p), ""),
        _tile(
            "loss",
            "Predicted loss",
            p.loss,
            f"{p.loss:.3f}",
            f"perplexity {p.perplexity:.2f}",
            _loss_interval(found),
        ),
    ]
    facts = [("Compute", _data("flops", p.flops, scientific(p.flops)) + " FLOPs")]
    if p.cost is not None:
        facts += [("Time and cost", _cost(p.cost)), ("Memory", escape(_memory(p.cost)))]
    if p.architecture is not None:
        facts.append(("Llama-2 shape", escape(p.architecture.describe())))
    terms = p.terms
    made = f"floor {terms.floor:.3f} + capacity {terms.capacity:.3f} + data {terms.data:.3f} + overfitting {terms.overfitting:.3f}"
    facts += [("Loss is made of", made), ("Crossover C×", _crossover(p, within.get("crossover_flops")))]
    facts += [("How sure", escape(p.interval_note if found.complete else "working out the intervals …"))]
    facts += [("From", escape(f"{p.law} of {found.calibration.name}"))]
    rows = "".join(f"<div><dt>{name}</dt><dd>{value}</dd></div>" for name, value in facts)
    return (
        f'<section class="db-answer" aria-label="The answer" aria-live="polite">{_notes(notes)}'
        f'<div class="db-tiles">{"".join(tiles)}</div>'
        f"{_list('db-careful', 'Careful', p.warnings)}"
        f'<dl class="db-facts">{rows}</dl>'
        f"{_list('db-why', 'Why, and what else to know', p.reasons)}</section>"
    )


def headline(found: Answer) -> str:
    """The answer in one line, which stays in sight on a phone; who listens to the page has heard it already."""
    p = found.plan
    parts = f"<b>{short(p.params)}</b> × <b>{epochs(p.epochs)}</b> epochs · λ <b>{p.weight_decay}</b> · loss <b>{p.loss:.3f}</b>"
    return f'<div class="db-headline" aria-hidden="true">{parts}</div>'


def problem(sentence: str, notes: Sequence[str] = ()) -> str:
    """What is wrong with the input, in the place of the answer."""
    text = sentence[:1].upper() + sentence[1:]
    return f'<section class="db-answer" aria-live="assertive">{_notes(notes)}<p class="db-problem" role="alert">{escape(text)}</p></section>'


def note(sentence: str) -> str:
    return f'<p class="db-note" role="status">{escape(sentence)}</p>'


def calls(found: Answer) -> str:
    """Buttons that copy the call, and the text that they copy."""
    texts = [
        ("python", "Python", as_python(found)),
        ("command", "Command line", as_command(found)),
        ("config", "Training config", as_training_config(found)),
    ]
    buttons = "".join(
        f'<button type="button" data-copy="db-{key}">Copy {name}</button>' for key, name, _ in texts
    )
    shown = "".join(
        f'<h4>{name}</h4><pre id="db-{key}" tabindex="0">{escape(text)}</pre>' for key, name, text in texts
    )
    return (
        f'<div class="db-calls"><div class="db-buttons">{buttons}<button type="button" data-copy="address">Copy link</button></div>'
        f"<details><summary>Show what is copied</summary>{shown}</details></div>"
    )


def epochs(value: float) -> str:
    return f"{value:.0f}" if value == round(value) else f"{value:.3g}"


# -- run tables -----------------------------------------------------------------------------------------------------------


def table_problems(sentence: str, problems: Sequence[Problem]) -> str:
    """A run table's problems, row by row."""
    if not problems:
        return f'<p class="db-problem" role="alert">{escape(sentence[:1].upper() + sentence[1:])}</p>'
    rows = {p.row for p in problems}
    count = (
        "1 problem"
        if len(problems) == 1
        else f"{len(problems):,} problems in {len(rows):,} row{'s' * (len(rows) > 1)}"
    )
    body = ([str(p.row), p.column, p.value, p.reason] for p in problems[:SHOWN_PROBLEMS])
    more = len(problems) - SHOWN_PROBLEMS
    rest = f"<p>and {more:,} more</p>" if more > 0 else ""
    return (
        f'<div role="alert"><p class="db-problem">This table has {count}. Row 1 is the first run below the header.</p>'
        f"{table(('row', 'column', 'value', 'problem'), body)}{rest}</div>"
    )


def run_summary(rows: Iterable[Sequence[str]], missing: Sequence[str]) -> str:
    header = ("weight decay", "runs", "one epoch", "parameters", "unique tokens", "most epochs", "loss")
    return f'<p class="db-good">✓ The table can be read.</p>{table(header, rows)}{_list("db-careful", "Not enough runs for every law", missing)}'


def progress(what: str, share: float) -> str:
    label = escape(what)
    return f'<div class="db-progress"><label>{label}<progress max="1" value="{share:.3f}">{share:.0%}</progress></label></div>'


def fit_summary(reason: str, rows: Iterable[Sequence[str]], left_out: Sequence[str]) -> str:
    header = ("weight decay", "law", "R²", "R² repeated", "Huber sum", "held-out error")
    return f'<p class="db-good">✓ {escape(reason)}</p>{table(header, rows)}{_list("db-careful", "Not fitted", left_out)}'


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    head = "".join(f'<th scope="col">{escape(cell)}</th>' for cell in header)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f'<div class="db-scroll" tabindex="0"><table class="db-table"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


# -- pieces ---------------------------------------------------------------------------------------------------------------


def _data(key: str, value: float, text: str) -> str:
    return f'<data data-key="{key}" value="{value!r}">{escape(text)}</data>'


def _tile(key: str, label: str, value: float, text: str, below: str, interval: str) -> str:
    extra = f'<div class="db-interval">{escape(interval)}</div>' if interval else ""
    figure = _data(key, value, text)
    return f'<div class="db-tile"><div class="db-label">{label}</div><div class="db-figure">{figure}</div>{extra}<div class="db-below">{escape(below)}</div></div>'


def _interval(bounds: Interval | None, show: Callable[[float], str]) -> str:
    return "" if bounds is None else f"95%: {show(bounds.low)} to {show(bounds.high)}"


def _loss_interval(found: Answer) -> str:
    if not found.complete:
        return "95%: …"
    return _interval((found.plan.intervals or {}).get("loss"), "{:.3f}".format)


def _flat_params(p: Plan) -> str:
    flat = p.flat_range
    if flat.params_min == flat.params_max:
        return f"no other size is within {flat.tolerance:g} nats"
    return f"{short(flat.params_min)} to {short(flat.params_max)} are as good within {flat.tolerance:g} nats"


def _tokens(p: Plan) -> str:
    if p.epochs < 1:
        return f"{short(p.tokens)} tokens: {p.epochs:.1%} of the corpus is enough"
    return f"{short(p.tokens)} training tokens"


def _rival(p: Plan) -> str:
    if not p.other_weight_decays:
        return "the only one calibrated"
    rival = min(p.other_weight_decays, key=lambda one: one.predicted_loss)
    return f"loss at {rival.weight_decay}: {rival.predicted_loss:.3f}"


def _cost(c: Cost) -> str:
    hours = _data("gpu_hours", c.gpu_hours, f"{c.gpu_hours:,.3g}")
    return (
        f"{hours} GPU-hours: {c.hours:,.3g} hours on {c.gpus} × {escape(c.gpu)} at {c.mfu:.0%} MFU, "
        f"about ${_data('usd', c.usd, f'{c.usd:,.2f}')}"
    )


def _memory(c: Cost) -> str:
    memory = c.memory
    if memory is None:
        return "unknown: no shape was found"
    needed = f"{memory.total / 1e9:.3g} GB to train"
    if memory.fits_one_device:
        return f"{needed}: fits on one {c.gpu}"
    if memory.devices_needed == 0:
        return f"{needed}: does not fit on {c.gpu}s even when sharded"
    return f"{needed}: shard over {memory.devices_needed} or more {c.gpu}s"


def _crossover(p: Plan, bounds: Interval | None) -> str:
    if p.crossover_flops is None:
        return escape(f"none: {p.crossover_note}")
    between = f" ({_interval(bounds, scientific)})" if bounds else ""
    return f"{_data('crossover_flops', p.crossover_flops, scientific(p.crossover_flops))} FLOPs{between}: {escape(p.crossover_note)}"


def _notes(notes: Sequence[str]) -> str:
    return "".join(note(one) for one in notes)


def _list(style: str, title: str, lines: Sequence[str]) -> str:
    if not lines:
        return ""
    items = "".join(f"<li>{escape(line[:1].upper() + line[1:])}</li>" for line in lines)
    return f'<div class="{style}"><h3>{title}</h3><ul>{items}</ul></div>'
