"""Rewrites that mend graph breaks: from a cell's text and the place of a break to the text without it."""
