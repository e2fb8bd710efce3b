"""What models share that are trained with torch, the extra `neural`.

`library` and `graph` need no torch and are imported with the models; the rest is imported when a
model is fitted.
"""
