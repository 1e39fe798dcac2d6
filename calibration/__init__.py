"""Turns runs into laws and laws into evidence: run tables, fitting, intervals, design, comparison, reports."""
