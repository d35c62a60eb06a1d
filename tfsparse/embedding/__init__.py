"""Embedding tables: what users configure, how rows are exchanged, how they are trained."""
