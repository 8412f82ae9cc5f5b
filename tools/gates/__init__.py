"""Gates: small checks that keep documents, decision records and source honest.

Standard library only, so the package runs on any project: `python -m tools.gates all --root DIR`.
"""
