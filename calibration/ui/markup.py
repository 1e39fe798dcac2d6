"""The answer as HTML. Every text is escaped: names and notes may come from a file that somebody uploaded.

Each figure is a `<data>` element: the text for people, and the full number for whoever reads it by machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from html import escape

from calibration.fitting.runs.checks import Problem
from calibration.ui.answers import Answer, as_command, as_python, as_training_config, question, with_members
from planner.explain import is_sharp
from planner.hardware import Cost
from planner.inputs import dollars, duration, figure, scientific, short, signed, size
from planner.laws import FORMS
from planner.results import Interval, Plan
from planner.show.palette import law_label
from planner.show.terminal import how_sure

SHOWN_PROBLEMS = 200


def answer(found: Answer, notes: Sequence[str] = ()) -> str:
    """The decision in a sentence and in four tiles. What to be careful about is one step away."""
    p, (weakest, strongest) = found.plan, found.calibration.weight_decay_range
    cautions = ""
    if p.warnings:
        count = "one caution" if len(p.warnings) == 1 else f"{len(p.warnings)} cautions"
        cautions = f' <button type="button" class="db-cautions" data-goto="db-careful">{count}</button>'
    return (
        f'<section class="db-answer" aria-label="The answer" aria-live="polite" '
        f'data-inputs="{escape(question(found))}" data-decays="{weakest} {strongest}">{_notes(notes)}'
        f'<p class="db-verdict">{escape(p.verdict)} {escape(p.budget)}{cautions}</p>'
        f'<div class="db-tiles">{"".join(_tiles(found))}</div></section>'
    )


def details(found: Answer) -> str:
    """What to be careful about, what the decision comes with, and why; folded, except for the cautions."""
    p = found.plan
    rows = "".join(f"<div><dt>{name}</dt><dd>{value}</dd></div>" for name, value in _facts(found))
    return (
        f'<section class="db-details" aria-label="Details">{side_by_side(found)}<p class="db-caption">'
        f"{escape(CAPTIONS[found.choices.picture])}</p>"
        f'<div id="db-careful" tabindex="-1">{_list("db-careful", "Careful", p.warnings)}</div>'
        f'<details id="db-facts"><summary>Cost, memory, shape and how sure</summary>'
        f'<dl class="db-facts">{rows}</dl></details>'
        f'<details id="db-why"><summary>Why, and what else to know</summary>'
        f"{_list('db-why', '', p.reasons)}</details></section>"
    )


def _tiles(found: Answer) -> list[str]:
    """The four figures, each with its interval and what stands next to it."""
    p = found.plan
    within = p.intervals or {}
    # Which sizes would do as well: as far as the law can tell, or else within the tolerance.
    flat = p.flat_range if p.predictive_uncertainty is None else p.predictive_uncertainty.as_good
    as_good = f"as good: {short(flat.params_min)} to {short(flat.params_max)}"
    if is_sharp(flat):
        as_good = f"hardly another size is within {flat.tolerance:.2g} nats"
    elsewhere = sorted(other.params for other in p.other_laws)
    ends = dict.fromkeys(short(size) for size in (*elsewhere[:1], *elsewhere[-1:]))
    other_laws = f"other laws: {' to '.join(ends)}" if ends else ""
    tokens = f"{short(p.tokens)} training tokens"
    if p.epochs < 1:
        tokens = f"{short(p.tokens)} tokens: {p.epochs:.1%} of the corpus is enough"
    rival = min(p.other_weight_decays, key=lambda one: one.predicted_loss, default=None)
    decays = "the only one calibrated"
    if rival is not None:
        decays = f"loss at {rival.weight_decay}: {rival.predicted_loss:.3f}"
    sizes, passes = _interval(within.get("params"), short), _interval(within.get("epochs"), epochs)
    losses, sure = _interval(within.get("loss"), "{:.3f}".format), p.predictive_uncertainty
    if not found.complete:
        losses = "95%: …"
    elif not losses and sure is not None:
        losses = f"{sure.level:.0%}: {sure.loss_low:.3f} to {sure.loss_high:.3f}"
    perplexity = f"perplexity {p.perplexity:.2f}"
    return [
        _tile("params", "Parameters", p.params, short(p.params), sizes, as_good, other_laws),
        _tile("epochs", "Epochs", p.epochs, epochs(p.epochs), passes, tokens),
        _tile("weight_decay", "Weight decay", p.weight_decay, str(p.weight_decay), "", decays),
        _tile("loss", "Predicted loss", p.loss, f"{p.loss:.3f}", losses, perplexity),
    ]


def _facts(found: Answer) -> list[tuple[str, str]]:
    """What the decision comes with: names, and values as HTML."""
    p = found.plan
    ceiling = "" if p.spent_flops > 0.995 * p.flops else f" of {scientific(p.flops)}"
    facts = [("Compute", _data("flops", p.spent_flops, scientific(p.spent_flops)) + f" FLOPs{ceiling}")]
    if p.cost is not None:
        memory = "unknown: no shape was found"
        if p.cost.memory is not None:
            memory = f"{size(p.cost.memory.total)} to train: {p.cost.fits(p.cost.gpu)}"
        facts += [("Time and cost", _cost(p.cost)), ("Memory", escape(memory))]
    if p.architecture is not None:
        facts.append(("Llama-2 shape", escape(p.architecture.describe())))
    parts = " + ".join(f"{name} {value:.3f}" for name, value in vars(p.terms).items())
    crossing = _crossover(p, (p.intervals or {}).get("crossover_flops"))
    facts += [("Breakdown", parts), ("Crossover C×", crossing)]
    facts += [*_wider(found)]
    facts += [("How sure", escape(how_sure(p) if found.complete else "working out the intervals …"))]
    return [*facts, ("From", escape(f"{p.law} of {found.calibration.name}"))]


def _wider(found: Answer) -> list[tuple[str, str]]:
    """What counts next to one training: an ensemble, or what it would buy, and what is served."""
    p, facts = found.plan, list[tuple[str, str]]()
    if p.members is not None and p.members.count > 1:
        said = (
            f"{p.members.count} whose probabilities are averaged: {p.members.gain:.3f} nats better than one"
        )
        facts.append(("Members", f"{said}; {size(p.members.weights_bytes)} of weights"))
    elif p.members is not None:
        facts.append(("Members", "one model is better than several for this compute"))
    wider = with_members(found)
    if wider is not None and wider.members is not None and wider.members.count > 1:
        several = (
            f"{wider.members.count} models of {short(wider.params)} for {epochs(wider.epochs)} epochs each"
        )
        change = signed(wider.loss - p.loss)
        facts.append(
            ("An ensemble", f"{several} would reach {wider.loss:.3f} ({change}) for the same compute")
        )
    if p.serving is not None:
        total = f"{p.serving.share:.0%} of {scientific(p.serving.total_flops)} FLOPs"
        facts.append(("Serving", f"{short(p.serving.tokens)} tokens take {total}"))
    return [(name, escape(said)) for name, said in facts]


def side_by_side(found: Answer) -> str:
    """The pinned plan next to this one, where there is one."""
    if found.pinned is None:
        return ""
    both = (found.pinned, found)
    rows = [
        ("asked", *(question(one) for one in both)),
        ("train", *(f"{short(one.plan.params)} × {epochs(one.plan.epochs)} epochs" for one in both)),
        ("weight decay", *(str(one.plan.weight_decay) for one in both)),
        ("predicted loss", *(f"{one.plan.loss:.4f}" for one in both)),
        ("compute spent", *(f"{scientific(one.plan.spent_flops)} FLOPs" for one in both)),
        ("cost", *(dollars(one.plan.cost.usd) if one.plan.cost else "" for one in both)),
        ("law", *(f"{law_label(one.plan.law)} of {one.calibration.name}" for one in both)),
    ]
    change = found.plan.loss - found.pinned.plan.loss
    unpin = '<button type="button" data-pin="">Unpin</button>'
    said = f"<h2>Two plans</h2><p>Loss {signed(change, 4)} against the pinned plan.</p>"
    return (
        f'<div class="db-pins" id="db-pins">{said}{table(("", "pinned", "this plan"), rows)}'
        f'<div class="db-buttons">{unpin}</div></div>'
    )


def headline(found: Answer) -> str:
    """The answer in one line, which stays in sight on a phone; who listens has heard it already."""
    p = found.plan
    parts = (
        f"<b>{short(p.params)}</b> × <b>{epochs(p.epochs)}</b> epochs · λ <b>{p.weight_decay}</b> · "
        f"loss <b>{p.loss:.3f}</b>"
    )
    return f'<div class="db-headline" aria-hidden="true">{parts}</div>'


CAPTIONS = {
    "isoflop": "Every point spends the same compute: few epochs of a large model on the left, many of a "
    "small one on the right.",
    "frontier": "Each line is one law's best plan as compute grows. Laws that charge for repetition turn "
    "back: fewer epochs, larger models.",
    "crossover": "The best loss that each compute can buy. Strong weight decay pays a premium while data is "
    "fresh, and wins from C× on; in the shade the law expects no gain from more with this recipe, or less "
    "than its error, at any weight decay or at the one chosen. Drag the line to another budget.",
    "decay": "The best plan within your compute at each weight decay: too little lets a model learn repeated "
    "text by heart, too much holds it back. Drag the line to another weight decay.",
    "terms": "What the loss of the planned model consists of, if it were trained for fewer or more epochs.",
    "whatif": "The best loss if you had less or more of one thing and the same of the other, at the weight "
    "decay that is then the best or that you have chosen; diamonds mark twice as much.",
}


def in_words(found: Answer, picture: str) -> str:
    """What there is to see in a picture, for who cannot see it."""
    p = found.plan
    plan = f"{short(p.params)} parameters for {epochs(p.epochs)} epochs, loss {p.loss:.3f}"
    flat = p.flat_range
    rivals = "; ".join(f"at {one.weight_decay} {one.predicted_loss:.3f}" for one in p.other_weight_decays)
    others = ((law_label(o.law), short(o.params), epochs(o.epochs)) for o in p.other_laws)
    laws = "; ".join(f"{law} {size} for {passes} epochs" for law, size, passes in others)
    words = {
        "isoflop": f"Loss against epochs at {scientific(p.flops)} FLOPs: lowest at {plan}, and within "
        f"{flat.tolerance:g} nats from {epochs(flat.epochs_min)} to {epochs(flat.epochs_max)} epochs.",
        "frontier": f"Epochs against parameters as compute grows. At this budget: {plan}; {laws}.",
        "crossover": f"Best loss against compute for each weight decay. At this budget: at {p.weight_decay} "
        f"{p.loss:.3f}; {rivals}. {p.crossover_note[:1].upper()}{p.crossover_note[1:]}.",
        "decay": f"Best loss against weight decay within {scientific(p.flops)} FLOPs. At {p.weight_decay} "
        f"{p.loss:.3f}; {rivals}.",
        "terms": "Loss against epochs as a stack of its terms. At the plan: "
        + ", ".join(f"{name} {value:.3f}" for name, value in vars(p.terms).items())
        + ".",
        "whatif": f"Best loss with a quarter to sixteen times the data, the compute, or both. Now: {plan}.",
    }
    return f'<p class="db-unseen" id="db-picture">{escape(f"Picture: {words[picture]}")}</p>'


def problem(sentence: str, notes: Sequence[str] = (), field: str = "") -> str:
    """What is wrong with the input, in the place of the answer; page.js marks the field."""
    text = sentence[:1].upper() + sentence[1:]
    said = (
        f'<p class="db-problem" role="alert" id="db-problem" data-field="{escape(field)}">{escape(text)}</p>'
    )
    return f'<section class="db-answer" aria-live="assertive">{_notes(notes)}{said}</section>'


def note(sentence: str) -> str:
    return f'<p class="db-note" role="status">{escape(sentence)}</p>'


def calls(found: Answer) -> str:
    """Buttons that copy the call, and the text that they copy."""
    texts = [
        ("python", "Python", as_python(found)),
        ("command", "Command line", as_command(found)),
        ("config", "run.toml", as_training_config(found)),
    ]
    buttons = "".join(
        f'<button type="button" data-copy="db-{key}">Copy {name}</button>' for key, name, _ in texts
    )
    shown = "".join(
        f'<h3>{name}</h3><pre id="db-{key}" tabindex="0">{escape(text)}</pre>' for key, name, text in texts
    )
    buttons += '<button type="button" data-copy="address">Copy link</button>'
    buttons += '<button type="button" data-card>Save card</button>'
    buttons += '<button type="button" data-pin="this">Pin to compare</button>'
    return (
        f'<div class="db-calls"><div class="db-buttons">{buttons}</div>'
        f"<details><summary>Show what is copied</summary>{shown}</details></div>"
    )


def epochs(value: float) -> str:
    return f"{value:.0f}" if value == round(value) else f"{value:.3g}"


# -- run tables ----------------------------------------------------------------------------------------


def table_problems(sentence: str, problems: Sequence[Problem]) -> str:
    """A run table's problems, row by row."""
    if not problems:
        return f'<p class="db-problem" role="alert">{escape(sentence[:1].upper() + sentence[1:])}</p>'
    rows = len({p.row for p in problems})
    count = f"{len(problems):,} problems in {rows:,} row{'s' * (rows > 1)}"
    if len(problems) == 1:
        count = "1 problem"
    body = ([str(p.row), p.column, p.value, p.reason] for p in problems[:SHOWN_PROBLEMS])
    more = len(problems) - SHOWN_PROBLEMS
    rest = f"<p>and {more:,} more</p>" if more > 0 else ""
    said = f"This table has {count}. Row 1 is the first run below the header."
    return (
        f'<div role="alert"><p class="db-problem">{said}</p>'
        f"{table(('row', 'column', 'value', 'problem'), body)}{rest}</div>"
    )


