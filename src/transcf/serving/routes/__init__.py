"""Routes of the service: from HTTP to questions, and from answers to JSON."""
