"""Pages that people read: text, tables and figures, as one HTML file or as Markdown."""

from transcf.pages.drawing import Drawing
from transcf.pages.page import Page, Section
from transcf.pages.tables import Cell, Table

__all__ = ["Cell", "Drawing", "Page", "Section", "Table"]
