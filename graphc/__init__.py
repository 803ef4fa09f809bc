"""graphc: models traced once into a static op graph, compiled to a plan of generated kernels."""
