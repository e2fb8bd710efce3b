"""What the neural models share, and how each is trained.

`library`, `tower` and `graph` need no torch and are imported with the models; the rest is
imported when a model is fitted, which needs the extra `neural`.
"""
