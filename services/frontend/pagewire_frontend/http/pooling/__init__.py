"""The endpoints for encoders and classifiers: scores, reranking, pooling and classes."""
