"""`planner calibrate validate`: train what each law prescribes, and say who won."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import click
import pandas as pd

from calibration.commands.common import Command, law_options, print_json, print_rows
from calibration.commands.training import DryRun, Training, fail_with, interruptible, training_options
from calibration.studies.directory import (
    GRID,
    VALIDATION,
    StudyDirectory,
    begin,
    damaged,
    open_directory,
    table,
    unfinished,
)
from calibration.studies.engine import Engine
from calibration.studies.fit import fit
from calibration.studies.judge import judge
from calibration.studies.prescriptions import (
    CrossoverTest,
    Prescription,
    affordable_seeds,
    crossover_test,
    laws_to_try,
    prescriptions,
    runs_of,
)
from calibration.studies.provenance import provenance_mismatch
from calibration.studies.study import Study, StudyRun, Validation
from calibration.studies.verdict import (
    Verdict,
    best_sentence,
    crossover_sentence,
    crossover_table,
    noise_sentence,
    save_verdict,
    standing_rows,
    trial_rows,
    trial_title,
)
from planner.calibration import Calibration
from planner.cli import json_option, option
from planner.inputs import InvalidInput, compute, count, number, scientific, short, whole
from planner.laws import check_form
from planner.plans import disagreement_at
from planner.show.terminal import print_table

# How what is typed is read, for the fields of a study's validation.
_TYPED: dict[str, Callable[[Any], Any]] = {
    "weight_decays": lambda decays: tuple(number(d, "weight_decay", positive=False) for d in decays),
    "laws": lambda laws: tuple(map(check_form, laws)),
    "crossover_uds": lambda uds: tuple(count(ud, "crossover") for ud in uds),
    "seeds": lambda seeds: whole(seeds, "seeds", example="3"),
    "max_params": lambda params: count(params, "max_params"),
}


def _asked(study: Study, uds: Sequence[str], computes: Sequence[str], typed: dict[str, Any]) -> Validation:
    """The study's validation with what was typed instead."""
    found = {name: _TYPED[name](value) for name, value in typed.items() if value not in (None, ())}
    if uds or computes or "crossover_uds" in found:  # the study's own budgets do not count then
        if len(uds) != len(computes):
            raise InvalidInput(
                f"‹ud› and ‹flops› come in pairs; got {len(uds)} and {len(computes)}: "
                f"‹ud› 100k ‹flops› 2e11 ‹ud› 200k ‹flops› 4e11."
            )
        pairs = zip(uds, computes, strict=True)
        found["pairs"] = tuple((count(ud, "ud"), compute(flops, "flops")) for ud, flops in pairs)
        found.setdefault("crossover_uds", ())
    asked = replace(study.validation, **found)
    if not asked.pairs and not asked.crossover_uds:
        raise InvalidInput(
            f"study {study.name} names no budgets to validate at; ‹ud› 100k ‹flops› 2e11, say, would do."
        )
    return asked


