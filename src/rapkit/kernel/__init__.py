"""The state machine of a thread: pure functions from a thread and a message to a new thread, entries and effects.

A thread's state (`Thread`) and its journal are all there is. `receive` takes what came from outside, `reply` what the model said; both give
a `Step`: the new state, lines for the journal, and effects to carry out once these are stored. What a model is shown is a projection of
the journal. No clock, no network, no database, no chance.
"""
