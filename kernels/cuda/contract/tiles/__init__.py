"""The tiles that compute a contraction: by tensor cores, by warp groups, in registers."""
