"""The answer as HTML. Every text is escaped: names and notes may come from a file that somebody uploaded.

Each figure is a `<data>` element: the text for people, and the full number for whoever reads it by machine.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from typing import Any

from calibration.reports import document, report
from calibration.web.answers import Answer, as_command, as_python, as_training_config, question, with_members
from calibration.web.state import DEFAULTS, NAMES, PICTURES, PRESETS, Choices
from calibration.web.worker import not_determined
from planner.calibration import Calibration
from planner.explain import is_sharp, summary
from planner.hardware import ACCELERATORS
from planner.inputs import dollars, duration, figure, named, scientific, short, signed, size
from planner.inputs import epochs as in_epochs
from planner.laws import FORMS
from planner.options import label
from planner.results import Interval, Plan
from planner.show.palette import law_label
from planner.show.terminal import how_sure

SHOWN_PROBLEMS = 50  # kinds


def answer(found: Answer) -> str:
    """The decision in a sentence, what it takes of the budget, and tiles; cautions are one step away."""
    p, cautions = found.plan, ""
    if p.warnings:
        count = "one caution" if len(p.warnings) == 1 else f"{len(p.warnings)} cautions"
        cautions = f' <a class="cautions" href="#careful">{count}</a>'
    return (
        f'<p class="verdict">{escape(p.verdict)}{cautions}</p>'
        f'<p class="budget">{escape(in_fields(p.budget))}</p>'
        f'<div class="tiles">{"".join(_tiles(found))}</div>'
    )


def details(found: Answer) -> str:
    """What a terminal prints below the answer, in its order; what to be careful about; and, folded, why."""
    p = found.plan
    known = [(name, escape(in_fields(text))) for name, text in summary(p) if name != "expected loss"]
    return (
        f'{side_by_side(found)}<div class="beside">{_definitions(known)}'
        f'<div id="careful" tabindex="-1">{_list("careful", "Careful", p.warnings)}</div></div>'
        f'<details id="facts"><summary>Compute, breakdown, C× and how sure</summary>'
        f"{_definitions(_facts(found))}</details>"
        f'<details id="why"><summary>Why, and what else to know</summary>'
        f"{_list('why', '', p.reasons)}</details>"
    )


def in_fields(sentence: str) -> str:
    """A sentence that names options of a shell, with the fields of the page in their place."""
    return _OPTION.sub(lambda found: f"{label(found[1].replace('-', '_'))}: {found[2]}", sentence)


_OPTION = re.compile(r"--([a-z-]+) (\w+)")


def _tiles(found: Answer) -> list[str]:
    """The figures, each with its interval and what stands next to it."""
    p, within, sure = found.plan, found.plan.intervals or {}, found.plan.predictive_uncertainty
    # Which sizes would do as well: as far as the law can tell, or else within the tolerance.
    flat = p.flat_range if sure is None else sure.as_good
    as_good = f"as good: {short(flat.params_min)} to {short(flat.params_max)}"
    if is_sharp(flat):  # of the one law that was fitted, whatever its draws say of the size
        as_good = f"by the fitted law hardly another size is within {flat.tolerance:.2g} nats"
    elsewhere = sorted(other.params for other in p.other_laws)
    ends = " to ".join(dict.fromkeys(short(size) for size in (*elsewhere[:1], *elsewhere[-1:])))
    tokens = f"{short(p.tokens)} training tokens"
    if p.epochs < 1:
        tokens = f"{short(p.tokens)} tokens: {p.epochs:.1%} of the corpus is enough"
    rival = min(p.other_weight_decays, key=lambda one: one.predicted_loss, default=None)
    decays = "the only one calibrated"
    if rival is not None:
        decays = f"loss at {rival.weight_decay}: {rival.predicted_loss:.3f}"
    losses = _interval(within.get("loss"), "{:.3f}".format)
    if not found.complete:
        losses = "95%: …"
    elif not losses and sure is not None:
        losses = f"{sure.level:.0%}: {sure.loss_low:.3f} to {sure.loss_high:.3f}"
    perplexity = f"perplexity {p.perplexity:.4g}"
    bits = "" if p.bits_per_byte is None else f"{p.bits_per_byte:.2f} bits per byte"
    sizes, passes = _interval(within.get("params"), short), _interval(within.get("epochs"), epochs)
    others = f"other laws: {ends}" if ends else ""
    bill, title = found.cost, "Cost, about" if p.cost else "Cost, for example"
    usd = dollars(bill.usd).removeprefix("about ").replace("less than a cent", "< $0.01")
    where = f"{duration(bill.hours * 3600)} on {bill.gpus} × {bill.gpu}"
    hours = f"{_data('gpu_hours', bill.gpu_hours, figure(bill.gpu_hours))} GPU-hours, {bill.mfu:.0%} MFU"
    return [
        _tile("params", "Parameters", p.params, short(p.params), sizes, as_good, others),
        _tile("epochs", "Epochs", p.epochs, epochs(p.epochs), passes, tokens),
        _tile("weight_decay", "Weight decay", p.weight_decay, str(p.weight_decay), "", decays),
        _tile("loss", "Predicted loss", p.loss, f"{p.loss:.3f}", losses, perplexity, bits),
        _tile("usd", title, bill.usd, usd, where, hours),
    ]


def _facts(found: Answer) -> list[tuple[str, str]]:
    """What else the decision comes with: names, and values as HTML."""
    p = found.plan
    ceiling = "" if p.spent_flops > 0.995 * p.flops else f" of {scientific(p.flops)}"
    facts = [("compute", _data("flops", p.spent_flops, scientific(p.spent_flops)) + f" FLOPs{ceiling}")]
    crossing = _crossover(p, (p.intervals or {}).get("crossover_flops"))
    facts += [("breakdown", " + ".join(_breakdown(p))), ("crossover C×", crossing)]
    facts += [(name, escape(said)) for name, said in _wider(found)]
    facts += [("how sure", escape(how_sure(p) if found.complete else "working out the intervals …"))]
    return [*facts, ("from", escape(f"{p.law} of {found.calibration.name}"))]


def _wider(found: Answer) -> list[tuple[str, str]]:
    """What counts next to one training: an ensemble, or what it would buy, and what is served."""
    p, facts = found.plan, list[tuple[str, str]]()
    if p.members is not None:
        said = "one model is better than several for this compute"
        if p.members.count > 1:
            said = f"{p.members.count} whose probabilities are averaged: {p.members.gain:.3f} nats better "
            said += f"than one; {size(p.members.weights_bytes)} of weights"
        facts.append(("members", said))
    wider = with_members(found)
    if wider is not None and wider.members is not None and wider.members.count > 1:
        models = f"{wider.members.count} models of {short(wider.params)} for {in_epochs(wider.epochs)} each"
        reached = f"{wider.loss:.3f} ({signed(wider.loss - p.loss)})"
        facts.append(("an ensemble", f"{models} would reach {reached} for the same compute"))
    if p.serving is not None:
        total = f"{p.serving.share:.0%} of {scientific(p.serving.total_flops)} FLOPs"
        facts.append(("serving", f"{short(p.serving.tokens)} tokens take {total}"))
    return facts


def side_by_side(found: Answer) -> str:
    """The pinned plan next to this one, where there is one."""
    if found.pinned is None:
        return ""
    both = (found.pinned, found)
    rows = [
        ("asked", *(question(one) for one in both)),
        ("train", *(f"{short(one.plan.params)} × {in_epochs(one.plan.epochs)}" for one in both)),
        ("weight decay", *(str(one.plan.weight_decay) for one in both)),
        ("predicted loss", *(f"{one.plan.loss:.4f}" for one in both)),
        ("compute spent", *(f"{scientific(one.plan.spent_flops)} FLOPs" for one in both)),
        ("cost", *(dollars(one.cost.usd) for one in both)),
        ("law", *(f"{law_label(one.plan.law)} of {one.calibration.name}" for one in both)),
    ]
    change = found.plan.loss - found.pinned.plan.loss
    unpin = '<button type="button" data-pin="">Unpin</button>'
    said = f"<h2>Two plans</h2><p>Loss {signed(change, 4)} against the pinned plan.</p>"
    return (
        f'<div class="pins" id="pins">{said}{document.table(("", "pinned", "this plan"), rows)}'
        f'<div class="buttons">{unpin}</div></div>'
    )


def headline(found: Answer) -> str:
    """The answer in one line, which stays in sight on a phone; who listens has heard it already."""
    p = found.plan
    return (
        f"<b>{short(p.params)}</b> × <b>{epochs(p.epochs)}</b> epochs · λ <b>{p.weight_decay}</b> · "
        f"loss <b>{p.loss:.3f}</b>"
    )


def caption(found: Answer, drew: set[str]) -> str:
    """What there is to see in the picture, below it, with those of its signs that were drawn."""
    signs = (sentence for sign, sentence in _SIGNS.items() if sign in drew)
    said = " ".join([_CAPTIONS[found.choices.picture], *signs])
    return f'<p class="caption">{escape(said)}</p>'


_CAPTIONS = {
    "crossover": "The best loss that each compute can buy.",
    "isoflop": "Every point spends the same compute: few epochs of a large model on the left, many of a "
    "small one on the right.",
    "frontier": "Each line is one law's best plan as compute grows. Laws that charge for repetition turn "
    "back: fewer epochs, larger models.",
    "decay": "The plan within your compute at each weight decay: too little lets a model learn repeated text "
    "by heart, too much holds it back. Drag the line to another weight decay.",
    "terms": "What the loss of the planned model consists of, if it were trained for fewer or more epochs. "
    "The irreducible part, which no training changes, is cut off below.",
    "whatif": "The loss of the plan if you had less or more of one thing and the same of the other, at the "
    "weight decay that is then the best or that you have chosen; diamonds mark twice as much.",
}
_SIGNS = {
    "band": "The band is its interval.",
    "shade": "In the grey shade the law expects no gain from more compute with this recipe; where it begins "
    "is uncertain, as the curve is flat there.",
    "crossing": "From C× on strong weight decay is expected to win.",
    "kinks": "At kinks another whole number of epochs becomes the best, in the end one, far beyond all runs.",
    "budget": "Drag the line to another budget.",
    "rise": "Where more compute seems to cost loss, that is within the law's error.",
}


def in_words(found: Answer) -> str:
    """What there is to see in a picture, for who cannot see it."""
    p, flat = found.plan, found.plan.flat_range
    plan = f"{short(p.params)} parameters for {in_epochs(p.epochs)}, loss {p.loss:.3f}"
    rivals = "; ".join(f"at {one.weight_decay} {one.predicted_loss:.3f}" for one in p.other_weight_decays)
    laws = "; ".join(f"{law_label(o.law)} {short(o.params)} for {in_epochs(o.epochs)}" for o in p.other_laws)
    more = {
        "crossover": f"At weight decay {p.weight_decay} {p.loss:.3f}; {rivals}. {p.crossover_note}.",
        "isoflop": f"{epochs(flat.epochs_min)} to {in_epochs(flat.epochs_max)} would do as well.",
        "decay": f"At weight decay {p.weight_decay} {p.loss:.3f}; {rivals}.",
        "frontier": f"Other laws: {laws}.",
        "terms": f"It consists of {', '.join(_breakdown(p))}.",
        "whatif": "Shown are a quarter to sixteen times the data, the compute, or both.",
    }
    title, said = PICTURES[found.choices.picture], more[found.choices.picture]
    words = escape(f"Picture: {title}. The plan within {scientific(p.flops)} FLOPs: {plan}. {said}")
    return f'<p class="unseen" id="picture-words">{words}</p>'


def _breakdown(p: Plan) -> list[str]:
    return [f"{name} {value:.3f}" for name, value in vars(p.terms).items()]


def note(sentence: str) -> str:
    return f'<p class="note" role="status">{escape(sentence[:1].upper() + sentence[1:])}</p>'


def shown_for(asked: Choices, shown: Choices) -> str:
    """What stands in for values that no plan can be made of; nothing where that is none."""
    others = [name for name in NAMES if getattr(asked, name) != getattr(shown, name)]
    return ", ".join(f"{label(name)} {getattr(shown, name) or 'as is best'}" for name in others)


def calls(found: Answer) -> str:
    """Buttons that copy the call, and the text that they copy."""
    texts = [
        ("python", "Python", as_python(found)),
        ("command", "Command line", as_command(found)),
        ("config", "run.toml", as_training_config(found)),
    ]
    others = ('copy="address">Copy link', "card>Save card", 'pin="this">Pin to compare')
    copied = (f'copy="copy-{key}">Copy {name}' for key, name, _ in texts)
    buttons = "".join(f'<button type="button" data-{one}</button>' for one in (*copied, *others))
    shown = "".join(
        f'<h3>{name}</h3><pre id="copy-{key}" tabindex="0">{escape(text)}</pre>' for key, name, text in texts
    )
    return (
        f'<div class="calls"><div class="buttons">{buttons}</div>'
        f"<details><summary>Show what is copied</summary>{shown}</details></div>"
    )


def epochs(value: float) -> str:
    return in_epochs(value).split()[0]


# -- run tables ----------------------------------------------------------------------------------------


def cell_problems(problems: Iterable[tuple[int, str, str, str]]) -> str:
    """Each kind of problem that a table's cells have, once, with the rows that have it."""
    kinds: dict[tuple[str, str], list[tuple[int, str]]] = {}
    for row, column, value, reason in problems:
        kinds.setdefault((called(column), reason), []).append((row, value))
    rows = []
    for (column, reason), cells in list(kinds.items())[:SHOWN_PROBLEMS]:
        some = ", ".join(f"{row}: {value}" if value else f"{row}" for row, value in cells[:8])
        more = f" and {len(cells) - 8:,} more" if len(cells) > 8 else ""
        rows.append((column, reason, some + more))
    if not rows:
        return ""
    said = "These cells cannot be used. Row 1 is the first run below the header."
    return f'<p class="problem" role="alert">{said}</p>{document.table(("column", "problem", "rows"), rows)}'


