"""The workloads by family of models, one module each."""