def example_runs() -> str:
    """What a table may look like, where there is none yet, and what happens with it."""
    header = ("Name", "config.n_params", "config.unique_tokens", "config.epochs", "weight_decay", "val/loss")
    rows = [
        ("small-once", "15M", "50M", "1", "0.1", "4.21"),
        ("small-twice", "30M", "50M", "2", "0.1", "3.93"),
        ("large-often", "60M", "50M", "4", "0.1", "3.81"),
    ]
    steps = (
        "Drop a table: its columns are found by their names, or you say which is which.",
        "Look at what was read. Every cell that cannot be used is named, with its row.",
        "Fit: the laws are ranked by how well they predict runs that they have not seen.",
        "Plan with the winner, and keep its file and its report.",
    )
    items = "".join(f"<li>{step}</li>" for step in steps)
    return (
        f'<div class="db-example"><h2 class="db-small">What a table may look like</h2>{table(header, rows)}'
        f'<h2 class="db-small">What happens then</h2><ol>{items}</ol></div>'
    )


def run_summary(
    rows: Iterable[Sequence[str]],
    preview: Iterable[Sequence[str]],
    notes: Sequence[str],
    missing: Sequence[str],
) -> str:
    header = ("weight decay", "runs", "one epoch", "parameters", "unique tokens", "most epochs", "loss")
    told = "These runs alone do not determine every law; what the shipped calibrations know fills in"
    first = ("run", "parameters", "unique tokens", "epochs", "weight decay", "loss")
    return (
        f'<p class="db-good">✓ The table can be read.</p>{table(header, rows)}'
        f'{_list("db-why", "Noticed", notes)}<h2 class="db-small">The first runs, as they were read</h2>'
        f"{table(first, preview)}{_list('db-careful', told, missing)}"
    )


