"""The audit log: who did what to which resource and when."""
