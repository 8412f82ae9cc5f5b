"""The command line, a front door over a session store."""
