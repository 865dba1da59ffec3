"""HTTP as both sides of the protocol take it: who calls, what may come in, how it is answered, and serving until a signal."""
