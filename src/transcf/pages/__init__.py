"""Building blocks of reports: tables, charts, and pages in HTML or Markdown."""

from transcf.pages.figures import Drawing
from transcf.pages.page import Page, Section
from transcf.pages.tables import Cell, Table

__all__ = ["Cell", "Drawing", "Page", "Section", "Table"]
