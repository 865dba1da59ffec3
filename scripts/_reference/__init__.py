"""The reference pages of the site, made from the code they describe when the site is built."""
