"""Model folders and arrays in files: written atomically, checked when read, without code."""
