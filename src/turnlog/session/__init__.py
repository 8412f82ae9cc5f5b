"""The session in memory: append rules, folds, repair, invariants, fork. No I/O."""
