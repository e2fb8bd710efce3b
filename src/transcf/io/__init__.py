"""Models in folders and arrays in files: whole or not at all, checked, without code."""
