"""Measurements that any user can repeat on their own machine, model and documents."""