def progress(what: str, share: float) -> str:
    bar = f'<progress max="1" value="{share:.3f}">{share:.0%}</progress>'
    return f'<div class="db-progress"><label>{escape(what)}{bar}</label></div>'


def fit_summary(
    reason: str, rows: Iterable[Sequence[str]], left_out: Sequence[str], links: Sequence[str]
) -> str:
    """`links` lead to the calibration file and the report."""
    calibration, report = (escape(link) for link in links)
    files = (
        '<p class="db-buttons">'
        f'<a id="download-calibration" href="{calibration}" download>Calibration file</a>'
        f'<a id="download-report" href="{report}" download>HTML report</a></p>'
    )
    header = ("weight decay", "law", "share", "held-out error", "R²", "R² repeated", "Huber sum")
    missing = _list("db-careful", "Not fitted", left_out)
    return f'<p class="db-good">✓ {escape(reason)}</p>{table(header, rows)}{missing}{files}'


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    head = "".join(f'<th scope="col">{escape(cell)}</th>' for cell in header)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    cells = f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody>"
    return f'<div class="db-scroll" tabindex="0"><table class="db-table">{cells}</table></div>'


# -- pieces --------------------------------------------------------------------------------------------


def _data(key: str, value: float, text: str) -> str:
    return f'<data data-key="{key}" value="{value!r}">{escape(text)}</data>'


