"""Device-independent kernel programs: affine accesses, statements, loop nests of contractions,
loops over the rows of reductions."""
