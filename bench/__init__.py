"""The bench: turnlog, the original and the bare floor on the same work in one run. Not installed."""
