"""Agents: load, step, commit, act."""
