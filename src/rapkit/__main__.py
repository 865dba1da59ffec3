"""`python -m rapkit` is `rapkit`."""

from rapkit.cli import main

main()
