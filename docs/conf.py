"""Sphinx configuration: the reference comes from the docstrings."""

from gradops_cy import __version__

project = "gradops-cy"
author = "The gradops-cy developers"
copyright = "The gradops-cy developers"
release = version = __version__

extensions = ["myst_parser", "numpydoc", "sphinx.ext.autodoc", "sphinx.ext.mathjax"]
html_theme = "furo"
exclude_patterns = ["_build"]
numpydoc_show_class_members = False
myst_heading_anchors = 3
autodoc_typehints = "none"
