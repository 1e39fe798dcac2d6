"""`planner calibrate validate`: train what each law prescribes, and say who won."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from calibration.commands.shared import print_json
from calibration.commands.sweep import (
    dry_run_options,
    engine_options,
    interruptible,
    make_engine,
    print_totals,
)
from planner.errors import InvalidInput
from planner.shell import Command, json_option
from planner.terminal import print_table
from planner.units import compute, count, number, scientific, short, whole

if TYPE_CHECKING:
    from calibration.studies.directory import StudyDirectory
    from calibration.studies.expense import Expense
    from calibration.studies.outcomes import Verdict
    from calibration.studies.prescriptions import CrossoverTest, Prescription
    from calibration.studies.study import Study, StudyRun
    from planner.calibration_files import Calibration


@click.command(cls=Command)
@click.argument("study", metavar="STUDY")
@click.option(
    "--calibration",
    metavar="LAW.json",
    help="The laws [default: fitted to the study's grid, without intervals].",
)
@click.option(
    "--ud",
    "uds",
    multiple=True,
    metavar="TOKENS",
    help="Unique tokens of a budget; repeat together with --flops.",
)
@click.option("--flops", "computes", multiple=True, metavar="FLOPS", help="Compute of that budget.")
@click.option(
    "--weight-decay",
    "decays",
    multiple=True,
    metavar="λ",
    help="Where laws prescribe [default: the weakest calibrated].",
)
@click.option(
    "--law", "laws", multiple=True, metavar="FORM", help="A law to try; may be repeated [default: all six]."
)
@click.option(
    "--crossover",
    "crossings",
    multiple=True,
    metavar="TOKENS",
    help="Look for the weight-decay crossover here.",
)
@click.option(
    "--crossover-law",
    metavar="FORM",
    help="The law that predicts it [default: the calibration's recommended one].",
)
@click.option(
    "--seeds", type=int, metavar="N", help="Runs of each configuration [default: the study's, else 3]."
)
@click.option(
    "--max-params",
    metavar="N",
    help="Train nothing larger [default: the study's max_params, else 10 times the largest size fitted on].",
)
@engine_options
@dry_run_options
@json_option
def validate(
    study: str,
    calibration: str | None,
    uds: tuple[str, ...],
    computes: tuple[str, ...],
    decays: tuple[str, ...],
    laws: tuple[str, ...],
    crossings: tuple[str, ...],
    crossover_law: str | None,
    seeds: int | None,
    max_params: str | None,
    out: str | None,
    engine: str,
    workers: int | None,
    per_gpu: int,
    address: str | None,
    changes: tuple[str, ...],
    quiet: bool,
    dry_run: bool,
    cards: tuple[str, ...],
    gpus: int,
    mfu: float,
    price: float | None,
    as_json: bool,
) -> None:
    """Train what each law prescribes for budgets of STUDY at equal compute, with seeds, and compare.

    Budgets are --ud and --flops in pairs, or those of the study's [validation] table. What is trained already is used again, and a
    stopped validation goes on where it was. The result is validation.json in the study's directory, which `planner calibrate
    report` shows; it holds what the last call asked for.

    \b
    Example:
      planner calibrate validate micro --calibration law.json
      planner calibrate validate study.toml --ud 100k --flops 2e11 --ud 200k --flops 4e11 --seeds 3
      planner calibrate validate study.toml --crossover 100k --dry-run
    """
    from calibration.studies import directory as directories
    from calibration.studies.expense import expenses
    from calibration.studies.local import LocalEngine
    from calibration.studies.prescriptions import crossover_test, prescriptions, runs_of
    from calibration.studies.study import load
    from planner.laws import check_form

    plan = load(study)
    if changes:
        from trainer.cli import assignments

        plan = plan.with_recipe(**assignments(changes))
    asked = plan.validation
    given = bool(uds or computes or crossings)
    pairs = _pairs(uds, computes) if given else list(asked.pairs)
    tokens = [count(ud, "crossover") for ud in crossings] if given else list(asked.crossover_uds)
    if not pairs and not tokens:
        raise InvalidInput(
            f"study {plan.name} names no budgets to validate at; --ud 100k --flops 2e11, say, would do."
        )
    times = asked.seeds if seeds is None else whole(seeds, "seeds", example="3")
    limit = asked.max_params if max_params is None else count(max_params, "max_params")
    forms = [check_form(law) for law in laws] or list(asked.laws)
    target = Path(out or plan.name)
    known = _calibration(calibration, target, plan)
    at = [
        known.setting(number(d, "weight_decay", positive=False)).weight_decay
        for d in decays or asked.weight_decays or ()
    ]
    planned = prescriptions(plan, known, pairs, laws=forms, weight_decays=at, seeds=times, max_params=limit)
    try:
        tests = [
            crossover_test(
                plan,
                known,
                ud,
                law=crossover_law,
                factors=asked.crossover_factors,
                seeds=times,
                max_params=limit,
            )
            for ud in tokens
        ]
    except InvalidInput as error:
        name = "crossover" if given else "validation.crossover_uds"
        raise error.renamed({"ud": name, "law": "crossover_law"}) from None
    runs = runs_of([*planned, *(prescription for test in tests for prescription in test.prescriptions)])
    folder = directories.StudyDirectory(target)
    if dry_run:
        directories.check_recipe(plan, target)
        _warn_of_a_stranger(known, plan, folder)
        missing = directories.unfinished(folder, runs)
        takes = expenses(
            missing, LocalEngine(folder.compiled, workers=workers, per_gpu=per_gpu), cards, gpus, mfu, price
        )
        _dry_run(planned, tests, runs, missing, takes, as_json)
        return
    failed: Mapping[str, str] = {}
    with interruptible():
        trainers = make_engine(engine, folder.compiled, workers, per_gpu, address)
        directories.begin(plan, target)
        _warn_of_a_stranger(known, plan, folder)
        if runs:
            failed = _train(plan, runs, folder, trainers, quiet)
    facts = _judge(plan, known, folder, planned, tests, failed, times, limit)
    if as_json:
        print_json(facts[1])
    else:
        from calibration.commands.verdict_tables import show

        show(facts[0])
        click.echo(
            f"\nWritten to {folder.path / 'validation.json'}; next: planner calibrate report {folder.path} -o report.html"
        )
    if failed:
        for name, reason in failed.items():
            click.echo(f"{name} failed: {reason}", err=True)
        raise click.exceptions.Exit(1)


def _pairs(uds: Sequence[str], computes: Sequence[str]) -> list[tuple[float, float]]:
    if len(uds) != len(computes):
        raise InvalidInput(
            f"--ud and --flops come in pairs; got {len(uds)} and {len(computes)}: --ud 100k --flops 2e11 --ud 200k --flops 4e11."
        )
    return [(count(ud, "ud"), compute(flops, "flops")) for ud, flops in zip(uds, computes, strict=True)]


def _calibration(source: str | None, target: Path, plan: Study) -> Calibration:
    from calibration.studies.directory import open_directory, unfinished
    from calibration.studies.sources import fit
    from planner.calibration_files import Calibration

    if source is not None:
        return Calibration.load(source)
    missing = unfinished(open_directory(target), plan.runs)
    if missing:  # prescriptions would change, and be trained anew, with every run that is finished later
        click.echo(
            f"Note: {len(missing)} of {len(plan.runs)} runs of the grid are not finished, and the laws are fitted to the others.",
            err=True,
        )
    return fit(target, bootstrap=0, name=target.resolve().name, source=f"fitted to {target.resolve().name}")


def _warn_of_a_stranger(known: Calibration, plan: Study, folder: StudyDirectory) -> None:
    from calibration.studies.provenance import strangeness

    if differing := strangeness(known, plan, folder):
        click.echo(
            f"Warning: calibration {known.name} was fitted to {differing}, so its laws may not hold here.",
            err=True,
        )


def _train(
    plan: Study, runs: list[StudyRun], folder: StudyDirectory, trainers: Any, quiet: bool
) -> dict[str, str]:
    """Train everything that is needed in one sweep, longest first; what failed, and why."""
    from calibration.studies import directory as directories
    from calibration.studies.sweep import sweep
    from calibration.studies.watching import shown

    for part in (directories.GRID, directories.VALIDATION):
        folder.results(part)  # a damaged one is better named now than after hours of training
    if not quiet:
        click.echo(f"{len(runs)} runs of {plan.name} in {folder.path}: {trainers.describe()}", err=True)
    grid = {run.name for run in plan.runs}
    with shown(folder, quiet=quiet) as watch:
        progress = sweep(
            runs,
            folder,
            trainers,
            part=lambda run: directories.GRID if run.name in grid else directories.VALIDATION,
            watch=watch,
        )
    return progress.failed


def _judge(
    plan: Study,
    known: Calibration,
    folder: StudyDirectory,
    planned: Sequence[Prescription],
    tests: Sequence[CrossoverTest],
    failed: Mapping[str, str],
    seeds: int,
    limit: float | None,
) -> tuple[Verdict, dict[str, Any]]:
    import pandas as pd

    from calibration.studies import directory as directories
    from calibration.studies.judge import judge
    from calibration.studies.verdict_files import save

    table = pd.concat(
        [directories.table(folder, part) for part in (directories.GRID, directories.VALIDATION)],
        ignore_index=True,
    )
    verdict = judge(planned, tests, table, failed)
    facts = {
        "study": plan.name,
        "calibration": known.name,
        "source": known.source,
        "seeds": seeds,
        "max_params": limit,
    }
    return verdict, save(folder, verdict, facts)


def _dry_run(
    planned: Sequence[Prescription],
    tests: Sequence[CrossoverTest],
    runs: Sequence[StudyRun],
    missing: Sequence[StudyRun],
    takes: Sequence[Expense],
    as_json: bool,
) -> None:
    from calibration.studies.expense import rows

    everything = [*planned, *(prescription for test in tests for prescription in test.prescriptions)]
    if as_json:
        done = {run.name for run in runs} - {run.name for run in missing}
        facts: dict[str, Any] = {
            "prescriptions": [_plain(prescription) for prescription in planned],
            "crossovers": [
                {
                    "ud": test.ud,
                    "predicted": test.predicted,
                    "note": test.note,
                    "prescriptions": [_plain(p) for p in test.prescriptions],
                }
                for test in tests
            ],
            "runs": rows(runs, done),
            "missing": len(missing),
            "flops": sum(run.flops for run in missing),
            "engines": [expense.as_dict() for expense in takes],
        }
        print_json(facts)
        return
    print_table(
        (
            "law",
            "unique",
            "FLOPs",
            "λ",
            "wants",
            "epochs",
            "trains",
            "of unique",
            "epochs",
            "predicted",
            "off budget",
        ),
        [_planned_row(prescription) for prescription in everything],
    )
    for prescription in everything:
        if prescription.reason:
            click.echo(
                f"{prescription.law} at {short(prescription.ud)}, {scientific(prescription.flops)}: {prescription.reason}"
            )
    for test in tests:
        click.echo(f"crossover at {short(test.ud)} unique tokens ({test.law}): {test.note}")
    print_totals(runs, missing, takes)


def _plain(prescription: Prescription) -> dict[str, Any]:
    values = {name: value for name, value in vars(prescription).items() if name != "runs"}
    return values | {"runs": [run.name for run in prescription.runs]}


def _planned_row(prescription: Prescription) -> tuple[str, ...]:
    start = (
        prescription.law,
        short(prescription.ud),
        scientific(prescription.flops),
        f"{prescription.weight_decay:g}",
    )
    wants = (
        ("", "")
        if prescription.wanted_params is None
        else (short(prescription.wanted_params), f"{prescription.wanted_epochs:.4g}")
    )
    if not prescription.runs:
        return (*start, *wants, "nothing", "", "", "", "")
    run = prescription.runs[0]
    off = run.flops / prescription.flops - 1
    trains = (short(run.params), short(run.config.unique_tokens), f"{run.config.epochs:.4g}")
    return (*start, *wants, *trains, f"{prescription.predicted_loss:.4f}", f"{off:+.2%}")
