"""The settings of an agent: their keys, the file they are read from, and their values."""
