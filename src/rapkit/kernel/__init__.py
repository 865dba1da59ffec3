"""What a thread does when something happens to it: pure functions from data to data.

A thread's state (`Thread`) and its journal are all there is. `receive` takes what came from outside, `reply` what the model said; both give
a `Step`: the new state, lines for the journal, and effects to carry out once these are stored. What a model is shown is a projection of
the journal. No clock, no network, no database, no chance.
"""
