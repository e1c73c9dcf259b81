"""Scheduling decisions as plain synchronous state machines: no threads, no loops, no ACL."""
