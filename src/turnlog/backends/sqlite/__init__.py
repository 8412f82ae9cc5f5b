"""Sessions in one SQLite database: frames as rows, one writer thread, one commit for all who wait."""