def called(column: str) -> str:
    """What the page calls a column of ours."""
    return COLUMNS.get(column, column)


def column_problems(columns: Iterable[tuple[str, str]]) -> dict[str, str]:
    """What is wrong with whole columns, each at its field: what is missing is asked for one by one."""
    said: dict[str, str] = {}
    for column, sentence in columns:
        lacking, _, found = sentence.partition("; it has ")
        for number, (name, other) in enumerate(_LACKING.findall(lacking) if found else ()):
            what = " or ".join(called(one) for one in (name, other) if one)
            there = f"among the columns ({found.split('; ')[0]})" if number == 0 else "either"
            said[name] = f"{what} cannot be found {there}: write its name here."
        if "no column weight_decay" in sentence and "‹weight_decay›" in sentence:
            said[column] = f"the table has no weight decay: write that of all runs, or at {_WHICH} its name."
        elif not found:
            said[column] = as_page_words(sentence)
    return said


def not_taken(sentence: str) -> dict[str, str]:
    """What the visitor named and the table does not have, each at its field."""
    lacking, _, there = sentence.partition("; ")
    found = _TAKEN.findall(lacking)
    return {ours: f"{called(ours)} cannot be taken from {theirs}; {there}" for ours, theirs in found}


def as_page_words(sentence: str) -> str:
    """A sentence about a table in terms of the page's fields instead of options of a command."""
    said = _MAPPED.sub(lambda found: f"write {found[3]!r} for {called(found[2])}", sentence)
    said = _RAW.sub(lambda found: called(found[0]), said)
    return named(said, lambda field: READING.get(field, label(field)))


