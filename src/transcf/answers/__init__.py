"""What callers ask of a fitted model: their own ids in, tables out."""
