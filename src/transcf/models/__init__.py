"""Recommenders, one module each, behind one small base class."""
