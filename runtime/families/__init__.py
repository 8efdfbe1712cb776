"""Folders of runtime files for ranges of message sizes."""
