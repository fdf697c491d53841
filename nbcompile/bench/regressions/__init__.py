"""Regression watch: a suite of programs compiled and timed, saved, and held against a later run of it.

``suite.py`` says what a case is, ``bench.py`` runs each in processes of its own (``worker.py``) and saves
what they say, ``noise.py`` decides which difference of times is one, ``findings.py`` puts times and records
(:mod:`nbcompile.record.diff`) together, ``report.py`` prints the findings. :mod:`nbcompile.cli` is the
command.
"""
