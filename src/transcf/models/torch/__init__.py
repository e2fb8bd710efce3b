"""Models that are trained with torch: CDAE, NeuMF, LightGCN and SASRec."""
