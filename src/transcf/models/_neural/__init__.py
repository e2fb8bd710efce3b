"""What the neural models share; needs the extra `neural`, and is imported when one is fitted."""
