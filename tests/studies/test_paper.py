"""The page that holds the law against the paper's runs says what its script computes."""

from __future__ import annotations

from tests.places import ROOT, script


def test_law_against_reality_is_up_to_date() -> None:
    paper = script("studies/paper/make.py")
    paper.check_prescriptions()
    text = (ROOT / "studies" / "paper" / "results.md").read_text(encoding="utf-8")
    for part in (paper.table(paper.MEASURED), paper.table(paper.MEASURED_DECAY), paper.ranking()):
        assert "\n".join(part) in text
