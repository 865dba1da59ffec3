"""The agent runtime: load a thread, step it, commit, carry out the effects."""
