"""rapkit: the Reactive Agent Protocol for Python."""

__version__ = "0.1.0"
