"""What a terminal is wide decides how output is wrapped, and never what it says."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from planner.cli import planner

COMMANDS = [
    "plan --ud 250M --flops 5e18 --gpu H100",
    "plan --calibration micro --ud 131k --flops 8e11",
    "plan --calibration micro-weight-decay --ud 49k --flops 3e11 --learning-rate 3e-3 --members auto",
    "compare --ud 250M --flops 5e18",
    "frontier --ud 250M --points 4",
    "predict --params 500M --ud 250M --epochs 8",
    "crossover --ud 250M",
    "laws",
    "cost",
    "shape",
]


def printed(command: str, columns: int) -> str:
    done = CliRunner().invoke(planner, command.split(), env={"COLUMNS": str(columns)})
    assert done.exit_code == 0, done.output
    return done.output


@pytest.mark.parametrize("columns", [40, 60])
@pytest.mark.parametrize("command", COMMANDS)
def test_no_line_is_wider_than_the_terminal(command: str, columns: int) -> None:
    assert max(map(len, printed(command, columns).splitlines())) <= columns


@pytest.mark.parametrize("command", COMMANDS)
def test_nothing_is_dropped_where_there_is_little_room(command: str) -> None:
    wide, narrow = ({word.strip(",") for word in printed(command, n).split()} for n in (160, 40))
    assert wide <= narrow


def test_a_table_that_fits_is_not_touched() -> None:
    table = printed("cost", 60).splitlines()
    assert table[-20:] == printed("cost", 200).splitlines()[-20:]


def test_a_law_of_all_weight_decays_is_listed_once_and_whole() -> None:
    text = " ".join(printed("laws dolma-olmo3", 100).split())
    assert text.count("weight_decay_premium") == 1
    assert "weight decay 0.1 to 6.4: 391 runs" in text
    assert "E 1.6607" in text  # the base law, too, which no other law of this calibration shows
    assert max(map(len, printed("laws", 100).splitlines())) <= 100