def run_summary(about: Mapping[str, Any]) -> str:
    """A table that can be read: what it holds, how it was read, and what it does not determine."""
    header = ("weight decay", "runs", "one epoch", "parameters", "unique tokens", "most epochs", "loss")
    told = "These runs alone do not determine every law; what the shipped calibrations know fills in"
    first = ("run", "parameters", "unique tokens", "epochs", "weight decay", "loss")
    lacking = not_determined(about["not_identified"])
    noticed = [as_page_words(text) for text in about["warnings"]]
    return (
        f'<p class="good">✓ The table can be read.</p>{_list("why", "Noticed", noticed)}'
        f"{document.table(header, about['by_weight_decay'])}<h3>The first runs, as they were read</h3>"
        f"{document.table(first, about['preview'])}{_list('careful', told, lacking)}"
    )


def fit_summary(known: Calibration, sections: Iterable[tuple[str, str]]) -> str:
    """What to plan with, and sections of the report, which are HTML already; all of it and the file stand
    behind the two buttons.
    """
    said = f"{known.name} is fitted: plan with {report.recommended(known)}."
    left_out = [
        f"weight decay {setting.weight_decay}: {law_label(form)}, {why_not}"
        for setting in known.settings
        for form, why_not in setting.method.get("not_identified", {}).items()
    ]
    shown = "".join(f"<h2>{escape(title)}</h2>{body}" for title, body in sections)
    return f'<p class="good">✓ {escape(said)}</p>{shown}{_list("careful", "Not fitted", left_out)}'


