"""Validators: the rules that each provider documents, checked without asking it."""