@click.command(cls=Command)
@click.argument("study", metavar="STUDY")
@option("--calibration", "The laws [default: fitted to the study's grid, without intervals].", "LAW.json")
@option("--ud uds", "Unique tokens of a budget; repeat together with --flops.", "TOKENS", multiple=True)
@option("--flops computes", "Compute of that budget.", "FLOPS", multiple=True)
@option(
    "--weight-decay weight_decays",
    "Where laws prescribe [default: the weakest calibrated].",
    "λ",
    multiple=True,
)
@law_options("A law to try", "the study's, else all")
@option("--crossover crossover_uds", "Look for the weight-decay crossover here.", "TOKENS", multiple=True)
@option("--crossover-law", "The law that predicts it [default: the calibration's recommended one].", "FORM")
@option("--seeds", "Runs of each configuration [default: the study's, else 5 or 3].", "N", type=int)
@option(
    "--max-params",
    "Train nothing larger [default: the study's, else 10 times the largest size fitted on].",
    "N",
)
@training_options
@json_option
def validate(
    study: str,
    calibration: str | None,
    uds: tuple[str, ...],
    computes: tuple[str, ...],
    crossover_law: str | None,
    training: Training,
    as_json: bool,
    **typed: Any,
) -> None:
    """Train what each law prescribes for budgets of STUDY at equal compute, with seeds, and compare.

    Budgets are --ud and --flops in pairs, or those of the study's [validation] table. What is trained already
    is used again, and a stopped validation goes on where it was. The result is validation.json in the study's
    directory, which `planner calibrate report` shows; it holds what the last call asked for.

    \b
    Example:
      planner calibrate validate micro --calibration law.json
      planner calibrate validate study.toml --ud 100k --flops 2e11 --ud 200k --flops 4e11 --seeds 3
      planner calibrate validate study.toml --crossover 100k --dry-run
    """
    plan = training.study(study)
    asked = _asked(plan, uds, computes, typed)
    folder = training.folder(plan)
    known = _calibration(calibration, folder.path, plan)
    trial = _planned(plan, known, asked, crossover_law)
    if not as_json:
        _print_deciding_runs(known, asked)
    if training.dry_run:
        takes = training.reckoned(plan, trial.runs, folder)
        _warn_of_mismatch(known, plan, folder)
        _dry_run(trial, takes, as_json)
        return
    failed: Mapping[str, str] = {}
    with interruptible():
        trainers = training.trainers(plan, folder)
        begin(plan, folder.path)
        _warn_of_mismatch(known, plan, folder)
        if trial.runs:
            failed = train(plan, trial.runs, folder, training, trainers)
    how: dict[str, Any] = {"study": plan.name, "calibration": known.name, "source": known.source}
    how |= {"seeds": trial.seeds, "max_params": asked.max_params}
    results = pd.concat(
        [table(folder, part, without=failed) for part in (GRID, VALIDATION)], ignore_index=True
    )
    verdict = judge(trial.prescriptions, trial.crossovers, results, failed)
    facts = save_verdict(folder, verdict, how)
    if as_json:
        print_json(facts)
    else:
        show(verdict)
        written = folder.path / "validation.json"
        name = shlex.quote(str(folder.path))
        click.echo(f"\nWritten to {written}; next: planner calibrate report {name} -o report.html")
    fail_with(failed)


def _calibration(source: str | None, target: Path, plan: Study) -> Calibration:
    if source is not None:
        return Calibration.load(source)
    missing = unfinished(open_directory(target), plan.runs)
    if missing:  # prescriptions would change, and be trained anew, with every run that is finished later
        part = f"{len(missing)} of {len(plan.runs)} runs of the grid"
        click.echo(f"Note: {part} are not finished, and the laws are fitted to the others.", err=True)
    return fit(target, bootstrap=0, name=target.resolve().name, source=f"fitted to {target.resolve().name}")


def _warn_of_mismatch(known: Calibration, plan: Study, folder: StudyDirectory) -> None:
    if differing := provenance_mismatch(known, plan.runs[0].architecture.vocab_size, folder):
        click.echo(
            f"Warning: calibration {known.name} was fitted to {differing}, so its laws may not hold here.",
            err=True,
        )


@dataclass(frozen=True)
class _Planned:
    """What there is to train."""

    prescriptions: Sequence[Prescription]
    crossovers: Sequence[CrossoverTest]
    seeds: int

    @property
    def everything(self) -> list[Prescription]:
        return [*self.prescriptions, *(one for test in self.crossovers for one in test.prescriptions)]

    @cached_property
    def runs(self) -> list[StudyRun]:
        return runs_of(self.everything)


def _print_deciding_runs(known: Calibration, asked: Validation) -> None:
    """Where forms disagree beyond the grid, and the one run that would settle it, next to the laws' own."""
    for ud, flops in asked.pairs:
        text = disagreement_at(known, ud, flops, min(asked.weight_decays or known.weight_decays))
        if text:
            click.echo(f"{short(ud)} unique tokens, {scientific(flops)} FLOPs: {text}", err=True)