COLUMNS = {
    "run": "run",
    "params": "parameters",
    "unique_tokens": "unique tokens",
    "epochs": "epochs",
    "tokens": "training tokens",
    "weight_decay": "weight decay",
    "loss": "validation loss",
    "learning_rate": "learning rate",
    "batch_tokens": "tokens per step",
}
_WHICH = "Which column is which"
READING = {
    "columns": _WHICH,
    "weight_decay": "Weight decay, if the table does not say",
    "max_epochs": "Leave out runs beyond this many epochs",
    "where": "Only runs where",
    "pattern": "Pattern of run names",
}  # what the page calls the ways in which a table can be read
_LACKING = re.compile(r"no column (\w+)(?: \(or (\w+)\))?")
_TAKEN = re.compile(r"(?:^takes| and) (\w+) from ('.*?'|\".*?\")(?= and \w+ from |$)")
_MAPPED = re.compile(r"‹columns› ('?)(\w+)=(.+?)\1(?=[ ).;:,]|$)")
_RAW = re.compile(r"(?<![\w./'])(params|unique_tokens|weight_decay|learning_rate|batch_tokens)(?![\w./'*=])")


# -- pieces --------------------------------------------------------------------------------------------


def _data(key: str, value: float, text: str) -> str:
    return f'<data data-key="{key}" value="{value!r}">{escape(text)}</data>'


