"""Events that came in after a model was fitted: kept on disk, and known to every worker."""
