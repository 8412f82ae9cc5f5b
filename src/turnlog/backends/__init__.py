"""Storage backends: implementations of the hooks, nothing else."""