def _tile(key: str, name: str, value: float, text: str, interval: str, *below: str) -> str:
    """A figure, its interval, and lines below it, which are HTML."""
    extra = f'<div class="interval">{escape(interval)}</div>' if interval else ""
    shown = f'<div class="figure">{_data(key, value, text)}</div>'
    more = "".join(f'<div class="below">{line}</div>' for line in below if line)
    return f'<div class="tile"><div class="label">{name}</div>{shown}{extra}{more}</div>'


def _interval(bounds: Interval | None, show: Callable[[float], str]) -> str:
    return "" if bounds is None else f"95%: {show(bounds.low)} to {show(bounds.high)}"


def _crossover(p: Plan, bounds: Interval | None) -> str:
    if p.crossover_flops is None:
        return escape(f"none: {p.crossover_note}")
    between = f" ({_interval(bounds, scientific)})" if bounds else ""
    place = _data("crossover_flops", p.crossover_flops, scientific(p.crossover_flops))
    return f"{place} FLOPs{between}: {escape(p.crossover_note)}"


def _list(style: str, title: str, lines: Sequence[str]) -> str:
    if not lines:
        return ""
    items = "".join(f"<li>{escape(in_fields(line[:1].upper() + line[1:]))}</li>" for line in lines)
    heading = f"<h2>{title}</h2>" if title else ""
    return f'<div class="{style}">{heading}<ul>{items}</ul></div>'


# -- parts of the page that follow from what there is --------------------------------------------------


def parts() -> dict[str, str]:
    """What index.html has places for: its lists, and what its words mean."""
    chips = "".join(
        f'<a class="chip" data-visit href="?{escape(chosen.query())}">{escape(title)}</a>'
        for title, chosen in PRESETS.items()
    )
    pictures = "".join(
        f'<label><input type="radio" name="picture" value="{key}"{" checked" * (key == DEFAULTS.picture)}>'
        f"{title}</label>"
        for key, title in PICTURES.items()
    )
    columns = "".join(
        f'<label class="field" data-field="{ours}">{escape(name)}<input name="column-{ours}" list="columns" '
        f'autocomplete="off" placeholder="by its name"></label>'
        for ours, name in COLUMNS.items()
    )
    gpus = "".join(f"<option{' selected' * (g == DEFAULTS.gpu)}>{escape(g)}</option>" for g in ACCELERATORS)
    laws = _definitions(
        (escape(form.label), f"{escape(form.summary)} <code>{escape(form.formula)}</code>")
        for form in FORMS.values()
    )
    return {"chips": chips, "pictures": pictures, "columns": columns, "gpus": gpus, "laws": laws}


def _definitions(rows: Iterable[tuple[str, str]]) -> str:
    """Names, and values as HTML."""
    return f"<dl>{''.join(f'<div><dt>{name}</dt><dd>{value}</dd></div>' for name, value in rows)}</dl>"
