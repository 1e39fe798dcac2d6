"""`planner calibrate fit`: a run table or a study in, a calibration out."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import click

from calibration.commands.common import (
    Command,
    Plots,
    Rows,
    as_typed,
    check_output,
    draw,
    law_options,
    output_option,
    plot_option,
    print_note,
    progress_bar,
    row_options,
)
from calibration.fitting.evaluate.summary import example_question, middle_of, repetition_cost
from calibration.studies.fit import fit as fit_runs
from planner.calibration import Calibration, FittedLaw, Recipe, Setting, WeightDecayLaw
from planner.cli import option
from planner.inputs import named, scientific, short
from planner.laws import BASE_FORM, STANDARD, WEIGHT_DECAY_FORMS, repetition_parameters
from planner.show.terminal import print_facts, print_paragraph, print_table

# What is printed of a fit's metrics, and how.
_METRICS = {"r2": ".4f", "r2_multi": ".4f", "huber": ".3g", "aicc": ".1f", "held_out_error": ".3%"}


@click.command(cls=Command)
@click.argument("table", type=click.Path())
@output_option("FILE.json", "Write the calibration to this file.")
@law_options("A law form to fit")
@row_options()
@option(
    "--prior",
    "The prior of the law: a calibration, the shipped one that suits best "
    "(auto, the default), or none, which is the paper's own fit of each form alone.",
    "NAME|auto|none",
)
@option("--delta", "Huber threshold on ln(loss), or 'noise': from the runs.", default="1e-3")
@option(
    "--joint", "Fit base law and repetition together instead of locking the base law first.", is_flag=True
)
@option(
    "--bootstrap",
    "Posterior draws (without a prior: bootstrap refits) for the intervals; 0 for none.",
    type=int,
    default=1000,
)
@option("--resample", "What the bootstrap redraws.", type=click.Choice(["runs", "cells"]), default="runs")
@option("--scheme", "How it redraws them.", type=click.Choice(["residuals", "weights"]), default="residuals")
@option("--seed", "Same seed, same file.", type=int, default=0)
@option(
    "--weight-decay-law",
    "A law for every weight decay next to the settings, from runs at three or more and a known recipe: "
    f"{', '.join(WEIGHT_DECAY_FORMS)}. Plans use the one that is named; auto fits all and only says how good "
    "they are.",
    "auto|none|NAME",
    default="auto",
)
@option("--learning-rate", "Peak learning rate of runs that do not say theirs.", "η")
@option("--batch-tokens", "Tokens per step of runs that do not say theirs.", "TOKENS")
@option("--name", "Name of the calibration; the table's file name by default.")
@option("--title", "One line for people.", show_default=False, default="")
@option("--corpus", "What the runs were trained on.", show_default=False, default="")
@option("--model-family", "What was trained.", show_default=False, default="")
@option("--vocab --vocab-size vocab_size", "Rows of the embedding, for plans with an architecture.", type=int)
@plot_option
@option("--json as_json", "Print the calibration as JSON.", is_flag=True)
def fit(
    table: str,
    output: str | None,
    laws: tuple[str, ...],
    rows: Rows,
    name: str | None,
    plots: Plots,
    as_json: bool,
    **how: Any,
) -> None:
    """Fit laws to a run TABLE or to the directory of a study, for each of its weight decays.

    The table is a CSV, JSON or Parquet file, a folder of TensorBoard or Hugging Face runs, or a project of
    W&B (wandb:entity/project), with the columns run, params, unique_tokens, epochs and / or tokens,
    weight_decay, loss; other names are guessed or said with --columns.

    By default every law form is fitted to the runs together with a prior, from a shipped calibration; plans
    then use the average of the forms, each counting as far as the runs bear it out, and intervals come from
    draws of the posterior. --prior none is the paper's own fit: each form alone, at the optimum of the Huber
    loss, with bootstrap refits for the intervals; plans then use the one form that best predicts (size,
    budget) cells it was not fitted on. --delta, --joint, --resample and --scheme belong to it and imply it.

    \b
    Example:
      planner calibrate fit runs.csv --max-epochs 64 -o my.json
      planner calibrate fit study/ -o law.json --plot fit.png
      planner calibrate fit study/ --weight-decay-law weight_decay_steep -o law.json
    """
    for path in (output, *(path for _, path in plots)):
        check_output(path, table)
    place = Path(table).resolve()
    with progress_bar("fitting") as progress:
        source = rows.of(table)
        calibration = fit_runs(
            source,
            laws=laws or STANDARD,
            name=name or (place.name if place.is_dir() else Path(table).stem),
            source=f"fitted to {place.name}",
            progress=progress,
            **how,
        )
    if reason := getattr(calibration, "fitted_weight_decay_law", {}).get("not_fitted"):
        print_note(f"Warning: no weight-decay law was fitted: {named(reason, as_typed)}")
    if as_json:  # before it is written: a file that cannot be written after all loses nothing
        click.echo(calibration.model_dump_json(exclude_none=True))
    else:
        _print_conclusion(calibration)
    try:
        if plots:
            draw(plots, [calibration], source.table)
        if output is not None:
            calibration.save(output)
            if not as_json:
                _print_next(calibration, output)
    finally:
        if not as_json:
            _print_details(calibration)


def _print_conclusion(calibration: Calibration) -> None:
    """What to be careful about, which law plans use, what they say to the largest budget of the runs, and how
    far the law is off.
    """
    from calibration.reports.report import Subject, example, trust

    of_table = {f"{note['text']}." for note in getattr(calibration, "table_notes", ())}  # said already
    warnings = [text for setting in calibration.settings for text in setting.warnings]
    for warning in dict.fromkeys(text for text in warnings if text not in of_table):
        print_paragraph(f"Careful: {warning}")
    for decay, reason in calibration.left_out.items():  # type: ignore[attr-defined]
        print_paragraph(f"Left out: weight decay {decay}, whose base law is not identified: {reason}.")
    if calibration.weight_decay_law is None:
        reason = calibration.recommendation["reason"]  # type: ignore[attr-defined]
    else:
        reason = f"{calibration.default_law}, the law for every weight decay."
    print_paragraph(f"Recommended: {reason}", bold=True)
    subject = Subject(calibration)
    print_paragraph(example(subject))
    print_paragraph(trust(subject))


def _print_next(calibration: Calibration, output: str) -> None:
    """The command that plans with what was written, on a line of its own, to be pasted."""
    ud, flops = example_question(calibration)
    question = f"--ud {short(ud)} --flops {scientific(flops, 2)}"
    click.echo(f"Written to {output}:\n  planner plan --calibration {shlex.quote(output)} {question}")
    if calibration.vocab_size is None:
        print_paragraph("Plans will not know the vocabulary: --vocab 32100, say, puts it into the file.")


def _print_details(calibration: Calibration) -> None:
    for setting in calibration.settings:
        click.echo()
        _print_setting(setting)
    if calibration.weight_decay_law is not None:
        click.echo()
        _print_weight_decay_law(calibration.weight_decay_law, calibration.recipe)
        return
    kept = getattr(calibration, "fitted_weight_decay_law", {})
    if "laws" in kept:
        click.echo()
        _print_weight_decay_law(WeightDecayLaw.model_validate(kept), Recipe.model_validate(kept["recipe"]))
        use = f"--weight-decay-law {kept['law']} has them use a law for all"
        print_paragraph(f"Plans use the settings above; {use}.")


def _print_weight_decay_law(found: WeightDecayLaw, recipe: Recipe | None) -> None:
    rows, parameters = [], []
    for form, fitted in found.laws.items():
        errors = fitted.left_out  # type: ignore[attr-defined]
        values = ", ".join(f"{name} {value:.4g}" for name, value in fitted.parameters.items())
        figures = (fitted.metrics["rms"], fitted.metrics["left_out"], *errors.values())
        rows.append([form, *(f"{figure:.4f}" for figure in figures)])
        parameters.append((form, values))
    low, high = found.weight_decays
    header = ("law", "all", "left out", *(f"λ={decay}" for decay in errors))
    rate = "" if recipe is None else f" at learning rate {recipe.learning_rate:g}"
    title = f"weight-decay law: {found.fitted_on.runs} runs from {low:g} to {high:g}{rate}, error of ln(loss)"
    print_table(header, rows, title=title)
    print_facts("", parameters)


def _print_setting(setting: Setting) -> None:
    forms = {form: fitted for form, fitted in setting.laws.items() if form not in WEIGHT_DECAY_FORMS}
    # What repetition costs at one point, which parameters of different forms do not say.
    reference, costs = middle_of(setting), {BASE_FORM: ""}
    for form in (form for form in forms if form != BASE_FORM):
        cost, span = repetition_cost(setting, form, reference)
        costs[form] = f"{cost:.3f}" + ("" if span is None else f" ({span.low:.3f} to {span.high:.3f})")
    shown = {form: repetition_parameters(form) or tuple(forms[form].parameters) for form in forms}
    rows, parameters = [], []
    for form, fitted in forms.items():
        known = [_metric(fitted.metrics.get(name), style) for name, style in _METRICS.items()]
        rows.append([form, costs[form], *known, _agree(fitted, setting.law_weights.get(form))])
        values = (f"{name} {fitted.parameters[name]:.4g}{_between(fitted, name)}" for name in shown[form])
        parameters.append((form, ", ".join(values)))
    for form, reason in setting.method.get("not_identified", {}).items():
        parameters.append((form, f"not identified: {reason}"))
    last = "weight" if setting.law_weights else "starts at optimum"
    header = ("law", "repeats cost", "R²", "R² multi", "Huber", "AICc", "held out", last)
    on = setting.fitted_on
    title = f"weight decay {setting.weight_decay:g}: {on.runs} runs, {on.single_epoch_runs} single-epoch"
    print_table(header, rows, title=title)
    print_paragraph(f"Repeats cost: nats above as many new tokens, at {reference}.")
    print_facts("", parameters)


def _metric(value: float | None, style: str) -> str:
    return "" if value is None else format(value, style)


def _agree(fitted: FittedLaw, weight: float | None) -> str:
    """How much a form counts or, where none was averaged, how many starts found its optimum."""
    convergence = getattr(fitted, "convergence", None)
    if convergence is None:
        return "-" if weight is None else f"{weight:.1%}"
    flat = convergence["nearly_flat"]
    return f"{convergence['share_at_optimum']:.0%}" + (f" (flat: {', '.join(flat)})" if flat else "")


def _between(fitted: FittedLaw, name: str) -> str:
    """A parameter's 95% interval, open where the refits at its end sit on the bound of the search."""
    ends = getattr(fitted, "intervals", {}).get(name)
    if ends is None:
        return ""
    convergence = getattr(fitted, "convergence", None)
    unbounded = convergence["refits"]["open"].get(name, ()) if convergence else ()
    low, high = "≤ " * ("below" in unbounded), "≥ " * ("above" in unbounded)
    return f" ({low}{ends[0]:.3g} to {high}{ends[2]:.3g})"
