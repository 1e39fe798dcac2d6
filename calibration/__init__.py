"""Turns runs into laws and laws into evidence: run tables, fitting, intervals, design, studies, reports.

    >>> from calibration import fit
    >>> fit("runs.csv").save("my.json")  # doctest: +SKIP

Importing this package loads nothing; pandas and scipy come with the first name that is used.
"""

from functools import partial
from typing import TYPE_CHECKING

from planner.lazy import load, names

if TYPE_CHECKING:
    from calibration.fitting.design.proposal import design
    from calibration.fitting.evaluate.backtest import backtest
    from calibration.fitting.evaluate.summary import allocation_intervals, loss_interval, parameter_intervals
    from calibration.fitting.runs.checks import RunTableError
    from calibration.fitting.runs.tables import Origin, warnings_of
    from calibration.reports.report import report
    from calibration.studies.fit import fit, read_runs
    from calibration.studies.judge import judge
    from calibration.studies.prescriptions import prescriptions
    from calibration.studies.study import Study

__all__ = [
    "Origin",
    "RunTableError",
    "Study",
    "allocation_intervals",
    "backtest",
    "design",
    "fit",
    "judge",
    "loss_interval",
    "parameter_intervals",
    "prescriptions",
    "read_runs",
    "report",
    "warnings_of",
]

_HOME = {
    "fitting.evaluate.backtest": "backtest",
    "fitting.design.proposal": "design",
    "fitting.evaluate.summary": "allocation_intervals loss_interval parameter_intervals",
    "fitting.runs.checks": "RunTableError",
    "fitting.runs.tables": "Origin warnings_of",
    "reports.report": "report",
    "studies.judge": "judge",
    "studies.prescriptions": "prescriptions",
    "studies.fit": "fit read_runs",
    "studies.study": "Study",
}

__getattr__, __dir__ = partial(load, __name__, _HOME), partial(names, __name__, _HOME)
