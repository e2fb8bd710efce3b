"""Models that are trained with torch: CDAE, NeuMF and LightGCN."""