def _planned(plan: Study, known: Calibration, asked: Validation, crossover_law: str | None) -> _Planned:
    at = [known.setting(decay).weight_decay for decay in asked.weight_decays or ()]
    laws = laws_to_try(known, asked.laws)

    def prescribed(seeds: int) -> list[Prescription]:
        how: dict[str, Any] = {"laws": laws, "weight_decays": at, "max_params": asked.max_params}
        return prescriptions(plan, known, asked.pairs, seeds=seeds, **how)

    seeds = affordable_seeds(plan, prescribed) if asked.seeds is None else asked.seeds
    how: dict[str, Any] = {"law": crossover_law, "factors": asked.crossover_factors, "seeds": seeds}
    try:
        tests = [
            crossover_test(plan, known, ud, max_params=asked.max_params, **how) for ud in asked.crossover_uds
        ]
    except InvalidInput as error:
        typed = asked.crossover_uds != plan.validation.crossover_uds
        name = "crossover" if typed else "validation.crossover_uds"
        raise error.renamed({"ud": name, "law": "crossover_law"}) from None
    return _Planned(prescribed(seeds), tests, seeds)


def train(
    plan: Study, runs: Sequence[StudyRun], folder: StudyDirectory, training: Training, trainers: Engine
) -> dict[str, str]:
    """Train everything that is needed in one sweep, longest first; what failed or is damaged, and why."""
    broken = damaged(folder)
    for reason in broken.values():  # better named now than after hours of training
        click.echo(f"Warning: {reason.rstrip('.')}; it is left out.", err=True)
    grid = {run.name for run in plan.runs}
    progress = training.train(
        plan, runs, folder, trainers, lambda run: GRID if run.name in grid else VALIDATION
    )
    return broken | progress.failed


def show(verdict: Verdict) -> None:
    """The outcome as tables."""
    for trial in verdict.trials:
        click.echo(f"\n{trial_title(trial)}: {noise_sentence(trial)}")
        print_rows(trial_rows(trial))
        for tried in trial.laws:
            if tried.reason:
                click.echo(f"{tried.law}: {tried.reason}")
        if trial.best is not None:
            click.echo(best_sentence(trial.best))
    if verdict.standings:
        click.echo("\nMean regret over the budgets")
        print_rows(standing_rows(verdict))
    for found in verdict.crossovers:
        decays = f"λ = {found.weaker:g} to {found.stronger:g}"
        click.echo(f"\nCrossover from {decays} at {short(found.ud)} unique tokens ({found.law})")
        if found.budgets:
            print_table(*crossover_table(found))
        for budget in found.budgets:
            if budget.reason:
                click.echo(f"{scientific(budget.flops)}: {budget.reason}")
        click.echo(crossover_sentence(found))


def _dry_run(trial: _Planned, takes: DryRun, as_json: bool) -> None:
    if as_json:
        print_json(
            {
                "prescriptions": [_plain(prescription) for prescription in trial.prescriptions],
                "crossovers": [
                    {
                        "ud": test.ud,
                        "predicted": test.predicted,
                        "note": test.note,
                        "prescriptions": [_plain(prescription) for prescription in test.prescriptions],
                    }
                    for test in trial.crossovers
                ],
                **takes.facts(),
            }
        )
        return
    asks = ("law", "unique", "FLOPs", "λ", "wants", "epochs")
    print_table(
        (*asks, "trains", "of unique", "epochs", "predicted", "off budget"),
        [_planned_row(prescription) for prescription in trial.everything],
    )
    for one in trial.everything:
        if one.reason:
            click.echo(f"{one.law} at {short(one.ud)}, {scientific(one.flops)}: {one.reason}")
    for test in trial.crossovers:
        click.echo(f"crossover at {short(test.ud)} unique tokens ({test.law}): {test.note}")
    takes.print_totals()


def _plain(prescription: Prescription) -> dict[str, Any]:
    return vars(prescription) | {"runs": [run.name for run in prescription.runs]}


def _planned_row(one: Prescription) -> tuple[str, ...]:
    start = (one.law, short(one.ud), scientific(one.flops), f"{one.weight_decay:g}")
    wants = ("", "")
    if one.wanted_params is not None:
        wants = (short(one.wanted_params), f"{one.wanted_epochs:.4g}")
    if not one.runs:
        return (*start, *wants, "nothing", "", "", "", "")
    run = one.runs[0]
    trains = (short(run.params), short(run.config.unique_tokens), f"{run.config.epochs:.4g}")
    return (*start, *wants, *trains, f"{one.predicted_loss:.4f}", f"{run.flops / one.flops - 1:+.2%}")