def _tile(key: str, label: str, value: float, text: str, interval: str, *below: str) -> str:
    extra = f'<div class="db-interval">{escape(interval)}</div>' if interval else ""
    figure = f'<div class="db-figure">{_data(key, value, text)}</div>'
    more = "".join(f'<div class="db-below">{escape(line)}</div>' for line in below if line)
    return f'<div class="db-tile"><div class="db-label">{label}</div>{figure}{extra}{more}</div>'


def _interval(bounds: Interval | None, show: Callable[[float], str]) -> str:
    return "" if bounds is None else f"95%: {show(bounds.low)} to {show(bounds.high)}"


def _cost(c: Cost) -> str:
    hours, clock = _data("gpu_hours", c.gpu_hours, figure(c.gpu_hours)), duration(c.hours * 3600)
    return (
        f"{hours} GPU-hours: {clock} on {c.gpus} × {escape(c.gpu)} at {c.mfu:.0%} MFU, "
        f"{_data('usd', c.usd, dollars(c.usd))}"
    )


def _crossover(p: Plan, bounds: Interval | None) -> str:
    if p.crossover_flops is None:
        return escape(f"none: {p.crossover_note}")
    between = f" ({_interval(bounds, scientific)})" if bounds else ""
    place = _data("crossover_flops", p.crossover_flops, scientific(p.crossover_flops))
    return f"{place} FLOPs{between}: {escape(p.crossover_note)}"


