"""Device and pinned host memory: blocks, how tensors lie in them, leases, and copies into and out of them."""
