"""Interaction with users: questions with choices, and OAuth authorisations."""