def _notes(notes: Sequence[str]) -> str:
    return "".join(note(one) for one in notes)


def _list(style: str, title: str, lines: Sequence[str]) -> str:
    if not lines:
        return ""
    items = "".join(f"<li>{escape(line[:1].upper() + line[1:])}</li>" for line in lines)
    heading = f"<h2>{title}</h2>" if title else ""
    return f'<div class="{style}">{heading}<ul>{items}</ul></div>'


# -- below the page --------------------------------------------------------------------------------


def footer() -> str:
    """Where this comes from, and what its words mean."""
    laws = "".join(
        f"<dt>{escape(form.label)}</dt><dd><code>{escape(form.formula)}</code> {escape(form.summary)}</dd>"
        for form in FORMS.values()
    )
    words = "".join(f"<dt>{escape(word)}</dt><dd>{escape(meaning)}</dd>" for word, meaning in _WORDS.items())
    return (
        '<footer class="db-footer"><details><summary>What the words mean</summary>'
        f"<dl>{words}</dl></details><details><summary>The laws</summary><dl>{laws}</dl></details>"
        f"<p>{_SOURCES}</p></footer>"
    )


_WORDS = {
    "nats": "The loss is the mean negative natural logarithm of the probability given to the next token. A "
    "hundredth of a nat is about one percent of perplexity.",
    "C×": "The compute at which the best plans of two weight decays have the same loss. Below it the weaker "
    "decay wins, above it the stronger one.",
    "unique tokens": "How many tokens of text there are before any is seen twice.",
    "epochs": "How often the text is gone through; below one, only a part of it is used.",
    "parameters": "All of the model's, embeddings included.",
    "MFU": "The share of the GPUs' peak that training really reaches.",
}
_SOURCES = (
    'The laws and coefficients are those of <a href="https://arxiv.org/abs/2605.01640">Prescriptive Scaling '
    'Laws for Data Constrained Training</a> and <a href="https://arxiv.org/abs/2305.16264">Scaling '
    "Data-Constrained Language Models</a>. How a plan is made, and how far to trust it, is told in the "
    "folder <code>docs</code> of databound; <code>planner --help</code> offers the same on the command line."
)
