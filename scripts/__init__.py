"""One verb each; `_reference` makes pages for `scripts/docs`."""
